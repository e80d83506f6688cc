"""The basis of the end-to-end tests: `fleet` as a child with a clean environment, small repositories, scripts.

Everything is real but the model. How a run works is not known here, only how to start one and how to look at it.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from fleet.core.state.state import RunState
from fleet.errors import FleetError
from fleet.runs.run_folder import RunFolder
from tests.e2e.warm import WarmProcess, can_be_warm, end_of_fleet, start_fleet
from tests.worktrees.conftest import fingerprint, git

Json = dict[str, Any]
Found = TypeVar("Found")

PATIENCE_S = 300.0
"""How long anything may take that should happen; a machine with much to do is slow, not wrong."""
KEY_NAME, KEY = "STAGE_KEY", "stage-key-7f3a"
BRISK = {
    "FLEET_PLANNER_SETTLE_S": "0.1",
    "FLEET_LIMITS_BACKOFF_FIRST_S": "0.05",
    "FLEET_LIMITS_BACKOFF_CAP_S": "0.2",
    "FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.5",
    "FLEET_MODELS_API_KEY_ENV": KEY_NAME,
}


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    command: str
    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def ended(self, code: int) -> "Done":
        """Itself, if it ended with this exit code and without a traceback."""
        assert "Traceback" not in self.output, self._report()
        assert self.code == code, self._report()
        return self

    def says(self, *parts: str) -> "Done":
        for part in parts:
            assert part in self.output, f"{part!r} is not in:\n{self._report()}"
        return self

    def _report(self) -> str:
        return f"$ {self.command}\nexit code {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Stage:
    """A state directory and a home of their own, and `fleet` in them."""

    room: Path
    more: Mapping[str, str] = field(default_factory=dict)
    run_name: str = field(default_factory=lambda: f"r-{token_hex(3)}")
    """For runs whose processes are looked for: no other test's run is called like that."""

    @property
    def state(self) -> Path:
        return Path(self.environment["FLEET_STATE_DIR"])

    @property
    def environment(self) -> dict[str, str]:
        """All that a child is given: nothing of the person who runs the tests."""
        home = self.room / "home"
        home.mkdir(exist_ok=True)
        ours = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "NO_COLOR": "1"}
        here = {"FLEET_STATE_DIR": str(self.room / "state"), KEY_NAME: KEY}
        return ours | BRISK | here | dict(self.more)

    def with_(self, **more: str) -> "Stage":
        return replace(self, more={**self.more, **more})

    def without(self, name: str) -> "Stage":
        """An empty variable is as good as none."""
        return self.with_(**{name: ""})

    def fleet(self, *arguments: str, at: Path | None = None, given: str | bytes = b"") -> Done:
        """A verb, to its end."""
        if not can_be_warm(self.environment):
            return self.run([sys.executable, "-m", "fleet", *arguments], at=at, given=given)
        typed = given.encode() if isinstance(given, str) else given
        done = end_of_fleet(
            *arguments, cwd=at or self.room, environment=self.environment, given=typed, limit_s=PATIENCE_S
        )
        return Done(" ".join(("fleet", *arguments)), done.returncode, done.stdout, done.stderr)

    def start(
        self, *arguments: str, streams: tuple[int, int, int], at: Path | None = None, **more: str
    ) -> "WarmProcess | subprocess.Popen[bytes]":
        """A verb in a process group of its own: a fork of a warm interpreter where that is the same."""
        environment, folder = self.environment | more, at or self.room
        if can_be_warm(environment):
            return start_fleet(*arguments, cwd=folder, environment=environment, streams=streams, new_session=True)
        stdin, out, err = streams
        return subprocess.Popen(
            [sys.executable, "-m", "fleet", *arguments],
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )

    def run(self, command: Sequence[str], *, at: Path | None = None, given: str | bytes = b"") -> Done:
        done = subprocess.run(
            command,
            cwd=at or self.room,
            env=self.environment,
            input=given.encode() if isinstance(given, str) else given,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return Done(" ".join(command), done.returncode, out, err)

    @contextmanager
    def going(self, *arguments: str, at: Path | None = None) -> Iterator["Going"]:
        """A verb that runs while the block lasts, in a process group of its own."""
        log = self.room / f"{arguments[0]}-{time.monotonic_ns()}.log"
        with log.open("wb") as file, Path(os.devnull).open("rb") as nothing:
            process = self.start(*arguments, at=at, streams=(nothing.fileno(), file.fileno(), file.fileno()))
        try:
            yield Going(process, " ".join(("fleet", *arguments)), log)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    # ---- looking

    @property
    def runs(self) -> list[str]:
        folder = self.state / "runs"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def folder(self, run: str) -> RunFolder:
        return RunFolder(self.state / "runs" / run)

    def look(self, run: str) -> RunState | None:
        """The state of a run; None while there is none."""
        try:
            return self.folder(run).state()
        except FleetError:
            return None

    def wait(self, run: str, until: Callable[[RunState], object], going: "Going | None" = None) -> RunState:
        """The first state of a run that is seen to be as wanted."""

        def wanted() -> RunState | None:
            state = self.look(run)
            return state if state is not None and until(state) else None

        return wait_for(wanted, going)

    def status(self, run: str) -> Json:
        view: Json = self.fleet("status", run, "--json").ended(0).json
        return view

    def kill_engines(self) -> None:
        """End every run that still has an engine: a test that failed leaves none behind."""
        for run in self.runs:
            holder = self.folder(run).holder
            if holder is not None:
                with suppress(ProcessLookupError):
                    os.kill(holder.pid, signal.SIGKILL)

    def nothing_is_alive(self, run: str) -> None:
        """No process of a run, no lock held."""
        wait_for(lambda: not marked(run))
        wait_for(lambda: not self.folder(run).alive)

    def nothing_runs(self, run: str) -> None:
        """No process of a run, no worktree, no lock held."""
        self.nothing_is_alive(run)
        for store in (self.state / "stores").glob("*/fleet.git"):
            listed = git(store, "worktree", "list", "--porcelain").split("\n\n")
            assert len(listed) == 1, listed
            assert [path.name for path in (store.parent / "slots").iterdir() if path.is_dir()] == []
            assert list(store.rglob("*.lock")) == []


@dataclass(frozen=True)
class Going:
    """A verb that is at it."""

    process: WarmProcess | subprocess.Popen[bytes]
    command: str
    log: Path

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """As a power cut would: no last word."""
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def done(self) -> Done:
        """Wait for its end."""
        code = self.process.wait(PATIENCE_S)
        return Done(self.command, code, self.output, "")

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def wait_for(look: Callable[[], Found | None], going: Going | None = None) -> Found:
    """What `look` finds in the end. A process that was to bring it about must not end before."""
    until = time.monotonic() + PATIENCE_S
    while True:
        over = going is not None and going.process.poll() is not None
        found = look()
        if found:
            return found
        assert not over, f"it ended before that:\n{going.output if going else ''}"
        assert time.monotonic() < until, f"it did not happen:\n{going.output if going else ''}"
        time.sleep(0.02)


def marked(run: str) -> list[int]:
    """The processes that carry the mark of a run's boxes."""
    mark = re.compile(rb"FLEET_BOX=[0-9.]+/" + re.escape(run.encode()) + rb"/")
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if any(mark.match(entry) for entry in path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return found


def program(pid: int) -> str:
    """What a process runs; nothing once it is over."""
    try:
        return Path("/proc", str(pid), "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


# ---- repositories ---------------------------------------------------------------------------------------------------


def landed(repository: Path, run: str, base: str = "main") -> list[str]:
    """The subtasks on a result branch, as the trailers of its commits name them, the first one first."""
    names = git(repository, "log", "--reverse", "--format=%(trailers:key=Fleet-Task,valueonly)", f"{base}..fleet/{run}")
    return names.split()


def content(repository: Path, run: str, path: str) -> str:
    return git(repository, "show", f"fleet/{run}:{path}")


@contextmanager
def untouched(repository: Path) -> Iterator[None]:
    """Nothing of the user's changes meanwhile: HEAD, index, stash, config, hooks, files, every ref but the fleet's."""
    before = fingerprint(repository)
    yield
    after = fingerprint(repository)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()


# ---- plans and scripts ----------------------------------------------------------------------------------------------


def subtask(id_: str, *needs: str, run: str | None = None, **more: Any) -> Json:
    """Write a line of text into a file that is not there yet."""
    return {
        "id": id_,
        "title": f"Write {id_}",
        "goal": f"Write `{id_}` into {id_}.txt.",
        "acceptance": [{"criterion": f"{id_} is written", "run": run or f"grep -qx {id_} {id_}.txt"}],
        "touches": [f"{id_}.txt"],
        "depends_on": list(needs),
        **more,
    }


def solve(id_: str, **more: Any) -> Json:
    return {"do": "solve", "files": {f"{id_}.txt": f"{id_}\n"}, **more}


def wrong(id_: str) -> Json:
    return {"do": "wrong", "files": {f"{id_}.txt": "something else\n"}}


def script(*subtasks: Json, steps: Sequence[Json] = (), workers: Mapping[str, Any] | None = None, **more: Any) -> Json:
    """A planner that plans these subtasks, and workers that solve what has no script of its own."""
    played: Json = {one["id"]: [solve(one["id"])] for one in subtasks} | dict(workers or {})
    start = {"when": {"start": True}, "revision": {"assessment": "This is what is to be done.", "add": list(subtasks)}}
    return {
        "planner": {"steps": [start, *steps], "synthesis": "All of it is written."},
        "workers": {name: {"attempts": attempts} for name, attempts in played.items()},
        **more,
    }
