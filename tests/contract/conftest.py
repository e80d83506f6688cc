"""One suite for every kind of worker: the same script, put in the terms of each kind, in a real box."""

import json
import shlex
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
from aiohttp import web

from agents.conversation.settings import WorkerSettings
from agents.factory import open_agents
from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Failure, Report
from fleet.core.plans.plan import Criterion, Subtask
from fleet.ports.agents import WorkerBrief, Workspace
from tests.agents.conftest import (
    SEEDED,
    FakeMeter,
    Script,
    model,
    no_environment,
    says,
    settings_for,
    text,
    use,
    worker_settings,
)
from tests.worktrees.conftest import make_repository, product_settings, python_shown, tmp_path
from worktrees.leases.run_worktrees import open_worktrees
from worktrees.target.target import inspect

__all__ = ["model", "no_environment", "tmp_path"]  # fixtures of others

Json = dict[str, Any]
RUN = RunId(f"r-{token_hex(3)}")
"""The tests find processes by it: no other run has this name."""
SECRET = "tool-key-0123456789"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Rig:
    """Makes a worker of one kind report something, run something first, or hang."""

    kind: str
    model: Script
    room: Path
    changes: Json = field(default_factory=dict)
    real: Path | None = None
    """The real program of a kind, instead of the stand-in."""

    def reports(self, report: Json | str, *, first: str = "") -> None:
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
        return worker_settings(kind=self.kind, **self.changes)


class ApiRig(Rig):
    """A kind that talks to a model: the script says what the model answers."""

    @property
    def runs_commands(self) -> bool:
        return self.kind not in {"writer", "retriever"}

    def reports(self, report: Json | str, *, first: str = "") -> None:
        turns = [says(use("bash", {"command": first}))] if first and self.runs_commands else []
        last = use("report", raw=report) if isinstance(report, str) else use("report", report)
        self.model.will(*turns, says(last))

    def hangs(self, command: str) -> None:
        self.model.will(says(use("bash", {"command": command})))


class RetrieverRig(ApiRig):
    """Needs a host that it may ask."""

    @property
    def settings(self) -> WorkerSettings:
        return worker_settings(**{"kind": self.kind, "hosts": ("docs.example.org",), **self.changes})


class CommandRig(Rig):
    """A kind that is a program: a script that reports."""

    def reports(self, report: Json | str, *, first: str = "") -> None:
        text = report if isinstance(report, str) else json.dumps(report)
        self._script(f'{first or ":"}; printf %s {shlex.quote(text)} > "$FLEET_REPORT"')

    def hangs(self, command: str) -> None:
        self._script(command)

    def _script(self, text: str) -> None:
        self.changes = {"command": ("sh", "-c", text), **self.changes}


def stand_in(folder: Path) -> Path:
    """A program that behaves like `claude`, in a folder of its own, because the box shows the whole folder."""
    file = folder / "claude"
    folder.mkdir(exist_ok=True)
    text = Path(__file__).with_name("stand_in.py").read_text()
    file.write_text(f"#!{sys.executable} -I\n{text}")
    file.chmod(0o755)
    return file


class ClaudeCodeRig(Rig):
    """A session of Claude Code: the model answers the same, but the tools have other names."""

    @property
    def settings(self) -> WorkerSettings:
        shown = (*self.changes.get("read_only", ()), *map(str, python_shown()))
        return worker_settings(
            **{"kind": self.kind, "command": (str(self.program()),), **self.changes, "read_only": shown}
        )

    def program(self) -> Path:
        """The real program where one was named, else the stand-in."""
        return self.real or stand_in(self.room / "claude code")

    def reports(self, report: Json | str, *, first: str = "") -> None:
        turns = [says(use("Bash", {"command": first}))] if first else []
        name = "StructuredOutput"
        last = use(name, raw=report, id="toolu_2") if isinstance(report, str) else use(name, report, id="toolu_2")
        self.model.will(*turns, says(last))

    def hangs(self, command: str) -> None:
        self.model.will(says(use("Bash", {"command": command})))


def acp_command(room: Path, scenario: Json) -> tuple[str, ...]:
    """The command line of an agent that plays this, in a folder of its own."""
    folder = room / "acp agent"
    folder.mkdir(exist_ok=True)
    program = folder / "agent.py"
    program.write_text(Path(__file__).with_name("acp_agent.py").read_text())
    return (sys.executable, "-I", str(program), json.dumps(scenario))


class AcpRig(Rig):
    """An agent of the Agent Client Protocol, which works through the files and terminals of its client."""

    @property
    def settings(self) -> WorkerSettings:
        shown = (*self.changes.get("read_only", ()), str(self.room / "acp agent"), *map(str, python_shown()))
        return worker_settings(**{"kind": self.kind, **self.changes, "read_only": shown})

    def plays(self, *turns: list[Json], **scenario: Any) -> None:
        """The agent does this in each of its turns."""
        self.changes = {**self.changes, "command": acp_command(self.room, {"turns": turns, **scenario})}

    def reports(self, report: Json | str, *, first: str = "") -> None:
        text = report if isinstance(report, str) else json.dumps(report)
        self.plays([*([{"shell": first}] if first else []), {"report": text}, {"say": "That is all."}])

    def hangs(self, command: str) -> None:
        self.plays([{"shell": command}])


