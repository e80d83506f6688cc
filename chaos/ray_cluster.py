"""Runs on a real Ray cluster of three: the contract of nodes, the demo, and a run in which one machine is killed.

    make ray                       in an environment of its own, with Ray
    python -m chaos.ray_cluster --subtasks 30

The machines are three Ray nodes on this one, each with its own processes, folder and session, on ports that are free,
with token authentication. They are started one by one, since of two at once on a host one dies. Only these are ended:
`ray stop` would end every Ray of this machine.
"""

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from socket import socket

from chaos.nodes import Trial
from examples.demo.story import configuration
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, progress, temporary_folder

PROCESSORS = 10
PATIENCE_S = 600.0
STARTED = "Ray runtime started"
LEASE_S = 10.0
HEALTH = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""How a head notices a machine that is gone: killed, after 1.5 s; cut off, after 15."""


@dataclass(frozen=True)
class Machine:
    """A Ray node in a session of its own."""

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
        """The machine, until the block ends; its session is known by its first process."""
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


def contract(address: str, token: Path) -> int:
    """The exit code of the contract suite of nodes on the cluster."""
    argv = [sys.executable, "-m", "pytest", "tests/fleet/nodes/test_host.py", "-k", "Ray", "--ray", address]
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **ray_environment(token)}
    return subprocess.run(argv, env=env, check=False).returncode


def demo(folder: Path, nodes: str, subtasks: int, token: Path) -> tuple[int, int]:
    """The exit code of the demo with a simulated model, and how many of its attempts were made on the cluster."""
    (folder / "tables.toml").write_text(nodes)
    argv = [sys.executable, "examples/demo/demo.py", "--subtasks", str(subtasks), "--workers", str(3 * PROCESSORS)]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), **ray_environment(token)}
    options = ["--keep", str(folder / "demo"), "--nodes", str(folder / "tables.toml")]
    code = subprocess.run([*argv, *options], env=env, stdout=sys.stderr, check=False).returncode
    [run] = (folder / "demo" / "state" / "runs").iterdir()
    attempts = [attempt for each in RunFolder(run).state().subtasks.values() for attempt in each.attempts]
    return code, sum(bool(attempt.node) for attempt in attempts)


def trial(folder: Path, subtasks: int, table: Table, *, demo_of: int) -> None:
    token, address = folder / "token", f"127.0.0.1:{free_port()}"
    token.write_text(token_hex(32))
    token.chmod(0o600)
    there = Trial(folder, tuple(f"s{number:03}" for number in range(subtasks)))
    there.make()
    machines = [Machine(f"m{number}", folder, token, address) for number in range(3)]
    with ExitStack() as stack:
        started = []
        for number, machine in enumerate(machines):
            progress(f"Ray starts on machine {number + 1} of 3")
            started.append(stack.enter_context(machine.opened(head=not number)))
        progress("the contract suite of nodes")
        suite = contract(address, token)
        nodes = f'[nodes.ray]\nray = "{address}"\nlease_s = {LEASE_S}\n'
        progress(f"the demo of {demo_of}")
        demo_code, demo_out = demo(folder, nodes, demo_of, token)
        progress(f"{subtasks} subtasks")
        began = time.monotonic()
        process = there.start("nodes", nodes, 3 * PROCESSORS, **ray_environment(token))
        there.wait(lambda: len(_at_work(there)) == 3, "each machine works", process)
        progress("one machine is killed")
        outages = there.log("nodes").count(" is out")
        kill_machine(started[-1])
        lost_s = there.wait(lambda: there.log("nodes").count(" is out") > outages, "its loss is noticed", process)
        code, wall_s = process.wait(PATIENCE_S), time.monotonic() - began
        there.start("here", "", 3 * PROCESSORS).wait(PATIENCE_S)
        journal = there.state("nodes")
        refused = there.start("refused", nodes, 3)
        without_token = refused.wait(PATIENCE_S) == 0 and "can't be joined" in there.log("refused")
        time.sleep(15)  # an actor leaves ten seconds after its last node
        left = sum(_is_left(pid, session, folder, started) for pid, (_, session) in processes().items())
    landed, where = there.landed("nodes"), "3 machines"
    is_same = there.tree("nodes") == there.tree("here")
    attempts = [attempt for each in journal.subtasks.values() for attempt in each.attempts]
    table.add(
        Figure("exit code of the contract suite", where, suite, wanted=0),
        Figure(f"exit code of the demo of {demo_of}", where, demo_code, wanted=0),
        Figure("attempts of the demo on the cluster, which call models", where, demo_out, wanted=1, at_least=True),
        Figure("exit code of the run", where, code, wanted=0),
        Figure("subtasks that landed", where, len(set(landed)), wanted=subtasks, at_least=True),
        Figure("commits of a subtask that landed before", where, len(landed) - len(set(landed)), wanted=0),
        Figure("the tree differs from that of a run here", where, int(not is_same), wanted=0),
        Figure("attempts on the cluster", where, sum(bool(attempt.node) for attempt in attempts)),
        Figure("attempts used up", where, sum(each.counted for each in journal.subtasks.values()), wanted=0),
        Figure("seconds until a killed machine was noticed", where, lost_s, wanted=2.0),
        Figure("seconds of the run", where, wall_s),
        Figure("a run without the token did not end well, or gave no reason", where, int(not without_token), wanted=0),
        Figure("actors and nodes left 15 s later", where, left, wanted=0),
    )


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
    parser.add_argument("--subtasks", type=int, default=120)
    parser.add_argument("--demo", type=int, choices=(16, 120), default=120)
    args = parser.parse_args()
    table = Table("a run on a Ray cluster of three: one machine killed")
    with temporary_folder() as folder:
        trial(folder, args.subtasks, table, demo_of=args.demo)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
