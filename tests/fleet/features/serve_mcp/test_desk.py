"""What a session may start: within the operator's limits, and in the operator's repository only."""

from pathlib import Path

import pytest

from fleet.errors import UsageError
from fleet.features.serve_mcp.tool_handlers import Begin, OfRun, ToolHandlers
from fleet.features.serve_mcp.tools import TOOLS, offered
from tests.fleet.program import fleet
from tests.worktrees.conftest import make_repository


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToolHandlers:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    repository = make_repository(tmp_path / "work", {"README.md": "hello\n"})
    config = tmp_path / "fleet.toml"
    config.write_text("[run]\nworkers = 4\nbudget_dollars = 2.5\n", encoding="utf-8")
    return ToolHandlers(repository, config)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"budget_dollars": 3}, "budget_dollars: 3 is above the operator's limit of 2.5"),
        ({"budget_dollars": 1, "workers": 5}, "workers: 5 is above the operator's limit of 4"),
        ({"budget_dollars": 1, "name": "a/b"}, "invalid run name: 'a/b'"),
        ({"budget_dollars": 1, "name": "--force"}, "invalid run name: '--force'"),
    ],
)
async def test_a_run_never_gets_more_than_the_operator_allows(
    desk: ToolHandlers, asked: dict[str, object], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        await desk.run(Begin.model_validate({"epic": "x", **asked}))
    assert desk.granted == 0


async def test_a_budget_that_was_refused_is_there_for_the_next(desk: ToolHandlers) -> None:
    desk.budget_dollars = 2
    for _ in range(3):
        with pytest.raises(UsageError, match="invalid run name"):
            await desk.plan(Begin(epic="x", budget_dollars=2, name="a/b"))
    with pytest.raises(UsageError, match=r"budget_dollars: 2\.1 exceeds the remaining session budget of 2"):
        await desk.plan(Begin(epic="x", budget_dollars=2.1))


async def test_an_empty_epic_is_refused(desk: ToolHandlers) -> None:
    with pytest.raises(UsageError, match="the epic is empty"):
        await desk.run(Begin(epic=" ", budget_dollars=1))


async def test_without_runs_there_is_nothing_to_look_at(desk: ToolHandlers) -> None:
    with pytest.raises(UsageError, match="no runs in this repository yet"):
        await desk.status(OfRun())


def test_a_read_only_session_changes_nothing() -> None:
    assert {tool.effect for tool in offered(read_only=True).values()} == {"reads"}
    assert len(offered(read_only=False)) == len(TOOLS) == 10


def test_no_tool_takes_a_path_or_an_option() -> None:
    taken = {name for tool in TOOLS for name in tool.takes.model_fields}
    assert taken.isdisjoint({"repo", "repository", "path", "file", "config", "base_url", "sandbox", "force", "yes"})


def test_it_serves_a_repository_only(tmp_path: Path) -> None:
    done = fleet("mcp", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not in a git repository\nhint: use `fleet mcp -C DIR`" in done.stderr
