"""Reviews in a plan: what makes one invalid, and that none is all that a subtask is judged by."""

from typing import Any

import pytest

from fleet.core.plans.lint import grade_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext, Revision, apply, plan_problems, with_reviews

REVIEW = {"criterion": "Names stay private", "review": "Names that leave it."}
COMMAND = {"criterion": "It greets", "run": "pytest tests/test_greet.py"}


def plan(*acceptance: dict[str, Any], **more: Any) -> Plan:
    made = {"id": "a", "title": "Greet", "goal": "Greet politely.", "acceptance": acceptance}
    return Plan.model_validate({"subtasks": [made | more]})


def problems(*acceptance: dict[str, Any], **more: Any) -> list[str]:
    known = PlanContext(checks=frozenset({"lint"}))
    return [str(problem) for problem in plan_problems(plan(*acceptance, **more), known)]


def test_a_review_beside_a_command_is_valid() -> None:
    assert problems(COMMAND, REVIEW | {"model": "m", "votes": 3, "threshold": 2}) == []
    assert problems({"criterion": "lint"}, REVIEW) == []


@pytest.mark.parametrize("acceptance", [[REVIEW], [REVIEW, REVIEW | {"criterion": "It is polite"}]])
def test_a_review_is_never_all_that_decides(acceptance: list[dict[str, Any]]) -> None:
    why = "'a' has only reviews. Add a criterion with a command, because a review is not a proof"
    assert problems(*acceptance) == [f"subtasks[0].acceptance: {why}"]


@pytest.mark.parametrize(
    ("review", "problem"),
    [
        (REVIEW | {"review": "  "}, ".review: must describe what to look for, in at most 10000 characters"),
        (REVIEW | {"review": "x" * 10_001}, ".review: must describe what to look for"),
        (REVIEW | {"criterion": ""}, ".criterion: is empty"),
        (REVIEW | {"run": "true"}, ".review: can't be combined with `run` or `tests`"),
        (REVIEW | {"votes": 2, "threshold": 3}, ".threshold: is 3, but there are only 2 votes"),
        ({"criterion": "lint", "votes": 2}, ".votes: is only allowed with `review`"),
        ({"criterion": "lint", "model": "m"}, ".model: is only allowed with `review`"),
    ],
)
def test_a_problem_of_a_review_is_named_with_its_place(review: dict[str, Any], problem: str) -> None:
    assert [found for found in problems(COMMAND, review) if found.startswith(f"subtasks[0].acceptance[1]{problem}")]


def test_two_reviews_of_one_name_could_not_be_told_apart() -> None:
    [problem] = problems(COMMAND, REVIEW, REVIEW)
    assert problem == "subtasks[0].acceptance[2].criterion: appears twice among the reviews of 'a'"


def test_an_area_has_no_change_to_review() -> None:
    [problem] = problems(COMMAND, REVIEW, worker="planner")
    assert problem.startswith("subtasks[0].acceptance[1].review: is not allowed for an area")


@pytest.mark.parametrize("votes", [0, 10])
def test_the_votes_are_few(votes: int) -> None:
    with pytest.raises(ValueError, match="votes"):
        plan(COMMAND, REVIEW | {"votes": votes})


def test_a_review_shows_no_more_than_a_guard_that_the_work_was_done() -> None:
    grade = grade_plan(plan(COMMAND | {"fails_before": False}, REVIEW))
    assert [warning for warning in grade.warnings if "only guards" in warning]


# ---- a planner that changes a reviewed subtask ----------------------------------------------------------------------


def revised(**more: Any) -> Plan:
    before = plan(COMMAND, REVIEW)
    revision = Revision.model_validate({"assessment": "otherwise", **more})
    return apply(before, with_reviews(before, revision))


def names(plan: Plan) -> list[list[str]]:
    return [[check.shown for check in subtask.acceptance] for subtask in plan.subtasks]


def test_a_planner_that_revises_a_subtask_keeps_its_reviews() -> None:
    other = {"criterion": "It greets", "run": "make greet"}
    kept = revised(revise=[{"id": "a", "acceptance": [other]}])
    assert names(kept) == [["make greet", "review: Names that leave it."]]
    assert names(revised(revise=[{"id": "a", "title": "Greet well"}])) == [
        [COMMAND["run"], f"review: {REVIEW['review']}"]
    ]


def test_the_parts_of_a_reviewed_subtask_are_reviewed() -> None:
    part = {"id": "b", "title": "b", "goal": "b", "acceptance": [COMMAND]}
    split = revised(split=[{"id": "a", "why": "too large", "into": [part, part | {"id": "c", "worker": "planner"}]}])
    assert names(split)[1:] == [[COMMAND["run"], f"review: {REVIEW['review']}"], [COMMAND["run"]]]


def test_a_plan_without_reviews_is_revised_as_before() -> None:
    revision = Revision.model_validate({"assessment": "otherwise", "revise": [{"id": "a", "acceptance": [COMMAND]}]})
    assert with_reviews(plan(COMMAND), revision) is revision
