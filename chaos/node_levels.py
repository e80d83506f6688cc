"""Faults of nodes: killed, hung, cut off, slow, with another clock, with a full disk, of another version; and liars.

    python -m chaos.node_levels                        every level once
    python -m chaos.node_levels hung liars             these only
    python -m chaos.node_levels --rounds 5 --jobs 2    five times each

Each is a run with a node that the fault strikes and one that is well, both `fleet node --stdio` with a disk of their
own. Whatever happens, each subtask lands once, with the content that a run on this machine gives it, no attempt is used
up, the node is named, and nothing is left on it but its cache. Cutting a link needs root, `iproute2` and an SSH server,
a small disk needs root.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from chaos.node_lies import LIES
from chaos.nodes import Host, make_keys, run
from chaos.play import simulated
from fleet.core.state.state import RunState
from scripts.frame import Figure, Table, add_jobs, add_names, command_line, exit_with, temporary_folder
from tests.e2e.stage import Going, Stage, landed, program, subtask, wait_for
from tests.worktrees.conftest import git, make_repository

ROOT = Path(__file__).parents[1]
RUN = "r"
NO_SERVICE = "http://127.0.0.1:9"
SUBTASKS = 6
LEASE_S = 4.0
PATIENCE_S = 180.0
RETRIES = 40
"""Of an attempt: a subtask may meet every liar."""
SMALL_DISK = "48m"
WRITES = 'printf \'%s\\n\' "$1" >"$1.txt"'
WAITS = f'while ! [ -e "$GATE/open" ]; do sleep 0.1; done; {WRITES}'
BRISK = {"FLEET_LIMITS_BACKOFF_FIRST_S": "0.05", "FLEET_LIMITS_BACKOFF_CAP_S": "0.3"}
SLOW_S, SLOW_BITS = 0.2, 1_000_000
STRUCK, WELL = "struck", "well"


@dataclass(frozen=True)
class NodeAt:
    """A node with a folder of its own. Its workers wait until its gate is open."""

    name: str
    home: Path
    lie: str = ""
    """Empty: it is honest."""
    host: Host | None = None
    """Where it is reached over SSH; None: over a pipe."""
    slow: bool = False
    """Whether its link is slow."""

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def pids(self) -> list[int]:
        """Every process that it ran as, the first one first."""
        file = self.home / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    @property
    def reports(self) -> list[Path]:
        return list(self.state.glob("node/orders/*/*/*.report"))

    def make(self, *, gate: str = "") -> None:
        """Write its configuration. Without a gate it has one of its own, which is closed."""
        at = gate or str(self.home / "gate")
        for folder in (Path(at), self.state, self.home / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.home / "node.toml").write_text(
            f'[state]\ndir = "{self.state}"\n[box]\nread_only = ["{at}"]\nenvironment = {{GATE = "{at}"}}\n'
        )
        node = ["chaos.node_lies", self.lie] if self.lie else ["fleet", "node", "--stdio"]
        command = shlex.join((sys.executable, "-B", "-m", *node, "--config", f"{self.home}/node.toml"))
        (self.home / "start").write_text(
            f"echo $$ >>{self.home}/pids\nTMPDIR={self.home}/tmp PYTHONPATH={ROOT} exec {command}\n"
        )

    def open_gate(self) -> None:
        (self.home / "gate" / "open").touch()

    def table(self, *, workers: int = 3, checks: int = 2) -> str:
        start = f"sh {self.home}/start"
        command = self.host.over_ssh(start) if self.host is not None else start
        if self.slow:
            command = f"{shlex.quote(sys.executable)} -B -m chaos.slow_link {SLOW_S} {SLOW_BITS} {command}"
        slots = f"workers = {workers}\nchecks = {checks}\nlease_s = {LEASE_S}\n"
        return f"[nodes.{self.name}]\ncommand = {json.dumps(command)}\n{slots}"

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.pids[-1], number)

    def left(self) -> Iterator[str]:
        """What there is on it besides its cache, once its processes have ended.

        What a killed process leaves is removed by the next one.
        """
        wait_for(lambda: not any(map(program, self.pids)))
        yield from (f"{path} is left" for path in self.reports)
        yield from (f"{path} is left" for path in self.state.glob("node/stores/*/slots/*") if path.is_dir())
        yield from (f"{path} is left" for path in self.state.glob("node/stores/*/new-*"))
        yield from (f"{path} is left" for path in (self.home / "tmp").iterdir())
        yield from (f"{path} is left" for path in self.state.glob("node/temporary/*"))
        for store in self.state.glob("node/stores/*/fleet.git"):
            refs = git(store, "for-each-ref", "--format=%(refname)").split()
            yield from (f"{ref} is left" for ref in refs if not ref.startswith("refs/fleet/cache/"))


@dataclass(frozen=True)
class Scene:
    """A run on nodes."""

    folder: Path
    stage: Stage
    nodes: Sequence[NodeAt]

    @property
    def struck(self) -> NodeAt:
        return self.nodes[0]

    @property
    def repository(self) -> Path:
        return self.folder / "work"

    @property
    def state(self) -> RunState:
        state = self.stage.look(RUN)
        assert state is not None, "the run did not begin"
        return state

    def wait_until_it_works(self, going: Going) -> None:
        """Wait until the struck node works on an attempt."""

        def works(state: RunState) -> bool:
            last = [each.attempts[-1] for each in state.subtasks.values() if each.attempts]
            return any(attempt.working and attempt.node == self.struck.name for attempt in last)

        self.stage.wait(RUN, works, going)

    def wait_until_it_is_out(self, going: Going, why: str = "") -> None:
        wait_for(lambda: f"node {self.struck.name} is out: {why}" in going.output, going)


Strike = Callable[[Scene, Going], None]


@dataclass(frozen=True)
class Level:
    """A fault, and what a person reads about it."""

    strike: Strike
    says: str
    """Empty: the run has no reason to say anything about the node."""
    lie: str = ""
    network: bool = False
    """Whether the node is a host of its own, reached over SSH."""
    slow: bool = False
    small_disk: bool = False
    done_by_it: bool = False
    """Whether work of the struck node has to be among what landed."""


def nothing(scene: Scene, going: Going) -> None:
    del going
    scene.struck.open_gate()


def kill(scene: Scene, going: Going) -> None:
    """As a power cut would; it is started again by the next connection."""
    scene.wait_until_it_works(going)
    scene.struck.signal(signal.SIGKILL)
    scene.wait_until_it_is_out(going)
    scene.struck.open_gate()


def hang(scene: Scene, going: Going) -> None:
    scene.wait_until_it_works(going)
    scene.struck.signal(signal.SIGSTOP)
    scene.wait_until_it_is_out(going, "the node was silent")
    with suppress(ProcessLookupError):  # the manager may have ended it
        scene.struck.signal(signal.SIGCONT)
    scene.struck.open_gate()


def cut_off(scene: Scene, going: Going) -> None:
    """It finishes what it has while no one hears it: others do that again, and its work is kept."""
    host = scene.struck.host
    assert host is not None
    scene.wait_until_it_works(going)
    host.set_link("down")
    scene.struck.open_gate()
    scene.wait_until_it_is_out(going, "the node was silent")
    host.set_link("up")
    wait_for(lambda: "late: its work is kept, unused" in going.output, going)
    scene.nodes[1].open_gate()


def fill_disk(scene: Scene, going: Going) -> None:
    scene.wait_until_it_works(going)
    with suppress(OSError), (scene.struck.state / "much").open("wb") as file:
        while True:
            file.write(bytes(64 * 1024))
    scene.struck.open_gate()


def kill_manager(scene: Scene, going: Going) -> None:
    """The node finishes what it has meanwhile; who did that again would wait for ever."""
    scene.wait_until_it_works(going)
    going.kill()
    scene.struck.open_gate()
    wait_for(lambda: scene.struck.reports)


LEVELS: dict[str, Level] = {
    "killed": Level(kill, "node struck is out"),
    "hung": Level(hang, "the node was silent"),
    "cut off, and back": Level(cut_off, "the node was silent", network=True),
    "a slow link": Level(nothing, "", slow=True, done_by_it=True),
    "a clock an hour ahead": Level(nothing, "", lie="a clock an hour ahead", done_by_it=True),
    "a full disk": Level(fill_disk, "node struck", small_disk=True),
    "another version": Level(nothing, "node struck is out: it runs fleet 0.0.1", lie="another version"),
    "the manager killed": Level(kill_manager, "", done_by_it=True),
}
LIARS = "liars"


@dataclass(frozen=True)
class Verdict:
    """What a run with a faulty node came to."""

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
    """One run with this fault. `number` tells hosts of runs apart that are played side by side."""
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
        scene = _scene(folder, (struck, well))
        command = _command(scene, "".join(node.table() for node in scene.nodes), WAITS, SUBTASKS)
        stack.callback(_end, scene)
        with scene.stage.going(*command, at=scene.repository) as going:
            level.strike(scene, going)
            code, output = _ended(scene, going)
        return Verdict(name, tuple(_wrong(scene, level, code, output)))


def play_liars(folder: Path, lies: Sequence[str] = tuple(LIES)) -> Verdict:
    """All of them in one run, each with room for one attempt; the work is done here in the end."""
    gate = folder / "gate"
    nodes = [NodeAt(f"liar-{number}", folder / f"{number}", lie) for number, lie in enumerate(lies)]
    for node in nodes:
        node.make(gate=str(gate))
    (gate / "open").touch()
    scene = _scene(folder, nodes)
    tables = "".join(node.table(workers=1, checks=int("checks" in node.lie)) for node in nodes)
    with ExitStack() as stack:
        planner = {"label": "liars", "seed": 1, "planner": {"steps": []}, "workers": {}}
        service = stack.enter_context(simulated(scene.stage, planner))  # it retries what failed
        command = _command(scene, tables, WRITES, len(nodes), workers=len(nodes), service=service)
        stack.callback(_end, scene)
        with scene.stage.going(*command, at=scene.repository) as going:
            code, output = _ended(scene, going)
        wrong = [f"{node.lie}: its node is not named" for node in nodes if f"node {node.name} " not in output]
        attempts = [each.attempts[-1] for each in scene.state.subtasks.values()]
        wrong += [f"attempt of {each.node} landed" for each in attempts if each.node]
        wrong += _wrong(scene, None, code, output)
        return Verdict(LIARS, tuple(wrong), len(nodes))


def _scene(folder: Path, nodes: Sequence[NodeAt]) -> Scene:
    (folder / "tmp").mkdir()
    make_repository(folder / "work", {"README.md": "hello\n"})
    return Scene(folder, Stage(folder, more={**BRISK, "TMPDIR": str(folder / "tmp")}), nodes)


def _command(
    scene: Scene, tables: str, worker: str, subtasks: int, *, workers: int = SUBTASKS, service: str = NO_SERVICE
) -> tuple[str, ...]:
    config, plan = scene.folder / "run.toml", scene.folder / "plan.json"
    command = f"sh -c {shlex.quote(worker)} sh {{id}}"
    gate = scene.folder / "gate"  # of this machine, which is always open
    gate.mkdir(exist_ok=True)
    (gate / "open").touch()
    config.write_text(
        f'[box]\nread_only = ["{gate}"]\nenvironment = {{GATE = "{gate}"}}\n[limits]\nretries = {RETRIES}\n'
        f'[workers.step]\nkind = "command"\ncommand = {json.dumps(command)}\n{tables}'
    )
    ids = [f"s{number}" for number in range(subtasks)]
    plan.write_text(json.dumps({"goal": "steps", "subtasks": [subtask(id_, worker="step") for id_ in ids]}))
    options = ("--name", RUN, "--config", str(config), "--workers", str(workers), "--base-url", service)
    return ("run", "--plan", str(plan), *options)


def _ended(scene: Scene, going: Going) -> tuple[int, str]:
    """The exit code and the output of a run, resumed if it was killed."""
    try:
        code = going.process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the run did not end:\n{going.output}") from None
    if code != -signal.SIGKILL:
        return code, going.output
    with scene.stage.going("resume", RUN, at=scene.repository) as again:
        code = again.process.wait(PATIENCE_S)
        return code, going.output + again.output


def _wrong(scene: Scene, level: Level | None, code: int, output: str) -> Iterator[str]:
    """What is not as it has to be after a run."""
    if code != 0 or "Traceback" in output:
        yield f"exit code {code}:\n{output[-2000:]}"
        return
    subtasks = scene.state.subtasks
    if sorted(landed(scene.repository, RUN)) != sorted(subtasks):
        yield f"landed: {landed(scene.repository, RUN)}"
    tree = git(scene.repository, "ls-tree", "-r", "--format=%(path)", f"fleet/{RUN}").split()
    if sorted(tree) != sorted(["README.md", *(f"{id_}.txt" for id_ in subtasks)]):
        yield f"the tree has {tree}"
    for id_ in subtasks:
        if git(scene.repository, "show", f"fleet/{RUN}:{id_}.txt") != id_:
            yield f"{id_}.txt has another content"
    if level is not None:
        used = {id_: each.counted for id_, each in subtasks.items() if each.counted}
        yield from (f"{count} attempts at {id_} are used up" for id_, count in used.items())
        if level.says not in output:
            yield f"the run does not say {level.says!r}:\n{output[-2000:]}"
        if not level.says and f"node {STRUCK} is out" in output:
            yield f"the node was lost:\n{output[-2000:]}"
        if level.done_by_it and STRUCK not in {each.attempts[-1].node for each in subtasks.values()}:
            yield "nothing of what landed was made by the node"
    for node in scene.nodes if level is not None else ():  # a liar keeps what it likes
        yield from node.left()
    yield from _left_here(scene)


def _left_here(scene: Scene) -> Iterator[str]:
    """What the run has left on the manager's side."""
    scene.stage.nothing_is_alive(RUN)
    yield from (f"{path} is left" for path in (scene.folder / "tmp").iterdir())
    yield from (f"{path} is left" for path in scene.stage.state.glob("stores/*/new-*"))
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    small_disk = str(scene.struck.state)
    yield from (
        f"mount {line} is left" for line in mounts if str(scene.folder) in line and line.split()[1] != small_disk
    )
    for store in scene.stage.state.glob("stores/*/fleet.git"):
        refs = git(store, "for-each-ref", "--format=%(refname)").split()
        yield from (f"{ref} is left" for ref in refs if not ref.startswith("refs/fleet/"))


def _end(scene: Scene) -> None:
    for pid in [pid for node in scene.nodes for pid in node.pids if program(pid)]:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


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
    """Play so many runs of each, and add their rows."""
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
