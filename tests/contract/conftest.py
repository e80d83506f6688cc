"""One suite for every kind of worker: the same story, told to each in its own way, at a real desk in a real box."""

import json
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from agents.minds import open_minds
from agents.settings import WorkerSettings
from fleet.core.facts import Failure, Report
from fleet.core.plan import Criterion, Subtask
from fleet.ports import Desk, WorkerBrief
from tests.agents.conftest import SEEDED, Purse, Script, model, no_environment, says, settings_for, use
from tests.worktrees.conftest import make_repository, tmp_path
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
        return self.kind in {"coder", "processor"}

    def reports(self, said: Json | str, *, first: str = "") -> None:
        turns = [says(use("bash", {"command": first}))] if first and self.runs_commands else []
        last = use("report", raw=said) if isinstance(said, str) else use("report", said)
        self.model.will(*turns, says(last))

    def hangs(self, command: str) -> None:
        self.model.will(says(use("bash", {"command": command})))


class CommandRig(Rig):
    """A kind that is a program: a script that says it."""

    def reports(self, said: Json | str, *, first: str = "") -> None:
        text = said if isinstance(said, str) else json.dumps(said)
        self._script(f'{first}\nprintf %s {shlex.quote(text)} > "$FLEET_REPORT"')

    def hangs(self, command: str) -> None:
        self._script(command)

    def _script(self, text: str) -> None:
        self.own = {"command": ("sh", "-c", text), **self.own}


RIGS: dict[str, type[Rig]] = {"coder": ApiRig, "writer": ApiRig, "processor": ApiRig, "command": CommandRig}


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


@pytest.fixture
def open_stand(tmp_path: Path, model: Script, brief: WorkerBrief) -> OpenStand:
    """Opens one; the desk goes when the block ends."""

    @asynccontextmanager
    async def opened(kind: str) -> AsyncIterator[Stand]:
        target = await inspect(make_repository(tmp_path / "project"))
        hands = HandSettings(state_dir=tmp_path / "state")
        async with open_workshop(target, hands, RUN, target.base) as workshop, workshop.lease(target.base) as lease:
            yield Stand(RIGS[kind](kind, model, tmp_path), lease.desk, Purse(), tmp_path, brief)

    return opened
