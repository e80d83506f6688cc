"""A result that is landed again: in which order, and who does again what does not fit."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.remedies import RESOLVE_GUIDANCE
from fleet.core.state.status import landing_order
from tests.fleet.core.story import Story, failure, plan_of

RELANDING = f.Relanding(run="r", branch="main", since="s", result="e")


def test_what_a_subtask_needs_lands_before_it_wherever_the_plan_has_it() -> None:
    assert landing_order(Story(Policy(), plan_of("a", "b needs d", "c", "d needs e", "e")).state) == (
        "a",
        "e",
        "d",
        "b",
        "c",
    )


def test_parts_land_in_the_place_of_what_was_split() -> None:
    played = Story(Policy(in_order=True, publishes=False, max_attempts=9), plan_of("a", "b"))
    played.work_is_done("b")
    played.attempt_fails("a", "too_complex")
    parts = [part.model_dump() for part in plan_of("a1", "a2").subtasks]
    played.planner_answers(assessment="smaller", split=[{"id": "a", "why": "large", "into": parts}])
    played.work_is_done("a2", "a1")
    assert landing_order(played.state) == ("a1", "a2", "a", "b")
    assert played.state.landing.queue == ("a1", "a2", "b")


@pytest.mark.parametrize("kind", ["conflict", "integration"])
@pytest.mark.parametrize("attempts", [1, 4])
def test_where_a_result_is_landed_again_a_red_tree_is_resolved_like_a_conflict(
    kind: f.FailureKind, attempts: int
) -> None:
    played = Story(Policy(in_order=True, publishes=False, max_attempts=attempts), plan_of("a"), relanding=RELANDING)
    played.work_is_done("a")
    [batch] = played.state.landing.open_batches
    out = f.Ejected(subtask="a", attempt=1, failure=failure(kind))
    played.happens(f.BatchTested(at=0, number=batch.number, tip=played.state.tip, ejected=(out,)))
    if attempts == 1:
        assert (len(played.of("a").attempts), len(played.questions())) == (1, 1)
    else:
        assert (played.current("a").strategy, played.current("a").guidance) == ("resolve", RESOLVE_GUIDANCE[kind])
        assert not played.facts_of(f.PlannerCalled)
