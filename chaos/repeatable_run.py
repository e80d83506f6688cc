"""One run that can be lived through many times: a template on disk, and lives in forked processes that may be killed.

The interpreter that forks has imported everything and runs no thread, so that a life costs a fork and its work.
"""

import os
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from fleet import app
from fleet.app import Fleet, Order
from fleet.config import Loaded
from fleet.core.state import RunState
from fleet.folders import RunFolder
from fleet.journal import Journal
from fleet.points import told
from fleet.settings import Box, Checks, Config, Limits, Models, Planner, Run, State, Worktrees
from tests.chaos.scenarios import Calls, Scenario, minds_of
from tests.worktrees.conftest import fingerprint, git, make_repository
from worktrees.marks import manager_of
from worktrees.store import home_of
from worktrees.target import inspect

RUN = "r"
LIFE_S = 60.0
BEGINS = "a worktree is leased"
KILLED, ENDED, BROKEN = "killed", "ended", "broken"
Patch = Callable[[], None]
At = tuple[str, int]
"""A name of points, or nothing for any, and which of them: the first is 1."""


@dataclass(frozen=True)
class Room:
    """Where a scenario is played: `play` is what lives write to, `template` how it was before the first."""

    path: Path
    scenario: Scenario
    sandbox: str = "none"
    lease: str = "auto"
    workers: int = 16

    @property
    def play(self) -> Path:
        return self.path / "play"

    @property
    def repository(self) -> Path:
        return self.play / "work"

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.play / "state" / "runs" / RUN)

    @property
    def calls(self) -> Path:
        return self.play / "calls"

    @property
    def points(self) -> Path:
        return self.play / "points"

    @property
    def orphans(self) -> Path:
        """For each life, how many processes of earlier ones there were when the first work of it was to begin."""
        return self.play / "orphans"

    @property
    def config(self) -> Config:
        return Config(
            state=State(dir=str(self.play / "state")),
            run=Run(workers=self.workers),
            box=Box.model_validate({"sandbox": self.sandbox, "commands": 2 * self.workers}),
            worktrees=Worktrees.model_validate({"lease": self.lease}),
            checks=Checks(gate=self.scenario.gate),
            planner=Planner(settle_s=0.0),
            limits=Limits(backoff_first_s=0.001, backoff_cap_s=0.002, answer_wait_minutes=0.0),
            models=Models(base_url="http://127.0.0.1:9"),
        )

    # ---- the template

    def build(self) -> dict[str, str]:
        """A repository and a run that nothing has worked on; returns what of the user's must stay as it is."""
        shutil.rmtree(self.path, ignore_errors=True)
        make_repository(self.repository, dict(self.scenario.files))
        (self.repository / "README.md").write_text("changed, not committed\n")
        git(self.repository, "stash", "--quiet")
        (self.repository / "README.md").write_text("staged\n")
        git(self.repository, "add", "README.md")
        (self.repository / "untracked").write_text("mine\n")
        anyio.run(self._begin)
        shutil.copytree(self.play, self.path / "template", symlinks=True)
        return fingerprint(self.repository)

    async def _begin(self) -> None:
        fleet = Fleet(Loaded(self.config, {}), {})
        target = await inspect(self.repository, None)
        started = fleet._started(Order(goal="Write", repository=self.repository), target, RUN, simulated=True)
        self.folder.path.mkdir(parents=True)
        with Journal.create(self.folder.journal) as journal:
            journal.append([started])

    def reset(self) -> None:
        shutil.rmtree(self.play, ignore_errors=True)
        shutil.copytree(self.path / "template", self.play, symlinks=True)

    # ---- lives

    def live(self, life: int, *, kill_at: At | None = None, patch: Patch | None = None) -> str:
        """One life of the run, to its end or to the n-th point it reaches, of all or of those of one name."""
        return self._wait(self.begin(life, kill_at=kill_at, patch=patch))

    def begin(self, life: int, *, kill_at: At | None = None, patch: Patch | None = None) -> int:
        """The process that lives it."""
        pid = os.fork()
        if pid == 0:
            code = 3
            try:
                self._child(life, kill_at, patch)
                code = 0
            except BaseException:  # noqa: BLE001 - the parent is told by the exit code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        return pid

    def _child(self, life: int, kill_at: At | None, patch: Patch | None) -> None:
        with self.lives.open("a") as file:
            file.write(f"{life} {os.getpid()}\n")
        log = os.open(self.play / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if patch is not None:
            patch()
        points = os.open(self.points, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        count = Counter[str]()

        def listener(name: str) -> None:
            count.update((name, ""))
            if name == BEGINS and count[name] == 1:
                self._look_for_orphans(life)
            os.write(points, f"{life} {count['']} {name}\n".encode())
            if kill_at in {("", count[""]), (name, count[name])}:
                os.kill(os.getpid(), signal.SIGKILL)

        with told(listener):
            anyio.run(self._life, life)

    def _look_for_orphans(self, life: int) -> None:
        dead = {int(line.split()[1]) for line in self.lives.read_text().splitlines()} - {os.getpid()}
        found = [pid for pid in left_by(dead) if pid != os.getpid()]
        with self.orphans.open("a") as file:
            file.write(f"{life} {len(found)}\n")

    async def _life(self, life: int) -> RunState:
        setattr(app, "open_minds", minds_of(self.scenario, Calls(self.calls, life)))  # noqa: B010 - it is not theirs to export
        return await Fleet(Loaded(self.config, {}), {}).run(self.folder, stop=anyio.CancelScope())

    def _wait(self, pid: int) -> str:
        until = time.monotonic() + LIFE_S
        pidfd = os.pidfd_open(pid)
        try:
            select.select([pidfd], [], [], max(0.0, until - time.monotonic()))
        finally:
            os.close(pidfd)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done == 0:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "endless"
        if os.WIFSIGNALED(status):
            return KILLED
        return ENDED if os.WEXITSTATUS(status) == 0 else BROKEN

    # ---- what is left

    @property
    def lives(self) -> Path:
        return self.play / "lives"

    def state(self) -> RunState:
        return self.folder.state()

    def store(self) -> Path:
        target = anyio.run(inspect, self.repository, None)
        return home_of(self.play / "state", target)

    def attempts(self) -> list[str]:
        """The refs that pin finished attempts."""
        found = (self.play / "state" / "stores").glob(f"*/fleet.git/refs/fleet/{RUN}/attempts/*/*")
        return [f"{path.parent.name}/{path.name}" for path in found if not path.name.endswith(".lock")]

    def log(self) -> str:
        return (self.play / "log").read_text(errors="replace")[-3000:]


@contextmanager
def in_memory(prefix: str) -> Iterator[Path]:
    """A folder that costs no disk, where there is that."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
    with TemporaryDirectory(prefix=prefix, dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True) as at:
        yield Path(at)


def left_by(managers: Collection[int]) -> list[int]:
    """The processes that carry the mark of one of these."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if (manager := manager_of(pid)) is not None and manager.pid in managers]
