"""Runs on a real Ray cluster of three: contract of nodes, demo, drain, kill of the manager, kill of a machine.

    make ray                       in an environment of its own, with Ray
    python -m chaos.ray_cluster killed --subtasks 30

The machines are three Ray nodes on this machine, each with separate processors, directory and session, on free ports,
with token authentication. They start one after another, because of two concurrent starts on a host one fails. Only
these nodes are stopped: `ray stop` would stop every Ray process of this machine.
"""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from socket import socket

from chaos.nodes import Trial
from chaos.over_ssh import Person
from examples.demo.story import configuration
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, add_names, command_line, exit_with, progress, temporary_folder

PROCESSORS = 10
PATIENCE_S = 600.0
STARTED = "Ray runtime started"
LEASE_S = 10.0
WHERE = "3 machines"
FEW = 9
HEALTH = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""Time until a head detects a lost machine: 1.5 s after a kill, 15 s without a connection."""


@dataclass(frozen=True)
class Machine:
    """A Ray node in a separate session."""

    name: str
    folder: Path
    token: Path
    address: str

    @property
    def env(self) -> dict[str, str]:
        own = self.folder / self.name
        return {
            **ray_environment(self.token),
            **HEALTH,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(own),
            "FLEET_STATE_DIR": str(own / "state"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    @contextmanager
    def opened(self, *, head: bool) -> Iterator[int]:
        """Run the machine until the block ends. Its session is identified by its first process."""
        box = tomllib.loads(configuration())["box"]
        own = self.folder / self.name / ".config" / "fleet"
        own.mkdir(parents=True)
        (own / "config.toml").write_text("[box]\n" + "".join(f"{key} = {value}\n" for key, value in box.items()))
        host, port = self.address.split(":")
        which = ["--head", "--port", port, "--temp-dir", str(self.folder / "t"), "--include-dashboard=false"]
        argv = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats"]
        argv += [*(which if head else ["--address", self.address]), "--node-ip-address", host]
        argv += ["--num-cpus", str(PROCESSORS), "--object-store-memory", "100000000"]
        log = self.folder / f"{self.name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(argv, env=self.env, stdout=out, stderr=out, start_new_session=True)
        try:
            until = time.monotonic() + 120
            while STARTED not in log.read_text(errors="replace"):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"Ray does not start:\n{log.read_text(errors='replace')[-3000:]}")
                time.sleep(0.2)
            yield process.pid
        finally:
            kill_machine(process.pid)
            process.wait()


def ray_environment(token: Path) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}


def processes() -> dict[int, tuple[int, int]]:
    """Each process that lives, with its parent and its session."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, _, session = entry.read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                found[int(entry.parent.name)] = int(parent), int(session)
    return found


def kill_machine(session: int) -> None:
    """End a machine as a power cut would: its session, and all that descends from it."""
    living = processes()
    doomed = {pid for pid, (_, of) in living.items() if of == session}
    while more := {pid for pid, (parent, _) in living.items() if parent in doomed} - doomed:
        doomed |= more
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Cluster:
    """Three machines."""

    folder: Path
    token: Path
    address: str
    sessions: tuple[int, ...]
    """Of each machine, the head first."""
    subtasks: int
    demo_of: int

    @property
    def environment(self) -> dict[str, str]:
        return ray_environment(self.token)

    def nodes(self, *more: str, lease_s: float = LEASE_S) -> str:
        """The table that names it."""
        return "\n".join(("[nodes.ray]", f'ray = "{self.address}"', f"lease_s = {lease_s}", *more, ""))

    def trial(self, name: str, subtasks: int) -> Trial:
        there = Trial(self.folder / name, tuple(f"s{number:03}" for number in range(subtasks)))
        there.folder.mkdir()
        there.make()
        return there


def contract(cluster: Cluster, table: Table) -> None:
    """The contract suite of nodes on the cluster."""
    tests = "tests/fleet/features/nodes/test_host.py"
    argv = [sys.executable, "-m", "pytest", tests, "-k", "Ray", "--ray", cluster.address]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **cluster.environment}
    code = subprocess.run(argv, env=env, check=False).returncode
    table.add(Figure("exit code of the contract suite", WHERE, code, wanted=0))


