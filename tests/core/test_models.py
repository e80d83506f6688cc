"""Which model an attempt gets: the plan's, or the next rung after a failure that a better one may be spared."""

import pytest

from fleet.core import facts as f
from fleet.core.models import ABILITY
from fleet.core.policy import Policy
from fleet.core.remedies import KINDS
from tests.core.story import Story, plan_of

LADDERS = {"coder": ("haiku", "sonnet", "opus")}


def models(story: Story) -> list[str | None]:
    return [fact.model for fact in story.facts_of(f.AttemptStarted)]


def test_each_failure_of_ability_is_followed_by_the_next_model_and_the_last_one_stays() -> None:
    story = Story(Policy(ladders=LADDERS, max_attempts=9), plan_of("api", failure_action="retry"))
    for _ in range(4):
        story.attempt_fails("api")
        story.time_passes_to_the_next_wake()
    assert models(story) == ["haiku", "sonnet", "opus", "opus", "opus"]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ABILITY - {"configuration", "spent", "ambiguous"}))
def test_what_no_model_could_help_does_not_climb(kind: f.FailureKind) -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", failure_action="retry"))
    story.attempt_fails("api", kind)
    story.time_passes_to_the_next_wake()
    assert set(models(story)) == {"haiku"}
    assert len(models(story)) == 2


def test_a_model_of_the_plan_is_the_one() -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", failure_action="retry", model="own"))
    story.attempt_fails("api")
    story.time_passes_to_the_next_wake()
    assert models(story) == ["own", "own"]


def test_without_a_ladder_the_worker_knows_its_model() -> None:
    story = Story(Policy(ladders=LADDERS), plan_of("api", worker="other"))
    assert models(story) == [None]
