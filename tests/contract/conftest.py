"""One suite for every kind of worker: the same story, told to each in its own way, at a real desk in a real box."""

import json
import shlex
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from agents.minds import open_minds
from agents.settings import WorkerSettings
from fleet.core.facts import Failure, Report
from fleet.core.plan import Criterion, Subtask
from fleet.ports import Desk, Extras, WorkerBrief
from tests.agents.conftest import SEEDED, Purse, Script, model, no_environment, says, settings_for, use
from tests.worktrees.conftest import make_repository, python_shown, tmp_path
from worktrees.settings import HandSettings
from worktrees.target import inspect
from worktrees.workshop import open_workshop

__all__ = ["model", "no_environment", "tmp_path"]  # fixtures of others

Json = dict[str, Any]
RUN = f"r-{token_hex(3)}"
"""Processes are looked for by it: no other test's run is called like that."""
SECRET = "tool-key-0123456789"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Rig:
    """How one kind is made to report something, to do something first, or to hang."""

    kind: str
    model: Script
    room: Path
    own: Json = field(default_factory=dict)
    real: Path | None = None
    """The program itself, where a kind has one that the tests otherwise stand in for."""

    def reports(self, said: Json | str, *, first: str = "") -> None:
        """The worker will run `first`, where its kind can run anything, and report this."""
        raise NotImplementedError

    def hangs(self, command: str) -> None:
        """The worker will run a command that does not end."""
        raise NotImplementedError

    @property
    def runs_commands(self) -> bool:
        return True

    @property
    def settings(self) -> WorkerSettings:
        return WorkerSettings(kind=self.kind, **self.own)


class ApiRig(Rig):
    """A kind that talks to a model: the model is told what to say."""

    @property
    def runs_commands(self) -> bool:
        return self.kind not in {"writer", "retriever"}

    def reports(self, said: Json | str, *, first: str = "") -> None:
        turns = [says(use("bash", {"command": first}))] if first and self.runs_commands else []
        last = use("report", raw=said) if isinstance(said, str) else use("report", said)
        self.model.will(*turns, says(last))

    def hangs(self, command: str) -> None:
        self.model.will(says(use("bash", {"command": command})))


class RetrieverRig(ApiRig):
    """Needs somebody it may ask."""

    @property
    def settings(self) -> WorkerSettings:
        return WorkerSettings(**{"kind": self.kind, "hosts": ("docs.example.org",), **self.own})


class CommandRig(Rig):
    """A kind that is a program: a script that says it."""

    def reports(self, said: Json | str, *, first: str = "") -> None:
        text = said if isinstance(said, str) else json.dumps(said)
        self._script(f'{first}\nprintf %s {shlex.quote(text)} > "$FLEET_REPORT"')

    def hangs(self, command: str) -> None:
        self._script(command)

    def _script(self, text: str) -> None:
        self.own = {"command": ("sh", "-c", text), **self.own}


def stand_in(folder: Path) -> Path:
    """A program that speaks as `claude` does, in a folder of its own, since the box is shown all of that."""
    file = folder / "claude"
    folder.mkdir(exist_ok=True)
    text = Path(__file__).with_name("stand_in.py").read_text()
    file.write_text(f"#!{sys.executable} -I\n{text}")
    file.chmod(0o755)
    return file


class ClaudeCodeRig(Rig):
    """A session of Claude Code: what the model says is the same, its tools have other names."""

    @property
    def settings(self) -> WorkerSettings:
        given = self.own.get("extras", Extras())
        shown = replace(given, read_only=(*given.read_only, *map(str, python_shown())))
        return WorkerSettings(**{"kind": self.kind, "command": (str(self.program()),), **self.own, "extras": shown})

    def program(self) -> Path:
        """The real one where it was named, else the stand-in."""
        return self.real or stand_in(self.room / "claude code")

    def reports(self, said: Json | str, *, first: str = "") -> None:
        turns = [says(use("Bash", {"command": first}))] if first else []
        name = "StructuredOutput"
        last = use(name, raw=said, id="toolu_2") if isinstance(said, str) else use(name, said, id="toolu_2")
        self.model.will(*turns, says(last))

    def hangs(self, command: str) -> None:
        self.model.will(says(use("Bash", {"command": command})))


RIGS: dict[str, type[Rig]] = {
    "coder": ApiRig,
    "writer": ApiRig,
    "retriever": RetrieverRig,
    "processor": ApiRig,
    "command": CommandRig,
    "claude-code": ClaudeCodeRig,
}


@dataclass
class Stand:
    """A worker of one kind at its desk."""

    rig: Rig
    desk: Desk
    purse: Purse
    room: Path
    brief: WorkerBrief

    async def works(self, brief: WorkerBrief | None = None) -> Report | Failure:
        settings = settings_for(self.rig.model, self.room, workers={"it": self.rig.settings})
        async with open_minds(settings, chance=SEEDED) as minds:
            return await minds.workers["it"].run(brief or self.brief, self.desk, self.purse)

    @property
    def transcript(self) -> str:
        return (self.room / "transcripts" / "greet.1.jsonl").read_text()


OpenStand = Callable[[str], AbstractAsyncContextManager[Stand]]


@pytest.fixture
def brief() -> WorkerBrief:
    check = Criterion(criterion="greets", run="test -f hello.txt")
    spec = Subtask(id="greet", title="Greet", goal="Write hello.txt", acceptance=(check,), touches=("hello.txt",))
    return WorkerBrief(run=RUN, subtask=spec, attempt=1, model=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--claude-code", type=Path, help="the real program, for a stand-in's place")


@pytest.fixture
def real_claude_code(request: pytest.FixtureRequest) -> Path | None:
    """Named by `make claude-code`; elsewhere there is none, and nobody looks for one."""
    named: Path | None = request.config.getoption("--claude-code", default=None)
    return named.resolve() if named else None


@pytest.fixture
def open_stand(tmp_path: Path, model: Script, brief: WorkerBrief, real_claude_code: Path | None) -> OpenStand:
    """Opens one; the desk goes when the block ends."""

    @asynccontextmanager
    async def opened(kind: str) -> AsyncIterator[Stand]:
        target = await inspect(make_repository(tmp_path / "project"))
        hands = HandSettings(state_dir=tmp_path / "state")
        async with open_workshop(target, hands, RUN, target.base) as workshop, workshop.lease(target.base) as lease:
            yield Stand(RIGS[kind](kind, model, tmp_path, real=real_claude_code), lease.desk, Purse(), tmp_path, brief)

    return opened
