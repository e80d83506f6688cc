"""Faults of nodes: killed, hung, cut off, slow, wrong clock, full disk, wrong version; and nodes that lie.

    python -m chaos.node_levels                        every level once
    python -m chaos.node_levels hung liars             these only
    python -m chaos.node_levels --rounds 5 --jobs 2    five times each

Each run has one faulty and one healthy node, both `fleet node --stdio` with a separate disk. In each case, every
subtask lands once with the same content as in a local run, no attempt is used up, the node is named, and only its cache
remains on it. Cutting a link requires root, `iproute2` and an SSH server. A small disk requires root.
"""

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.node_lies import LIES
from chaos.node_scene import (
    STRUCK,
    SUBTASKS,
    WAITS,
    WELL,
    WRITES,
    NodeAt,
    Scene,
    command_line_of,
    end,
    ended,
    set_scene,
    wrong,
)
from chaos.nodes import Host, run
from chaos.play import simulated
from chaos.ssh_server import make_keys
from scripts.frame import Figure, Table, add_jobs, add_names, command_line, exit_with, temporary_folder
from tests.e2e.stage import Going, wait_for

SMALL_DISK = "48m"
Strike = Callable[[Scene, Going], None]


@dataclass(frozen=True)
class Level:
    """A fault, and the expected message."""

    strike: Strike
    says: str
    """Expected message. Empty: the run does not report the node."""
    lie: str = ""
    network: bool = False
    """Whether the node is a separate host, reached over SSH."""
    slow: bool = False
    small_disk: bool = False
    done_by_it: bool = False
    """Whether work of the struck node has to be among what landed."""


def nothing(scene: Scene, going: Going) -> None:
    del going
    scene.struck.open_gate()


def kill(scene: Scene, going: Going) -> None:
    """Kill the node like a power failure. The next connection starts it again."""
    scene.wait_until_it_works(going)
    scene.struck.signal(signal.SIGKILL)
    scene.wait_until_it_is_out(going)
    scene.struck.open_gate()


def hang(scene: Scene, going: Going) -> None:
    scene.wait_until_it_works(going)
    scene.struck.signal(signal.SIGSTOP)
    scene.wait_until_it_is_out(going, "the node did not respond")
    with suppress(ProcessLookupError):  # the manager may have ended it
        scene.struck.signal(signal.SIGCONT)
    scene.struck.open_gate()


def cut_off(scene: Scene, going: Going) -> None:
    """Cut the link. The node finishes its work without a connection, others repeat it, and its work is kept."""
    host = scene.struck.host
    assert host is not None
    scene.wait_until_it_works(going)
    host.set_link("down")
    scene.struck.open_gate()
    scene.wait_until_it_is_out(going, "the node did not respond")
    host.set_link("up")
    wait_for(lambda: "late: its work is kept but not used" in going.output, going)
    scene.nodes[1].open_gate()


def fill_disk(scene: Scene, going: Going) -> None:
    scene.wait_until_it_works(going)
    with suppress(OSError), (scene.struck.state / "much").open("wb") as file:
        while True:
            file.write(bytes(64 * 1024))
    scene.struck.open_gate()


def kill_manager(scene: Scene, going: Going) -> None:
    """Kill the manager. The node finishes its work in the meantime, and a repetition would wait forever."""
    scene.wait_until_it_works(going)
    going.kill()
    scene.struck.open_gate()
    wait_for(lambda: scene.struck.reports)


LEVELS: dict[str, Level] = {
    "killed": Level(kill, "node struck is unavailable"),
    "hung": Level(hang, "the node did not respond"),
    "cut off, and back": Level(cut_off, "the node did not respond", network=True),
    "a slow link": Level(nothing, "", slow=True, done_by_it=True),
    "a clock an hour ahead": Level(nothing, "", lie="a clock an hour ahead", done_by_it=True),
    "a full disk": Level(fill_disk, "node struck", small_disk=True),
    "another version": Level(nothing, "node struck is unavailable: the node runs fleet 0.0.1", lie="another version"),
    "every check red": Level(
        nothing, "It passes on this machine, and that result counts", lie="every check red", done_by_it=True
    ),
    "the manager killed": Level(kill_manager, "", done_by_it=True),
}
LIARS = "liars"


@dataclass(frozen=True)
class Verdict:
    """Result of a run with a faulty node."""

    level: str
    wrong: tuple[str, ...]
    parts: int = 1
    """Faults that it had."""


def can_play(level: str) -> bool:
    """Whether this machine can make the network that a level needs."""
    wanted = level in LEVELS and LEVELS[level].network
    programs = all(map(shutil.which, ("ip", "ssh", "ssh-keygen"))) and Path("/usr/sbin/sshd").exists()
    return not wanted or (os.geteuid() == 0 and programs)


def play(name: str, folder: Path, number: int = 1) -> Verdict:
    """Play one run with this fault. `number` distinguishes the hosts of concurrent runs."""
    folder.mkdir(parents=True)
    try:
        return play_liars(folder) if name == LIARS else play_level(name, folder, number)
    except AssertionError as error:
        return Verdict(name, (str(error)[-3000:],))