class RealAcpRig(AcpRig):
    """An agent from a registry, with tools of its own, whose model is the test's."""

    tool = "Bash"

    @property
    def settings(self) -> WorkerSettings:
        folder = self.real or Path()
        shown = (*self.changes.get("read_only", ()), str(folder))
        more = {"read_only": shown, "command": self.command(folder)}
        return worker_settings(**{"kind": self.kind, "models": ("claude-haiku-5-5",), **self.changes, **more})

    def command(self, folder: Path) -> tuple[str, ...]:
        return ("node", str(folder / "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js"))

    def reports(self, report: Json | str, *, first: str = "") -> None:
        written = b64encode((report if isinstance(report, str) else json.dumps(report)).encode()).decode()
        self.runs(f'{first or ":"}\nprintf %s {written} | base64 -d > "$FLEET_REPORT"')  # as it is, whatever it reads

    def hangs(self, command: str) -> None:
        self.runs(command)

    def runs(self, command: str) -> None:
        """One command, and a last word. What else it asks of the model, such as a title, is answered with a word."""
        given = {"command": command, "description": "do it"}
        turns = iter([says(use(self.tool, given))])
        word = says(text("done"), stop="end_turn")

        async def reply(request: web.Request) -> web.StreamResponse:
            works = (await request.json()).get("tools")
            return await (next(turns, word) if works else word)(request)

        self.model.will(reply)


class OpenCodeRig(RealAcpRig):
    """OpenCode, which is told the address of the Messages API in its own configuration."""

    tool = "bash"

    @property
    def settings(self) -> WorkerSettings:
        provider = {"options": {"baseURL": "{env:ANTHROPIC_BASE_URL}/v1"}, "models": {"claude-haiku-5-5": {}}}
        model = "anthropic/claude-haiku-5-5"
        own = {"model": model, "small_model": model, "autoupdate": False, "provider": {"anthropic": provider}}
        settings = super().settings
        environment = {**settings.environment, "OPENCODE_CONFIG_CONTENT": json.dumps(own)}
        return settings.model_copy(update={"environment": environment})

    def command(self, folder: Path) -> tuple[str, ...]:
        return (str(folder / "node_modules/.bin/opencode"), "acp")


REAL_AGENTS = {"claude-agent-acp": RealAcpRig, "opencode": OpenCodeRig}
RIGS: dict[str, type[Rig]] = {
    "coder": ApiRig,
    "writer": ApiRig,
    "retriever": RetrieverRig,
    "processor": ApiRig,
    "acp": AcpRig,
    "command": CommandRig,
    "claude-code": ClaudeCodeRig,
}


@dataclass
class Stand:
    """A worker of one kind with its workspace."""

    rig: Rig
    workspace: Workspace
    meter: FakeMeter
    room: Path
    brief: WorkerBrief

    async def works(self, brief: WorkerBrief | None = None) -> Report | Failure:
        settings = settings_for(self.rig.model, self.room, workers={"it": self.rig.settings})
        async with open_agents(settings, chance=SEEDED) as agents:
            return await agents.workers["it"].run(brief or self.brief, self.workspace, self.meter)

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
    parser.addoption("--acp-agent", choices=REAL_AGENTS, help="a real agent, for a stand-in's place")
    parser.addoption("--acp-agents", type=Path, help="the folder where npm installed it")
    parser.addoption("--claude-code", type=Path, help="the real program, for a stand-in's place")


@pytest.fixture
def real_claude_code(request: pytest.FixtureRequest) -> Path | None:
    """The program that `make claude-code` names; None in other test runs."""
    named: Path | None = request.config.getoption("--claude-code", default=None)
    return named.resolve() if named else None


@pytest.fixture
def real_acp(request: pytest.FixtureRequest) -> tuple[type[Rig], Path] | None:
    """The agent that `make acp-agents` names, and where it is; None in other test runs."""
    named: str | None = request.config.getoption("--acp-agent", default=None)
    return (REAL_AGENTS[named], request.config.getoption("--acp-agents").resolve()) if named else None


@pytest.fixture
def open_stand(
    tmp_path: Path,
    model: Script,
    brief: WorkerBrief,
    real_claude_code: Path | None,
    real_acp: tuple[type[Rig], Path] | None,
) -> OpenStand:
    """Opens a stand; its workspace is removed when the block ends."""

    @asynccontextmanager
    async def opened(kind: str) -> AsyncIterator[Stand]:
        target = await inspect(make_repository(tmp_path / "project"))
        settings = product_settings(tmp_path / "state")
        async with (
            open_worktrees(target, settings, RUN, target.base) as worktrees,
            worktrees.lease(target.base) as lease,
        ):
            rig, real = real_acp if real_acp and kind == "acp" else (RIGS[kind], real_claude_code)
            yield Stand(rig(kind, model, tmp_path, real=real), lease.workspace, FakeMeter(), tmp_path, brief)

    return opened
