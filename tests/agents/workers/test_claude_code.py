"""A session of Claude Code: how it is started, and what its end means. The contract suite holds it to the rest."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.models.transcripts import Transcripts
from agents.workers.claude_code import ClaudeCodeWorker
from agents.workers.relay import Relay
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import NO_EXTRAS, CommandResult, Dialogue, Extras, WorkerBrief
from tests.agents.conftest import (
    KEY,
    FakeMeter,
    FolderWorkspace,
    Script,
    caller_for,
    settings_for,
    unopened_client,
    worker_settings,
)
from tests.agents.workers.dialogues import converse

pytestmark = pytest.mark.anyio
SUCCESS = {"type": "result", "subtype": "success", "structured_output": {"status": "done", "summary": "greeted"}}


class ScriptedWorkspace(FolderWorkspace):
    """A workspace that records what it should run, and answers for the program."""

    answer: CommandResult = CommandResult(0, "")
    lines: tuple[str, ...] = (json.dumps(SUCCESS, separators=(",", ":")),)
    """What the session says."""
    extras: Extras = NO_EXTRAS

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        del timeout_s
        self.commands.append(command)
        self.extras = extras
        assert dialogue is not None
        await converse(dialogue, *self.lines)
        return self.answer


@pytest.fixture
def workspace(tmp_path: Path) -> ScriptedWorkspace:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return ScriptedWorkspace(tmp_path)


async def session(workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief, **own: Any) -> Report | Failure:
    settings_of_worker = {"command": (str(workspace.folder / "bin" / "claude"),), **own}
    transcripts = Transcripts(workspace.folder / "t", secrets=(KEY,))
    settings = settings_for(model, workspace.folder)
    worker = ClaudeCodeWorker(
        worker_settings(kind="claude-code", **settings_of_worker),
        settings,
        partial(Relay, settings, caller_for(settings), unopened_client(settings)),
        transcripts,
    )
    return await worker.run(brief, workspace, FakeMeter())


async def test_it_is_started_bare_with_the_limits_and_no_key(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    own = {
        "turns": 7,
        "dollars": 1.5,
        "tools": ("Bash", "Read"),
        "prompt": "Be brief.",
        "models": ("claude-x", "claude-y"),
    }
    assert await session(workspace, model, brief, **own) == Report(status="done", summary="greeted")
    (line,) = workspace.commands
    for words in (
        "--print --verbose --model claude-x --input-format stream-json --output-format stream-json",
        "--bare --setting-sources ''",
        "--max-turns 7",
        "--dangerously-skip-permissions",
        "--max-budget-usd 1.5",
        "--tools Bash,Read",
        "--append-system-prompt 'Be brief.'",
    ):
        assert words in line
    environment = workspace.extras.environment
    assert str(workspace.folder / "bin") in workspace.extras.read_only
    assert environment["ANTHROPIC_DEFAULT_HAIKU_MODEL"] == "claude-x"
    assert KEY not in line + repr(dict(environment))
    assert workspace.extras.network is None


async def test_a_model_of_the_attempt_is_the_one(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    await session(workspace, model, replace(brief, model="claude-z"))
    assert "--model claude-z " in workspace.commands[0]


async def test_an_effort_of_the_attempt_is_the_sessions(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    await session(workspace, model, replace(brief, effort="low"))
    await session(workspace, model, brief)
    assert ["--effort low " in command for command in workspace.commands] == [True, False]


async def test_permissions_that_are_named_are_the_ones(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    program = str(workspace.folder / "bin" / "claude")
    await session(workspace, model, brief, command=(program, "--permission-mode", "acceptEdits"))
    assert workspace.commands[0].count("--permission-mode acceptEdits") == 1
    assert "--dangerously" not in workspace.commands[0]


@pytest.mark.parametrize(
    ("result", "kind", "summary"),
    [
        ({"subtype": "error_max_turns"}, "budget", "the session ended with error_max_turns"),
        ({"subtype": "error_max_budget_usd"}, "budget", "the session ended with error_max_budget_usd"),
        ({"subtype": "error_during_execution"}, "tool", "the session ended with error_during_execution"),
        ({"subtype": "success", "result": "I am done."}, "protocol", "the session ended without a report"),
        (
            {"subtype": "success", "structured_output": {"status": "done"}},
            "protocol",
            "the session's report is invalid",
        ),
        (None, "tool", "the session ended with exit code 3 and no result"),
    ],
)
async def test_an_end_without_a_report_is_a_failure(
    workspace: ScriptedWorkspace,
    model: Script,
    brief: WorkerBrief,
    *,
    result: dict[str, Any] | None,
    kind: str,
    summary: str,
) -> None:
    line = json.dumps({"type": "result", **(result or {})}, separators=(",", ":"))
    workspace.answer, workspace.lines = CommandResult(3, "boom\n"), () if result is None else (line,)
    failure = await session(workspace, model, brief)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == (kind, summary)
    assert "boom" in failure.evidence


async def test_a_missing_program_is_a_failure_of_the_configuration(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    failure = await session(workspace, model, brief, command=("claude-that-is-not-here",))
    assert isinstance(failure, Failure)
    assert failure.kind == "configuration"
    assert workspace.commands == []


async def test_what_is_printed_beside_the_session_is_no_report(
    workspace: ScriptedWorkspace, model: Script, brief: WorkerBrief
) -> None:
    workspace.answer, workspace.lines = CommandResult(0, json.dumps(SUCCESS)), ()
    failure = await session(workspace, model, brief)
    assert isinstance(failure, Failure)
    assert failure.summary == "the session ended with exit code 0 and no result"