def play_level(name: str, folder: Path, number: int) -> Verdict:
    level = LEVELS[name]
    with ExitStack() as stack:
        host = stack.enter_context(_host(folder, number)) if level.network else None
        struck, well = NodeAt(STRUCK, folder / STRUCK, level.lie, host, level.slow), NodeAt(WELL, folder / WELL)
        if level.small_disk:
            stack.enter_context(_small_disk(struck.state))
        for node in (struck, well):
            node.make()
        if not level.network:
            well.open_gate()
        scene = set_scene(folder, (struck, well))
        command = command_line_of(scene, "".join(node.table() for node in scene.nodes), WAITS, SUBTASKS)
        stack.callback(end, scene)
        with scene.stage.going(*command, at=scene.repository) as going:
            level.strike(scene, going)
            code, output = ended(scene, going)
        return Verdict(name, (*wrong(scene, code, output), *harm(scene, level, output)))


def play_liars(folder: Path, lies: Sequence[str] = tuple(LIES)) -> Verdict:
    """Play all lies in one run, each node with one slot. The work is finally done on this machine."""
    gate = folder / "gate"
    nodes = [NodeAt(f"liar-{number}", folder / f"{number}", lie) for number, lie in enumerate(lies)]
    for node in nodes:
        node.make(gate=str(gate))
    (gate / "open").touch()
    scene = set_scene(folder, nodes)
    tables = "".join(node.table(workers=1, checks=int("checks" in node.lie)) for node in nodes)
    with ExitStack() as stack:
        planner = {"label": "liars", "seed": 1, "planner": {"steps": []}, "workers": {}}
        service = stack.enter_context(simulated(scene.stage, planner))  # it retries what failed
        command = command_line_of(scene, tables, WRITES, len(nodes), workers=len(nodes), service=service)
        stack.callback(end, scene)
        with scene.stage.going(*command, at=scene.repository) as going:
            code, output = ended(scene, going)
        found = [f"{node.lie}: its node is not named" for node in nodes if f"node {node.name} " not in output]
        attempts = [each.attempts[-1] for each in scene.state.subtasks.values()]
        found += [f"attempt of {each.node} landed" for each in attempts if each.node]
        found += wrong(scene, code, output)
        return Verdict(LIARS, tuple(found), len(nodes))


def harm(scene: Scene, level: Level, output: str) -> Iterator[str]:
    """Return forbidden effects of the fault on the run, and files left on the nodes."""
    subtasks = scene.state.subtasks
    used = {id_: each.counted for id_, each in subtasks.items() if each.counted}
    yield from (f"{count} attempts at {id_} are used up" for id_, count in used.items())
    if level.says not in output:
        yield f"the run does not say {level.says!r}:\n{output[-2000:]}"
    if not level.says and f"node {STRUCK} is unavailable" in output:
        yield f"the node was lost:\n{output[-2000:]}"
    if level.done_by_it and STRUCK not in {each.attempts[-1].node for each in subtasks.values()}:
        yield "nothing of what landed was made by the node"
    for node in scene.nodes:
        yield from node.left()


@contextmanager
def _host(folder: Path, number: int) -> Iterator[Host]:
    make_keys(folder)
    host = Host(f"n{number}", number, folder)
    with host.opened():
        yield host


@contextmanager
def _small_disk(at: Path) -> Iterator[None]:
    at.mkdir(parents=True)
    run("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},mode=0700", "tmpfs", str(at))
    try:
        yield
    finally:
        run("umount", "-l", str(at))


def level_figure(name: str, verdicts: Sequence[Verdict]) -> tuple[Figure, tuple[str, ...]]:
    """The share of runs that a fault of a node did not harm."""
    unharmed = sum(not verdict.wrong for verdict in verdicts)
    note = f"{verdicts[0].parts} in each run: nothing of theirs landed, each is named" if name == LIARS else ""
    where = f"{unharmed} / {len(verdicts)}"
    figure = Figure(f"nodes, {name}: unharmed", where, unharmed / len(verdicts), wanted=1, at_least=True, note=note)
    return figure, tuple(f"NOT AS WANTED: {line}" for verdict in verdicts for line in verdict.wrong)


def main() -> int:
    parser = command_line("chaos.node_levels", __doc__)
    add_names(parser, "LEVEL", (*LEVELS, LIARS))
    parser.add_argument("--rounds", type=int, metavar="N", default=1, help="N runs of each (1)")
    parser.add_argument("--folder", type=Path, help="keep the runs in this folder")
    add_jobs(parser, 1)
    args = parser.parse_args()
    table = Table("runs with a faulty node beside one that is well")
    with temporary_folder() as temporary, ThreadPoolExecutor(args.jobs) as jobs:
        add_levels(table, args.names or (*LEVELS, LIARS), args.rounds, args.folder or temporary, jobs)
    return table.finish()


def add_levels(table: Table, names: Sequence[str], rounds: int, folder: Path, jobs: ThreadPoolExecutor) -> None:
    """Play each level a number of times, and add the rows."""
    playable = [name for name in names if can_play(name)]
    played = {
        name: [
            jobs.submit(play, name, folder / f"node-{place}-{each}", 1 + place * rounds + each)
            for each in range(rounds)
        ]
        for place, name in enumerate(playable)
    }
    for name in names:
        if name not in playable:
            missing = "not played: root, iproute2 and openssh-server are needed"
            table.add(Figure(f"nodes, {name}: unharmed", "0 / 0", 0, note=missing))
            continue
        figure, details = level_figure(name, [future.result() for future in played[name]])
        table.add(figure, details=details)


if __name__ == "__main__":
    exit_with(main)
