"""A run on nodes over SSH, one killed and one cut off, compared with the same run on this machine.

    python -m chaos.nodes                         30 subtasks on two hosts
    python -m chaos.nodes --subtasks 120 --hosts 3

Hosts are network namespaces with an OpenSSH server each, created here and removed at the end. Requires root,
`openssh-server` and `iproute2`. The first host is killed while it works, then the last one loses its link for 20
seconds. Figures are wall times of a machine that runs all of it.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from json import dumps
from pathlib import Path

from chaos.ssh_server import SSHD, make_keys, write_configuration
from fleet.core.state.state import RunState
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, progress, temporary_folder

LEASE_S = 10.0
CUT_S = 20.0
PATIENCE_S = 600.0
POLL_S = 0.05
WORK = 'sh -c \'sleep 3; echo "$1" >"$1.txt"\' sh {id}'
SSH = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"


def run(*argv: str, at: Path | None = None, ok: bool = True, **more: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **more}
    done = subprocess.run(argv, cwd=at, env=env, capture_output=True, text=True, check=False)
    if ok and done.returncode:
        raise SystemExit(f"{shlex.join(argv)}: {done.stderr or done.stdout}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Host:
    """A network namespace with an SSH server."""

    name: str
    number: int
    folder: Path

    @property
    def namespace(self) -> str:
        return f"fleet-{self.name}"

    @property
    def table(self) -> str:
        """Return the host's part of the configuration."""
        node = f"{shlex.quote(sys.executable)} -m fleet node --stdio --config {self.folder}/{self.name}.toml"
        command = self.over_ssh(f"cd {Path.cwd()} '&&' {node}")
        return f"[nodes.{self.name}]\ncommand = {dumps(command)}\nworkers = 5\nlease_s = {LEASE_S}\n"

    def over_ssh(self, command: str) -> str:
        """The command line that runs a command on it."""
        return f"ssh -i {self.folder}/user-key {SSH} root@10.77.{self.number}.2 {command}"

    @contextmanager
    def opened(self) -> Iterator[None]:
        folder, namespace, device = self.folder, self.namespace, f"fl-{self.name}"
        (folder / f"{self.name}.toml").write_text(f'[state]\ndir = "{folder}/{self.name}"\n', encoding="utf-8")
        file = write_configuration(folder, self.name)
        run("ip", "netns", "add", namespace)
        try:
            run("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            run("ip", "addr", "add", f"10.77.{self.number}.1/24", "dev", device)
            run("ip", "link", "set", device, "up")
            run("ip", "-n", namespace, "addr", "add", f"10.77.{self.number}.2/24", "dev", "eth0")
            run("ip", "-n", namespace, "link", "set", "lo", "up")
            self.set_link("up")
            run("ip", "netns", "exec", namespace, SSHD, "-f", str(file), "-E", f"{folder}/{self.name}.log")
            yield
        finally:
            self.kill()
            run("ip", "link", "del", device, ok=False)
            run("ip", "netns", "del", namespace, ok=False)

    def set_link(self, state: str) -> None:
        run("ip", "-n", self.namespace, "link", "set", "eth0", state)

    @property
    def processes(self) -> list[int]:
        return [int(pid) for pid in run("ip", "netns", "pids", self.namespace, ok=False).split()]

    def kill(self) -> None:
        """End everything on it, as a power cut would."""
        for pid in self.processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Trial:
    """A repository and a plan, and runs of it."""

    folder: Path
    ids: tuple[str, ...]

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    def make(self) -> None:
        self.repository.mkdir()
        run("git", "init", "--quiet", "-b", "main", at=self.repository)
        for number in range(100):
            (self.repository / f"file-{number}").write_text(f"{number}\n", encoding="utf-8")
        run("git", "add", ".", at=self.repository)
        person = ("-c", "user.name=a", "-c", "user.email=a@b")
        run("git", *person, "commit", "--quiet", "-m", "start", at=self.repository)
        subtasks = [
            {
                "id": id_,
                "title": f"Make {id_}",
                "goal": "g",
                "worker": "step",
                "touches": [f"{id_}.txt"],
                "acceptance": [{"criterion": "made", "run": f"test -f {id_}.txt"}],
            }
            for id_ in self.ids
        ]
        (self.folder / "plan.json").write_text(dumps({"goal": "steps", "subtasks": subtasks}), encoding="utf-8")

    def start(self, name: str, nodes: str, workers: int, **more: str) -> "subprocess.Popen[bytes]":
        config = self.folder / f"{name}.toml"
        config.write_text(f'[workers.step]\nkind = "command"\ncommand = {dumps(WORK)}\n{nodes}', encoding="utf-8")
        options = (
            "--name",
            name,
            "--config",
            str(config),
            "--workers",
            str(workers),
            "--base-url",
            "http://127.0.0.1:9",
        )
        return self._begin(name, "run", "--plan", str(self.folder / "plan.json"), *options, **more)

    def resume(self, name: str, **more: str) -> "subprocess.Popen[bytes]":
        return self._begin(name, "resume", name, **more)

    def _begin(self, name: str, *words: str, **more: str) -> "subprocess.Popen[bytes]":
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "FLEET_STATE_DIR": str(self.folder / "state")}
        env |= {"PYTHONPATH": str(Path.cwd()), **more}
        argv = [sys.executable, "-m", "fleet", *words]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(argv, cwd=self.repository, env=env, stdout=log, stderr=log)

    def state(self, name: str) -> RunState:
        return RunFolder(self.folder / "state" / "runs" / name).state()

    def wait(self, true: Callable[[], bool], what: str, process: "subprocess.Popen[bytes]") -> float:
        """Seconds until something is so in the run on nodes. Ends the program where it never is."""
        started = time.monotonic()
        while not true():
            if process.poll() is not None or time.monotonic() - started > PATIENCE_S:
                raise SystemExit(f"it did not happen: {what}\n{self.log('nodes')[:3000]}")
            time.sleep(POLL_S)
        return time.monotonic() - started

    def works(self, node: str) -> bool:
        """Whether an attempt of the run has begun on a node and not ended."""
        try:
            subtasks = self.state("nodes").subtasks.values()
        except FleetError:  # it has no journal yet
            return False
        last = [each.attempts[-1] for each in subtasks if each.attempts]
        return any(attempt.working and attempt.node == node for attempt in last)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def tree(self, name: str) -> str:
        return run("git", "rev-parse", f"fleet/{name}^{{tree}}", at=self.repository)

    def landed(self, name: str) -> list[str]:
        listed = run(
            "git", "log", "--format=%(trailers:key=Fleet-Task,valueonly)", f"main..fleet/{name}", at=self.repository
        )
        return listed.split()


