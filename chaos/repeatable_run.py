"""A run that can be started repeatedly from the same state, by engines that may be killed.

The state before the first engine is kept as a template on disk. Each engine is a process forked from this interpreter,
which has imported everything and has no threads, so that an engine only costs a fork and its work.
"""

import gc
import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import anyio

from chaos.scenarios import CallLog, Scenario, scripted_agents
from fleet.app import fleet as app
from fleet.app.fleet import Fleet, Order
from fleet.config.load import Loaded, load_config
from fleet.config.schema import Config
from fleet.core.base.ids import RunId
from fleet.core.state.state import RunState
from fleet.runs.crash_points import listening
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.worktrees.conftest import fingerprint, git, make_repository
from worktrees.sandbox.overlay_mount import manager_of
from worktrees.store.store import home_of
from worktrees.target.target import inspect

RUN = RunId("r")
ENGINE_TIMEOUT_S = 60.0
LEASED = "a worktree is leased"
KILLED, ENDED, FAILED, HUNG = "killed", "ended", "failed", "hung"
Patch = Callable[[], None]
KillPoint = tuple[str, int]
"""The name of a crash point, empty for any, and which of them, counted from 1."""


@dataclass(frozen=True)
class RepeatableRun:
    """A run of a scenario below `path`. Engines write to `current`, and `template` is the initial state."""

    path: Path
    scenario: Scenario
    sandbox: str = "none"
    lease: str = "auto"
    workers: int = 16

    @property
    def current(self) -> Path:
        return self.path / "current"

    @property
    def template(self) -> Path:
        return self.path / "template"

    @property
    def repository(self) -> Path:
        return self.current / "work"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.current / "state" / "runs" / RUN)

    @property
    def calls(self) -> Path:
        """The log of model calls."""
        return self.current / "calls"

    @property
    def points(self) -> Path:
        """The crash points that each engine reached."""
        return self.current / "points"

    @property
    def engines(self) -> Path:
        """The process id of each engine."""
        return self.current / "engines"

    @property
    def orphans(self) -> Path:
        """For each engine, how many processes of earlier ones were running when it leased its first worktree."""
        return self.current / "orphans"

    @property
    def config(self) -> Config:
        flags = {
            "state.dir": str(self.current / "state"),
            "run.workers": self.workers,
            "box.sandbox": self.sandbox,
            "box.commands": 2 * self.workers,
            "worktrees.lease": self.lease,
            "checks.gate": self.scenario.gate,
            "planner.settle_s": 0.0,
            "limits.backoff_first_s": 0.001,
            "limits.backoff_cap_s": 0.002,
            "limits.answer_wait_minutes": 0.0,
            "models.base_url": "http://127.0.0.1:9",
        }
        return load_config(environ={}, user_file=None, flags=flags).config

    # ---- the template

    def build(self) -> dict[str, str]:
        """Create a repository and a run without an engine. Return the fingerprint of unchangeable parts."""
        shutil.rmtree(self.path, ignore_errors=True)
        make_repository(self.repository, dict(self.scenario.files))
        (self.repository / "README.md").write_text("changed, not committed\n")
        git(self.repository, "stash", "--quiet")
        (self.repository / "README.md").write_text("staged\n")
        git(self.repository, "add", "README.md")
        (self.repository / "untracked").write_text("mine\n")
        anyio.run(self._create)
        shutil.copytree(self.current, self.template, symlinks=True)
        gc.collect()
        gc.freeze()  # engines then never scan, and so never copy, the memory of everything imported here
        return fingerprint(self.repository)

    async def _create(self) -> None:
        fleet = Fleet(Loaded(self.config, {}), {})
        target = await inspect(self.repository, None)
        started = fleet._started(Order(goal="Write", repository=self.repository), target, RUN, simulated=True)
        self.folder.path.mkdir(parents=True)
        with Journal.create(self.folder.journal) as journal:
            journal.append([started])

    def reset(self) -> None:
        shutil.rmtree(self.current, ignore_errors=True)
        shutil.copytree(self.template, self.current, symlinks=True)

    # ---- engines

    def run_engine(self, number: int, *, kill_at: KillPoint | None = None, patch: Patch | None = None) -> str:
        """Run an engine to its end or to the point at which it is killed. Returns how it ended."""
        return self._wait(self.start_engine(number, kill_at=kill_at, patch=patch))

    def start_engine(self, number: int, *, kill_at: KillPoint | None = None, patch: Patch | None = None) -> int:
        """Fork an engine. Returns its process id."""
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                self._run_in_child(number, kill_at, patch)
                code = 0
            except BaseException:  # noqa: BLE001 - the parent reads the exit code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        return pid

    def _run_in_child(self, number: int, kill_at: KillPoint | None, patch: Patch | None) -> None:
        with self.engines.open("a") as file:
            file.write(f"{number} {os.getpid()}\n")
        log = os.open(self.current / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if patch is not None:
            patch()
        points = os.open(self.points, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        count = Counter[str]()

        def listener(name: str) -> None:
            count.update((name, ""))
            if name == LEASED and count[name] == 1:
                self._count_orphans(number)
            os.write(points, f"{number} {count['']} {name}\n".encode())
            if kill_at in {("", count[""]), (name, count[name])}:
                os.kill(os.getpid(), signal.SIGKILL)

        with listening(listener):
            anyio.run(self._run, number)

    def _count_orphans(self, number: int) -> None:
        earlier = {int(line.split()[1]) for line in self.engines.read_text().splitlines()} - {os.getpid()}
        orphans = [pid for pid in processes_of(earlier) if pid != os.getpid()]
        with self.orphans.open("a") as file:
            file.write(f"{number} {len(orphans)}\n")

    async def _run(self, number: int) -> RunState:
        agents = scripted_agents(self.scenario, CallLog(self.calls, number))
        setattr(app, "open_agents", agents)  # noqa: B010 - the module does not export it
        return await Fleet(Loaded(self.config, {}), {}).run(self.folder, stop=anyio.CancelScope())

    def _wait(self, pid: int) -> str:
        deadline = time.monotonic() + ENGINE_TIMEOUT_S
        pidfd = os.pidfd_open(pid)
        try:
            select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(pidfd)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return HUNG
        if os.WIFSIGNALED(status):
            return KILLED
        return ENDED if os.WEXITSTATUS(status) == 0 else FAILED

    # ---- results

    def state(self) -> RunState:
        return self.folder.state()

    def store(self) -> Path:
        target = anyio.run(inspect, self.repository, None)
        return home_of(self.current / "state", target)

    def pinned_attempts(self) -> list[str]:
        """Finished attempts that have a ref, as SUBTASK/NUMBER."""
        refs = (self.current / "state" / "stores").glob(f"*/fleet.git/refs/fleet/{RUN}/attempts/*/*")
        return [f"{path.parent.name}/{path.name}" for path in refs if not path.name.endswith(".lock")]

    def log(self) -> str:
        return (self.current / "log").read_text(errors="replace")[-3000:]


def processes_of(managers: Collection[int]) -> list[int]:
    """The processes whose ownership tag names one of these managers."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if (manager := manager_of(pid)) is not None and manager.pid in managers]