def demo(cluster: Cluster, table: Table) -> None:
    """The demo with a simulated model, whose workers call it from the machines of the cluster."""
    folder = cluster.folder / "demo"
    folder.mkdir()
    (folder / "tables.toml").write_text(cluster.nodes())
    workers = ("--workers", str(3 * PROCESSORS))
    argv = [sys.executable, "examples/demo/demo.py", "--subtasks", str(cluster.demo_of), *workers]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **cluster.environment}
    options = ["--keep", str(folder / "demo"), "--nodes", str(folder / "tables.toml")]
    code = subprocess.run([*argv, *options], env=env, stdout=sys.stderr, check=False).returncode
    [run] = (folder / "demo" / "state" / "runs").iterdir()
    attempts = [attempt for each in RunFolder(run).state().subtasks.values() for attempt in each.attempts]
    out = sum(bool(attempt.node) for attempt in attempts)
    table.add(
        Figure(f"exit code of the demo of {cluster.demo_of}", WHERE, code, wanted=0),
        Figure("attempts of the demo on the cluster, which call models", WHERE, out, wanted=1, at_least=True),
    )


def drained(cluster: Cluster, table: Table) -> None:
    """Drain all machines while they work. No other machine has the required label."""
    there = cluster.trial("drained", FEW)
    nodes = cluster.nodes("workers = 1", 'labels = ["large"]')
    process = there.start("nodes", f'labels = ["large"]\n{nodes}', FEW, **cluster.environment)
    there.wait(lambda: bool(_at_work(there)), "a machine works", process)
    person = Person(there, there.folder / "nodes.toml")
    asked = person.fleet("nodes", "drain", "ray", "--run", "nodes")[0]
    there.wait(lambda: bool(there.state("nodes").nodes["ray"].drained_by), "the run knows", process)
    there.wait(lambda: not _at_work(there), "what runs there ends there", process)
    begun = _begun(there)
    status = json.loads(person.fleet("status", "nodes", "--json")[1])
    waiting, wrong = len(status["waiting_for_machines"]), sum(each["status"] != "drained" for each in status["nodes"])
    still = _begun(there)
    asked += person.fleet("nodes", "undrain", "ray", "--run", "nodes")[0]
    code = process.wait(PATIENCE_S)
    where = "drained"
    table.add(
        Figure("exit codes of drain and undrain", where, asked, wanted=0),
        Figure("machines that are not listed as drained", where, wrong, wanted=0),
        Figure("subtasks that wait for a machine", where, waiting, wanted=1, at_least=True),
        Figure("attempts that began meanwhile", where, still - begun, wanted=0),
        Figure("exit code of the run", where, code, wanted=0),
        Figure("subtasks that landed", where, len(set(there.landed("nodes"))), wanted=FEW, at_least=True),
        Figure("attempts elsewhere", where, sum(not node for node in _nodes_of(there)), wanted=0),
    )


def resumed(cluster: Cluster, table: Table) -> None:
    """Kill the manager while the cluster works, and resume it. Work done in the meantime is not repeated."""
    there = cluster.trial("resumed", FEW)
    process = there.start("nodes", cluster.nodes(lease_s=60), FEW, **cluster.environment)
    there.wait(lambda: sum(map(bool, _nodes_of(there))) == FEW, "every subtask is on the cluster", process)
    process.kill()
    process.wait(PATIENCE_S)
    code = there.resume("nodes", **cluster.environment).wait(PATIENCE_S)
    journal, landed, where = there.state("nodes"), there.landed("nodes"), "resumed"
    table.add(
        Figure("exit code of the run", where, code, wanted=0),
        Figure("subtasks that landed", where, len(set(landed)), wanted=FEW, at_least=True),
        Figure("commits of a subtask that landed before", where, len(landed) - len(set(landed)), wanted=0),
        Figure("attempts that were made again", where, _begun(there) - FEW, wanted=0),
        Figure("attempts used up", where, sum(each.counted for each in journal.subtasks.values()), wanted=0),
    )


