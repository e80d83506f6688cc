"""The worker's two other tools: a command, and the end."""

from typing import Any

import pytest

from agents.tools.edit import Bash
from agents.tools.report import ReportTool
from agents.tools.tool import ReportDone, ToolInputError, ToolOptions, ToolResult
from tests.agents.conftest import FolderWorkspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def bash(workspace: FolderWorkspace) -> Bash:
    return Bash(workspace, ToolOptions(5, 1000))


async def test_every_command_is_a_fresh_shell(bash: Bash) -> None:
    assert (await bash.run({"command": "x=1; mkdir sub; cd sub"})).text == "[exit code 0]"
    assert (await bash.run({"command": "echo [$x]; ls"})).text == "[]\nsub\n[exit code 0]"


async def test_a_restart_is_nothing_to_do(bash: Bash, workspace: FolderWorkspace) -> None:
    assert not (await bash.run({"restart": True})).is_error
    assert workspace.commands == []


async def test_a_failing_command_is_an_answer_and_no_error(bash: Bash) -> None:
    assert await bash.run({"command": "echo no >&2; exit 2"}) == ToolResult("no\n[exit code 2]")


@pytest.mark.parametrize(
    "given", [{}, {"command": ""}, {"command": 1}, {"command": "a\0b"}, {"command": "a", "cwd": "/"}]
)
async def test_an_invalid_command_is_refused(bash: Bash, given: dict[str, Any]) -> None:
    with pytest.raises(ToolInputError):
        await bash.run(given)


async def test_a_report_is_kept_to_a_bearable_length() -> None:
    given = {"status": "blocked", "summary": "x" * 100_000, "needs": ["y"] * 1000, "discovered": ["z" * 100_000]}
    ended = await ReportTool().run(given)
    assert isinstance(ended, ReportDone)
    assert len(ended.value.summary) < 9000
    assert len(ended.value.needs) == 50
    assert len(ended.value.discovered[0]) < 9000


async def test_a_report_may_say_null_where_it_has_nothing_to_say() -> None:
    nothing = dict.fromkeys(("result", "error", "recommendations", "needs", "discovered"))
    short = {"status": "done", "summary": "written"}
    assert await ReportTool().run(short | nothing) == await ReportTool().run(short)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"status": "done"},
        {"status": "done", "summary": ""},
        {"status": "merged", "summary": "x"},
        {"status": "done", "summary": "x", "verdict": "all green"},
        {"status": "failed", "summary": "x", "error": {"kind": "laziness", "message": "x"}},
        {"status": "done", "summary": "x", "result": {"log": "x" * 30_000}},
    ],
)
async def test_an_invalid_report_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ToolInputError):
        await ReportTool().run(given)