def trial(folder: Path, subtasks: int, hosts: int, table: Table) -> None:
    there = Trial(folder, tuple(f"s{number:03}" for number in range(subtasks)))
    there.make()
    make_keys(folder)
    with ExitStack() as stack:
        machines = [Host(f"h{number}", number, folder) for number in range(1, hosts + 1)]
        for host in machines:
            stack.enter_context(host.opened())
        process = there.start("nodes", "".join(host.table for host in machines), 5 * hosts)
        there.wait(lambda: there.works("h1"), "the first host works", process)
        progress("one host is killed")
        machines[0].kill()
        lost = "node h1 is unavailable"
        killed_s = there.wait(lambda: lost in there.log("nodes"), "the killed host is noticed", process)
        last = machines[-1]
        there.wait(lambda: there.works(last.name), "the last host works", process)
        progress("another one loses its link")
        last.set_link("down")
        cut = f"node {last.name} is unavailable: the node did not respond"
        cut_s = there.wait(lambda: cut in there.log("nodes"), "the link that was cut is noticed", process)
        time.sleep(max(CUT_S - cut_s, 0))
        last.set_link("up")
        code = process.wait(PATIENCE_S)
        there.start("here", "", 5 * hosts).wait(PATIENCE_S)
        left = {host.name: len(host.processes) for host in machines[1:]}
    state, landed = there.state("nodes"), there.landed("nodes")
    where = f"{hosts} hosts"
    counted = sum(each.counted for each in state.subtasks.values())
    table.add(
        Figure("exit code of the run", where, code, wanted=0),
        Figure("subtasks that landed", where, len(set(landed)), wanted=subtasks, at_least=True),
        Figure("commits of a subtask that landed before", where, len(landed) - len(set(landed)), wanted=0),
        Figure(
            "the tree differs from that of a run on this machine alone",
            where,
            int(there.tree("nodes") != there.tree("here")),
            wanted=0,
        ),
        Figure("attempts used up", where, counted, wanted=0),
        Figure("seconds until a killed host was noticed", where, killed_s, wanted=2.0),
        Figure("seconds until a cut link was noticed", where, cut_s, wanted=LEASE_S + 2),
        Figure(
            "processes left on hosts that live, but for their SSH servers",
            where,
            sum(left.values()) - len(left),
            wanted=0,
        ),
    )


def main() -> int:
    parser = command_line("chaos.nodes", __doc__)
    parser.add_argument("--subtasks", type=int, default=30)
    parser.add_argument("--hosts", type=int, default=2)
    args = parser.parse_args()
    table = Table("a run on nodes over SSH: one host killed, one cut off")
    with temporary_folder() as folder:
        trial(folder, args.subtasks, args.hosts, table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
