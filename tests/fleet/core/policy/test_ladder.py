"""The choice of rungs: pure, by dollars per landed subtask, explored a little and never beyond the budget."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Estimate
from fleet.core.plans.rungs import SIZES, Ladder, Rung, Size, parse_rung, size_of
from fleet.core.policy.ladder import (
    ABILITY,
    EXPLORED,
    Evidence,
    Seen,
    cheapest,
    evidence,
    expectations,
    explored,
    rung_options,
    take_rung,
)
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from tests.fleet.core.pretend import KINDS, Pretend, replayed
from tests.fleet.core.story import Story, plan_of
from tests.fleet.core.test_run_properties import steps

LOW = Rung(model="small", effort="low", lands=0.6, dollars=0.01)
MIDDLE = Rung(model="large", effort="low", lands=0.86, dollars=0.13)
HIGH = Rung(model="large", effort="high", lands=0.95, dollars=0.29)
LADDER = Ladder(rungs=(LOW, MIDDLE, HIGH))
RUNGS = Policy(rungs={"coder": LADDER}, max_attempts=4)

shares = st.floats(0.02, 0.98)
rungs = st.builds(
    Rung, model=st.sampled_from("abc"), effort=st.none() | st.just("low"), lands=shares, dollars=st.floats(0.001, 9.0)
)
ladders = st.builds(Ladder, rungs=st.lists(rungs, min_size=1, max_size=5, unique_by=lambda rung: rung.name).map(tuple))


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    tried = draw(st.integers(0, 300))
    return Evidence(tried, draw(st.integers(0, tried)), tried, draw(st.floats(0, 5)) * tried)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Ladder, Seen]:
    ladder = draw(ladders)
    keys = [(rung.model, rung.effort, size) for rung in ladder.rungs for size in SIZES]
    return ladder, {key: draw(evidences()) for key in draw(st.lists(st.sampled_from(keys), unique=True))}


# ---- expectations ---------------------------------------------------------------------------------------------------


@given(worlds(), st.sampled_from(SIZES), st.integers(1, 9))
def test_expectations_are_shares_and_prices_within_their_bounds(
    world: tuple[Ladder, Seen], size: Size, attempts: int
) -> None:
    for option in rung_options(*world, size, attempts=attempts):
        assert 0 <= option.low <= option.lands <= option.high <= 1
        assert option.dollars is not None
        assert option.dollars >= 0
        assert option.per_landed is not None
        assert option.least_per_landed is not None
        assert option.most_per_landed is not None
        assert option.per_landed >= option.dollars * 0.99999, "a landed subtask takes one attempt at least"


@given(worlds(), st.sampled_from(SIZES), st.integers(1, 9))
def test_the_choice_is_the_cheapest_and_the_same_each_time(
    world: tuple[Ladder, Seen], size: Size, attempts: int
) -> None:
    options = rung_options(*world, size, attempts=attempts)
    assert options == rung_options(*world, size, attempts=attempts)
    best = cheapest(options)
    assert best is not None
    costs = [option.per_landed for option in options]
    assert costs[best] == min(cost for cost in costs if cost is not None)


@given(worlds(), st.sampled_from(SIZES), st.integers(1, 30))
def test_what_lands_more_is_expected_to_land_more_and_its_bounds_come_closer(
    world: tuple[Ladder, Seen], size: Size, more: int
) -> None:
    ladder, seen = world
    rung = ladder.rungs[0]
    key = (rung.model, rung.effort, size)
    own = seen.get(key, Evidence())
    better = {**seen, key: replace(own, tried=own.tried + more, landed=own.landed + more)}
    worse = {**seen, key: replace(own, tried=own.tried + more)}
    before, after, below = (expectations(ladder, each, size)[0] for each in (seen, better, worse))
    assert below.lands < before.lands < after.lands


@given(st.integers(0, 500), st.sampled_from(SIZES))
def test_much_evidence_outweighs_any_assumption(landed: int, size: Size) -> None:
    seen: Seen = {("small", "low", size): Evidence(1_000, landed, 1_000, 20.0)}
    first = rung_options(LADDER, seen, size, attempts=4)[0]
    assert first.lands == pytest.approx(landed / 1_000, abs=0.01)
    assert first.dollars == pytest.approx(0.02, abs=0.001)
    assert first.high - first.low < 0.06


def test_nothing_seen_leaves_the_assumptions() -> None:
    option = rung_options(LADDER, {}, "medium", attempts=4)[0]
    assert (option.tried, option.lands, option.dollars) == (0, 0.6, 0.01)
    assert option.high - option.low > 0.3, "little is known"
    small, large = (rung_options(LADDER, {}, size, attempts=4)[0] for size in ("small", "large"))
    assert small.lands > 0.6 > large.lands


def test_what_was_seen_at_other_sizes_counts_where_a_size_was_not_tried() -> None:
    seen: Seen = {("small", "low", "medium"): Evidence(200, 20, 200, 8.0)}
    before, after = (rung_options(LADDER, each, "large", attempts=4)[0] for each in ({}, seen))
    assert after.lands < before.lands / 2
    assert after.dollars is not None
    assert before.dollars is not None
    assert after.dollars > 2 * before.dollars


def test_a_rung_that_seldom_lands_is_skipped_once_that_is_known() -> None:
    assert cheapest(rung_options(LADDER, {}, "medium", attempts=4)) == 0
    costly: Seen = {("small", "low", "medium"): Evidence(100, 2, 100, 12.0)}
    assert cheapest(rung_options(LADDER, costly, "medium", attempts=4)) == 1


def test_without_a_price_nothing_is_compared() -> None:
    unpriced = Ladder(rungs=(LOW, Rung(model="own")))
    assert cheapest(rung_options(unpriced, {}, "medium", attempts=4)) is None
    story = Story(Policy(rungs={"coder": unpriced}), plan_of("api"))
    assert [(a.model, a.choice.why) for a in story.of("api").attempts if a.choice] == [("small", "unpriced")]


# ---- exploring ------------------------------------------------------------------------------------------------------


@given(worlds(), st.sampled_from(SIZES))
def test_only_a_few_explore_and_only_what_may_be_cheaper(world: tuple[Ladder, Seen], size: Size) -> None:
    options = rung_options(*world, size, attempts=4)
    best = cheapest(options)
    assert best is not None
    limit = options[best].per_landed
    found = [explored(options, best, key=f"r/{number}") for number in range(200)]
    others = [index for index in found if index is not None]
    assert len(others) <= 3 * EXPLORED * 200
    for index in others:
        least = options[index].least_per_landed
        assert index != best
        assert least is not None
        assert limit is not None
        assert least < limit


def test_what_is_known_well_is_not_explored() -> None:
    known: Seen = {
        ("small", "low", "medium"): Evidence(5_000, 4_500, 5_000, 50.0),
        ("large", "low", "medium"): Evidence(5_000, 4_500, 5_000, 900.0),
        ("large", "high", "medium"): Evidence(5_000, 4_500, 5_000, 900.0),
    }
    options = rung_options(LADDER, known, "medium", attempts=4)
    assert {explored(options, 0, key=str(number)) for number in range(300)} == {None}


def doubtful(**changes: object) -> Story:
    """A hundred subtasks whose middle rung may be cheaper than the lowest one."""
    plan = plan_of(*(f"s{number}" for number in range(100)))
    return Story(Policy(rungs={"coder": close_ladder()}, workers=100, **changes), plan)


def close_ladder() -> Ladder:
    return Ladder(rungs=(LOW.model_copy(update={"dollars": 0.1}), MIDDLE))


def reasons(story: Story) -> Counter[str]:
    return Counter(fact.choice.why for fact in story.facts_of(f.AttemptStarted) if fact.choice is not None)


def test_a_few_subtasks_explore_and_the_journal_says_so() -> None:
    story = doubtful()
    assert 1 <= reasons(story)["explored"] <= 25
    assert reasons(story).total() == 100
    one = next(fact for fact in story.facts_of(f.AttemptStarted) if fact.choice and fact.choice.why == "explored")
    assert one.choice is not None
    assert [option.model for option in one.choice.options] == ["small", "large"]


def test_nothing_is_explored_beyond_the_budget() -> None:
    assert reasons(doubtful(budget_dollars=15.0))["explored"] == 0
    assert reasons(doubtful(budget_dollars=100.0))["explored"] == reasons(doubtful())["explored"]


def test_nothing_is_explored_where_a_mistake_would_do_much_harm() -> None:
    plan = plan_of(*(f"s{number}" for number in range(100)), risk="high")
    story = Story(Policy(rungs={"coder": close_ladder()}, workers=100), plan)
    assert reasons(story) == {"evidence": 100}


# ---- a story --------------------------------------------------------------------------------------------------------


def rungs_taken(story: Story) -> list[tuple[str | None, str | None, str]]:
    started = story.facts_of(f.AttemptStarted)
    return [(fact.model, fact.effort, fact.choice.why if fact.choice else "") for fact in started]


def worker_starts(story: Story, id_: str) -> None:
    story.happens(f.WorkerStarted(at=story.now, subtask=id_, number=story.current(id_).number))


def test_after_a_failure_that_more_thought_may_mend_the_next_rung_takes_it_without_the_planner() -> None:
    story = Story(RUNGS, plan_of("api"))
    for _ in range(2):
        worker_starts(story, "api")
        story.attempt_fails("api")
    assert rungs_taken(story) == [
        ("small", "low", "evidence"),
        ("large", "low", "climbed"),
        ("large", "high", "climbed"),
    ]
    assert story.facts_of(f.PlannerCalled) == []
    worker_starts(story, "api")
    story.attempt_fails("api")
    assert len(story.facts_of(f.PlannerCalled)) == 1, "above the last rung the planner decides"


@pytest.mark.parametrize("kind", sorted(set(KINDS) - ABILITY - {"configuration", "spent", "ambiguous", "internal"}))
def test_what_no_rung_could_mend_does_not_climb(kind: f.FailureKind) -> None:
    story = Story(RUNGS, plan_of("api", failure_action="retry"))
    worker_starts(story, "api")
    story.attempt_fails("api", kind)
    story.time_passes_to_the_next_wake()
    assert rungs_taken(story) == [("small", "low", "evidence"), ("small", "low", "again")]


def test_a_check_that_fails_before_any_work_says_nothing_about_the_rung() -> None:
    story = Story(RUNGS, plan_of("api"))
    story.attempt_fails("api")
    assert len(story.facts_of(f.PlannerCalled)) == 1
    assert story.state.tallies == {}


def test_a_rung_that_is_named_is_always_the_first_and_failures_still_climb() -> None:
    named = Policy(rungs={"coder": Ladder(rungs=LADDER.rungs, first=1)})
    story = Story(named, plan_of("api"))
    worker_starts(story, "api")
    story.attempt_fails("api")
    assert rungs_taken(story) == [("large", "low", "named"), ("large", "high", "climbed")]


@pytest.mark.parametrize("chosen", [{"model": "own"}, {"effort": "max"}])
def test_a_model_or_an_effort_of_the_plan_is_taken_as_it_is(chosen: dict[str, str]) -> None:
    story = Story(RUNGS, plan_of("api", **chosen))
    worker_starts(story, "api")
    story.attempt_fails("api")
    [first] = story.facts_of(f.AttemptStarted)
    assert (first.model, first.effort, first.choice) == (chosen.get("model"), chosen.get("effort"), None)
    assert len(story.facts_of(f.PlannerCalled)) == 1


def test_without_rungs_nothing_is_chosen_and_nothing_climbs() -> None:
    story = Story(Policy(), plan_of("api"))
    worker_starts(story, "api")
    story.attempt_fails("api")
    assert rungs_taken(story) == [(None, None, "")]


def test_what_attempts_of_the_run_led_to_is_evidence_for_the_next() -> None:
    story = Story(RUNGS.model_copy(update={"workers": 1}), plan_of("a", "b needs a"))
    worker_starts(story, "a")
    story.model_is_called("a", dollars=0.5)
    story.attempt_fails("a")
    worker_starts(story, "a")
    story.landed("a")
    seen = evidence(story.state.tallies.values(), "coder")
    model = story.of("a").attempts[0].model
    assert model is not None
    assert seen[model, "low", "medium"] == Evidence(tried=1, landed=0, priced=1, dollars=0.5, timed=1)
    later = story.facts_of(f.AttemptStarted)[-1].choice
    assert later is not None
    assert sum(option.tried for option in later.options) >= 1


def test_an_attempt_without_a_call_says_nothing_about_costs() -> None:
    story = Story(RUNGS, plan_of("a"))
    worker_starts(story, "a")
    story.landed("a")
    [seen] = evidence(story.state.tallies.values(), "coder").values()
    assert seen == Evidence(tried=1, landed=1, priced=0, dollars=0.0, timed=1)


def test_what_earlier_runs_saw_decides_and_is_recorded() -> None:
    costly = f.RungTally(
        worker="coder",
        model="small",
        effort="low",
        size="medium",
        landed=2,
        failed={"check": 98},
        priced=100,
        dollars=12,
    )
    story = Story(RUNGS)
    story.happens(f.EvidenceRead(at=0.0, runs=3, tallies=(costly,)))
    story.planner_plans("api")
    [first] = story.facts_of(f.AttemptStarted)
    assert first.choice is not None
    assert (first.model, first.effort, first.choice.rung) == ("large", "low", 1)
    assert (first.choice.options[0].tried, first.choice.options[0].landed) == (100, 2)


def test_wrong_plans_and_conflicts_do_not_count_against_a_rung() -> None:
    tally = f.RungTally(
        worker="coder",
        model="m",
        effort=None,
        size="small",
        landed=3,
        failed={"check": 2, "bounds": 1, "conflict": 5, "vacuous": 4},
        priced=15,
        dollars=1.5,
    )
    assert evidence([tally], "coder") == {("m", None, "small"): Evidence(tried=6, landed=3, priced=15, dollars=1.5)}
    assert evidence([tally], "writer") == {}


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
@settings(max_examples=60)
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
