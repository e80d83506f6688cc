"""Budgets as a person sees them: never exceeded, kept across a kill, raised, and reported by role."""

from pathlib import Path

import pytest

from fleet.core.plans.plan import Plan
from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Json, Stage, landed, script, solve, subtask

NAMES = ("one", "two", "three", "four", "five", "six")
CALL = 16_000  # tokens that one answer may have


def given(stage: Stage) -> str:
    """A plan, so that the only calls are workers'."""
    plan = Plan(goal="Write", subtasks=tuple(subtask(name) for name in NAMES))
    file = stage.room / "plan.json"
    file.write_text(plan.model_dump_json())
    return str(file)


def run(stage: Stage, repository: Path, url: str, *more: str) -> Done:
    base = ("run", "--plan", given(stage), "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    return stage.fleet(*base, *more)


def used(status: Json) -> int:
    kinds = ("input", "output", "cache_read", "cache_write")
    return sum(role[kind] for role in status["tokens"].values() for kind in kinds)


def test_a_budget_of_tokens_is_never_exceeded_and_stopped_work_continues_with_more(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(script(workers={"*": [solve("x")], **{name: [solve(name)] for name in NAMES}}))
    limit = CALL + 14_000
    run(stage, repository, url, "--tokens", str(limit)).ended(4).says("does not cover another call", "fleet resume r")
    status = stage.status("r")
    assert 0 < used(status) <= limit
    assert status["budget"]["tokens"] == {"limit": limit, "left": limit - used(status)}
    assert status["incidents"]["opened"] == 0
    stage.fleet("resume", "r", "--base-url", url, "--tokens", "5000000").ended(0)
    assert sorted(landed(repository, "r")) == sorted(NAMES)
    status = stage.status("r")
    assert status["incidents"]["opened"] == 0
    assert status["cost_by_role"]["worker"] == status["cost_dollars"] > 0


@pytest.mark.thorough
def test_a_killed_run_knows_what_its_calls_may_have_cost(stage: Stage, repository: Path, model: Serve) -> None:
    slow = script(workers={name: [solve(name)] for name in NAMES}, pace={"think_s": 2.0})
    url = model(slow)
    arguments = ("run", "--plan", given(stage), "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*arguments, "--budget", "5") as going:
        state = stage.wait("r", lambda state: state.held.calls >= len(NAMES), going)
        going.kill()
    assert state.held.dollars is not None
    stage.fleet("resume", "r", "--base-url", url).ended(0).says("interrupted call")
    status = stage.status("r")
    assert status["cost_in_doubt"]["calls"] >= len(NAMES)
    left = status["budget"]["dollars"]["left"]
    assert abs(left - (5 - status["cost_dollars"] - status["cost_in_doubt"]["dollars"])) < 0.001