def killed(cluster: Cluster, table: Table) -> None:
    """One machine is killed while all of them work."""
    there, subtasks = cluster.trial("killed", cluster.subtasks), cluster.subtasks
    began = time.monotonic()
    process = there.start("nodes", cluster.nodes(), 3 * PROCESSORS, **cluster.environment)
    there.wait(lambda: len(_at_work(there)) == 3, "each machine works", process)
    progress("one machine is killed")
    outages = there.log("nodes").count(" is unavailable")
    kill_machine(cluster.sessions[-1])
    lost_s = there.wait(lambda: there.log("nodes").count(" is unavailable") > outages, "its loss is noticed", process)
    code, wall_s = process.wait(PATIENCE_S), time.monotonic() - began
    there.start("here", "", 3 * PROCESSORS).wait(PATIENCE_S)
    refused = there.start("refused", cluster.nodes(), 3)
    without_token = refused.wait(PATIENCE_S) == 0 and "can't join Ray" in there.log("refused")
    journal, landed = there.state("nodes"), there.landed("nodes")
    is_same = there.tree("nodes") == there.tree("here")
    table.add(
        Figure("exit code of the run", WHERE, code, wanted=0),
        Figure("subtasks that landed", WHERE, len(set(landed)), wanted=subtasks, at_least=True),
        Figure("commits of a subtask that landed before", WHERE, len(landed) - len(set(landed)), wanted=0),
        Figure("the tree differs from that of a run here", WHERE, int(not is_same), wanted=0),
        Figure("attempts on the cluster", WHERE, sum(map(bool, _nodes_of(there)))),
        Figure("attempts used up", WHERE, sum(each.counted for each in journal.subtasks.values()), wanted=0),
        Figure("seconds until a killed machine was noticed", WHERE, lost_s, wanted=2.0),
        Figure("seconds of the run", WHERE, wall_s),
        Figure("a run without the token did not end well, or gave no reason", WHERE, int(not without_token), wanted=0),
    )


SCENES: dict[str, Callable[[Cluster, Table], None]] = {
    "contract": contract,
    "demo": demo,
    "drained": drained,
    "resumed": resumed,
    "killed": killed,
}
"""In this order: after the last one, a machine is gone."""


def play(folder: Path, names: Sequence[str], table: Table, *, subtasks: int, demo_of: int) -> None:
    token, address = folder / "token", f"127.0.0.1:{free_port()}"
    token.write_text(token_hex(32))
    token.chmod(0o600)
    machines = [Machine(f"m{number}", folder, token, address) for number in range(3)]
    with ExitStack() as stack:
        started = []
        for number, machine in enumerate(machines):
            progress(f"Ray starts on machine {number + 1} of 3")
            started.append(stack.enter_context(machine.opened(head=not number)))
        cluster = Cluster(folder, token, address, tuple(started), subtasks, demo_of)
        for name in [name for name in SCENES if name in names]:
            progress(name)
            SCENES[name](cluster, table)
        time.sleep(15)  # an actor leaves ten seconds after its last node
        left = sum(_is_left(pid, session, folder, started) for pid, (_, session) in processes().items())
    table.add(Figure("actors and nodes left 15 s later", WHERE, left, wanted=0))


def _nodes_of(there: Trial) -> list[str]:
    """The node of each attempt, where it has one."""
    try:
        subtasks = there.state("nodes").subtasks.values()
    except FleetError:  # it has no journal yet
        return []
    return [attempt.node for each in subtasks for attempt in each.attempts]


def _begun(there: Trial) -> int:
    return len(_nodes_of(there))


def _at_work(there: Trial) -> set[str]:
    try:
        subtasks = there.state("nodes").subtasks.values()
    except FleetError:  # it has no journal yet
        return set()
    return {each.attempts[-1].node for each in subtasks if each.attempts and each.attempts[-1].working} - {""}


def _is_left(pid: int, session: int, folder: Path, machines: list[int]) -> bool:
    """Whether a process is an actor on our machines, or a node that one of them started."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        if b"ray::RayActor" in words:
            return session in machines
        return b"node\0--stdio" in words and os.fsencode(folder) in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def main() -> int:
    parser = command_line("chaos.ray_cluster", __doc__)
    add_names(parser, "SCENE", SCENES)
    parser.add_argument("--subtasks", type=int, default=120)
    parser.add_argument("--demo", type=int, choices=(16, 120), default=120)
    args = parser.parse_args()
    table = Table("runs on a Ray cluster of three")
    with temporary_folder() as folder:
        play(folder, args.names or list(SCENES), table, subtasks=args.subtasks, demo_of=args.demo)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
