"""Where the plan is found that undoes another, and what is wrong with it is said before anything runs."""

import json
from pathlib import Path

import pytest

from fleet.app.input_files import load_rollback
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext
from fleet.errors import UsageError

STEP = {"id": "undo", "action": "undo it", "worker": "coder"}
PLAN = Plan(rollback_plan="back")


def written(folder: Path, name: str, *steps: object, **more: object) -> Path:
    (folder / name).write_text(json.dumps({"goal": "g", "steps": steps, **more}), encoding="utf-8")
    return folder / "plan.json"


def test_it_lies_beside_the_plan_and_is_called_as_the_plan_says(tmp_path: Path) -> None:
    found = load_rollback(written(tmp_path, "back.json", STEP), PLAN, PlanContext())
    assert found is not None
    assert (found.plan_id, found.ids) == ("back", ("undo",))


def test_a_plan_that_names_none_has_none(tmp_path: Path) -> None:
    assert load_rollback(tmp_path / "plan.json", PLAN, PlanContext()) is None
    assert load_rollback(tmp_path / "plan.json", Plan(), PlanContext()) is None


def test_one_that_cannot_run_is_refused_now(tmp_path: Path) -> None:
    plan = written(tmp_path, "back.json", {**STEP, "worker": "unknown"})
    with pytest.raises(UsageError, match=r"back\.json is not a valid plan"):
        load_rollback(plan, PLAN, PlanContext(workers=frozenset({"coder"})))


def test_its_steps_have_names_of_their_own(tmp_path: Path) -> None:
    plan = written(tmp_path, "back.json", STEP)
    again = Plan.model_validate(
        {"rollback_plan": "back", "subtasks": [{"id": "undo", "title": "t", "goal": "g", "acceptance": []}]}
    )
    with pytest.raises(UsageError, match=r"undo is also in .*plan\.json"):
        load_rollback(plan, again, PlanContext())


@pytest.mark.parametrize("name", ["../back", "/etc/passwd", ".back"])
def test_it_lies_nowhere_else(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="without a path"):
        load_rollback(tmp_path / "plan.json", Plan(rollback_plan=name), PlanContext())
