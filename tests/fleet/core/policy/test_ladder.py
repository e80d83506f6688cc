"""The choice of rungs: pure, by what a landed subtask cost on each; without enough observations, in order."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import ENOUGH, Ladder, Policy, Rung, Size, parse_rung, size_of
from fleet.core.plans.plan import Estimate
from fleet.core.policy.ladder import ABILITY, cheapest, in_order, rung_options, take_rung
from fleet.core.state.state import RunState
from tests.effort import examples
from tests.fleet.core.pretend import KINDS, Pretend, replayed
from tests.fleet.core.story import Story, plan_of
from tests.fleet.core.test_run_properties import steps

LOW = Rung(model="small", effort="low")
MIDDLE = Rung(model="large", effort="low")
HIGH = Rung(model="large", effort="high")
LADDER = Ladder(rungs=(LOW, MIDDLE, HIGH))
RUNGS = Policy(rungs={"coder": LADDER}, max_attempts=4)

rungs = st.builds(Rung, model=st.sampled_from("abc"), effort=st.none() | st.just("low"))
ladders = st.builds(Ladder, rungs=st.lists(rungs, min_size=1, max_size=5, unique_by=lambda rung: rung.name).map(tuple))


def seen(rung: Rung, tried: int, landed: int, dollars: float | None = 0.1, size: Size = "medium") -> f.RungTally:
    """So many attempts that cost so much each."""
    return f.RungTally(
        worker="coder",
        model=rung.model,
        effort=rung.effort,
        size=size,
        landed=landed,
        failed={"check": tried - landed},
        priced=0 if dollars is None else tried,
        dollars=(dollars or 0.0) * tried,
    )


def options_of(*tallies: f.RungTally) -> tuple[f.RungOption, ...]:
    return rung_options(LADDER, tallies, "coder", "medium")


# ---- the first rung -------------------------------------------------------------------------------------------------


def test_the_first_rung_landed_subtasks_for_the_fewest_dollars() -> None:
    options = options_of(seen(LOW, 20, 1, 0.1), seen(MIDDLE, 10, 9, 0.9), seen(HIGH, 5, 5, 1.5))
    assert [option.per_landed for option in options] == [2.0, 1.0, 1.5]
    assert cheapest(options) == 1


def test_of_equals_the_lower_one_is_taken() -> None:
    assert cheapest(options_of(seen(LOW, 10, 5, 0.5), seen(MIDDLE, 5, 5, 1.0))) == 0


def test_with_too_few_observations_the_configured_order_decides() -> None:
    few = ENOUGH - 1
    assert cheapest(options_of()) is None
    assert cheapest(options_of(seen(LOW, few, few), seen(MIDDLE, 9, 9, 0.01))) is None
    assert in_order(options_of(seen(LOW, few, few), seen(MIDDLE, 9, 9, 0.01))) == 0


def test_no_rung_above_one_that_was_hardly_tried_is_the_first() -> None:
    assert cheapest(options_of(seen(LOW, 9, 9, 5.0), seen(MIDDLE, 2, 2, 0.1), seen(HIGH, 9, 9, 0.2))) == 0


def test_a_rung_that_never_landed_anything_is_skipped() -> None:
    below = options_of(seen(LOW, 9, 0))
    assert (cheapest(below), in_order(below)) == (None, 1)
    assert cheapest(options_of(seen(LOW, 9, 0), seen(MIDDLE, 5, 1, 9.0))) == 1
    hopeless = options_of(seen(LOW, 9, 0), seen(MIDDLE, 9, 0), seen(HIGH, 9, 0))
    assert (cheapest(hopeless), in_order(hopeless)) == (None, 0)


def test_without_a_price_a_rung_is_not_compared() -> None:
    unpriced = options_of(seen(LOW, 9, 9, None), seen(MIDDLE, 9, 9, 0.1))
    assert (cheapest(unpriced), in_order(unpriced), unpriced[0].per_landed) == (None, 0, None)


def test_other_sizes_and_other_workers_say_nothing() -> None:
    other = seen(LOW, 9, 9).model_copy(update={"worker": "writer"})
    assert [option.tried for option in options_of(other, seen(LOW, 9, 9, size="large"))] == [0, 0, 0]


def test_wrong_plans_and_conflicts_do_not_count_against_a_rung() -> None:
    failed: dict[f.FailureKind, int] = {"check": 2, "bounds": 1, "conflict": 5, "vacuous": 4}
    tally = seen(LOW, 3, 3).model_copy(update={"failed": failed, "priced": 15, "dollars": 1.5})
    first = options_of(tally)[0]
    assert (first.tried, first.landed, first.dollars, first.per_landed) == (6, 3, 0.1, 0.2)


# ---- a story --------------------------------------------------------------------------------------------------------


def rungs_taken(story: Story) -> list[tuple[str | None, str | None, str]]:
    started = story.facts_of(f.AttemptStarted)
    return [(fact.model, fact.effort, fact.choice.why if fact.choice else "") for fact in started]


def test_after_a_failure_that_more_thought_may_mend_the_next_rung_takes_it_without_the_planner() -> None:
    story = Story(RUNGS, plan_of("api"))
    for _ in range(2):
        story.worker_starts("api")
        story.attempt_fails("api")
    assert rungs_taken(story) == [
        ("small", "low", "order"),
        ("large", "low", "climbed"),
        ("large", "high", "climbed"),
    ]
    assert story.facts_of(f.PlannerCalled) == []
    story.worker_starts("api")
    story.attempt_fails("api")
    assert len(story.facts_of(f.PlannerCalled)) == 1, "above the last rung the planner decides"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ABILITY - {"configuration", "spent", "ambiguous", "internal"}))
def test_what_no_rung_could_mend_does_not_climb(kind: f.FailureKind) -> None:
    story = Story(RUNGS, plan_of("api", failure_action="retry"))
    story.worker_starts("api")
    story.attempt_fails("api", kind)
    story.time_passes_to_the_next_wake()
    assert rungs_taken(story) == [("small", "low", "order"), ("small", "low", "again")]


def test_a_check_that_fails_before_any_work_says_nothing_about_the_rung() -> None:
    story = Story(RUNGS, plan_of("api"))
    story.attempt_fails("api")
    assert len(story.facts_of(f.PlannerCalled)) == 1
    assert story.state.tallies == {}


def test_a_rung_that_is_named_is_always_the_first_and_failures_still_climb() -> None:
    named = Policy(rungs={"coder": Ladder(rungs=LADDER.rungs, first=1)})
    story = Story(named, plan_of("api"))
    story.worker_starts("api")
    story.attempt_fails("api")
    assert rungs_taken(story) == [("large", "low", "named"), ("large", "high", "climbed")]


@pytest.mark.parametrize("chosen", [{"model": "own"}, {"effort": "max"}])
def test_a_model_or_an_effort_of_the_plan_is_taken_as_it_is(chosen: dict[str, str]) -> None:
    story = Story(RUNGS, plan_of("api", **chosen))
    story.worker_starts("api")
    story.attempt_fails("api")
    [first] = story.facts_of(f.AttemptStarted)
    assert (first.model, first.effort, first.choice) == (chosen.get("model"), chosen.get("effort"), None)
    assert len(story.facts_of(f.PlannerCalled)) == 1


def test_without_rungs_nothing_is_chosen_and_nothing_climbs() -> None:
    story = Story(Policy(), plan_of("api"))
    story.worker_starts("api")
    story.attempt_fails("api")
    assert rungs_taken(story) == [(None, None, "")]


def test_what_attempts_of_the_run_led_to_is_evidence_for_the_next() -> None:
    story = Story(RUNGS.model_copy(update={"workers": 1}), plan_of("a", "b needs a"))
    story.worker_starts("a")
    story.model_is_called("a", dollars=0.5)
    story.attempt_fails("a")
    story.worker_starts("a")
    story.landed("a")
    [failed, done] = story.state.tallies.values()
    assert (failed.landed, failed.failed, failed.priced, failed.dollars) == (0, {"check": 1}, 1, 0.5)
    assert (done.landed, done.priced, done.dollars) == (1, 0, 0.0), "without a call its cost is unknown"
    later = story.facts_of(f.AttemptStarted)[-1].choice
    assert later is not None
    assert sum(option.tried for option in later.options) >= 1


def test_what_past_runs_saw_decides_and_is_recorded() -> None:
    story = Story(RUNGS)
    story.happens(f.EvidenceRead(at=0.0, runs=3, tallies=(seen(LOW, 100, 2, 0.12), seen(MIDDLE, 6, 6, 0.2))))
    story.planner_plans("api")
    [first] = story.facts_of(f.AttemptStarted)
    assert first.choice is not None
    assert (first.model, first.effort, first.choice.rung, first.choice.why) == ("large", "low", 1, "evidence")
    assert (first.choice.options[0].tried, first.choice.options[0].landed) == (100, 2)


# ---- whole runs -----------------------------------------------------------------------------------------------------

runs = st.builds(
    Pretend,
    seed=st.integers(0, 10**9),
    policy=st.builds(
        Policy,
        workers=st.integers(1, 5),
        max_attempts=st.integers(1, 4),
        budget_dollars=st.none() | st.floats(0.02, 1.0),
        rungs=ladders.map(lambda ladder: {"coder": ladder}),
    ),
    trouble=st.floats(0.0, 0.6),
)


@given(runs)
@examples(60)
def test_in_every_run_choices_repeat_from_the_journal_and_failures_never_lead_down(world: Pretend) -> None:
    for _ in steps(world):
        pass
    state: RunState | None = None
    for fact in world.facts:
        if isinstance(fact, f.AttemptStarted) and state is not None and fact.choice is not None:
            again = take_rung(state, state.spec(fact.subtask), state.subtasks[fact.subtask])
            assert again.choice == fact.choice, "the same state makes the same choice"
        state = evolve(state, fact)
    assert state == replayed(f.FACT.validate_json(f.FACT.dump_json(fact)) for fact in world.facts)
    for subtask in world.state.subtasks.values():
        taken = [attempt.choice.rung for attempt in subtask.attempts if attempt.choice is not None]
        assert taken == sorted(taken)
        assert all(later - earlier <= 1 for earlier, later in pairwise(taken))


@pytest.mark.parametrize(
    ("text", "rung"), [("a", ("a", None)), ("a low", ("a", "low")), ("  a   xhigh ", ("a", "xhigh"))]
)
def test_a_rung_is_a_model_or_a_model_and_an_effort(text: str, rung: tuple[str, str | None]) -> None:
    assert parse_rung(text) == rung


@pytest.mark.parametrize("text", ["", "a b", "a low high", "a Low"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_rung(text)


@pytest.mark.parametrize(
    ("lines", "minutes", "size"),
    [
        (None, None, "medium"),
        (40, None, "small"),
        (41, 5, "medium"),
        (10, 30, "large"),
        (201, 1, "large"),
        (None, 5, "small"),
    ],
)
def test_a_size_is_what_the_estimate_says(lines: int | None, minutes: float | None, size: Size) -> None:
    assert size_of(Estimate(lines=lines, minutes=minutes)) == size
