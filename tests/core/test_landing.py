"""Landing in batches: the guilty are found, the innocent land, and the gate runs seldom."""

from itertools import combinations
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core import facts as f
from fleet.core.landing import next_batch, verdict
from fleet.core.policy import Policy
from tests.core.story import Story, plan_of

RED = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=1, output="1 failed")


def queued(count: int, *, batch: int = 500) -> Story:
    """Candidates that all wait for one batch: a first one holds the gate until the others are there."""
    names = [f"s{number}" for number in range(count)]
    story = Story(Policy(workers=1000, batch=batch), plan_of("first", *names))
    story.work_is_done("first", *names)
    story.batch_lands()
    return story


def land_all(story: Story, guilty: set[str]) -> tuple[int, set[str], set[str]]:
    """How often the gate ran, who landed, who was sent back."""
    runs, landed, ejected = 0, set[str](), set[str]()
    while (batch := story.state.landing.batch) is not None:
        runs += 1
        names = {member.subtask for member in batch.members}
        red, out = verdict(batch.members, (RED,) if guilty & names else ())
        members = () if red else batch.members
        landed |= {member.subtask for member in members}
        ejected |= {each.subtask for each in out}
        tip = f"tip-{batch.number}" if members else story.state.tip
        story.happens(f.BatchTested(at=0, number=batch.number, tip=tip, landed=members, ejected=out, red=red))
    return runs, landed, ejected


@pytest.mark.parametrize("place", range(8))
def test_one_guilty_in_eight_is_found_and_the_rest_lands_in_seven_runs_of_the_gate(place: int) -> None:
    runs, landed, ejected = land_all(queued(8), {f"s{place}"})
    assert ejected == {f"s{place}"}
    assert landed == {f"s{number}" for number in range(8)} - ejected
    assert runs <= 7


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
@pytest.mark.parametrize("guilty", [0, 1, 2, 3])
def test_some_guilty_among_many_cost_a_bounded_number_of_runs(count: int, guilty: int) -> None:
    for some in combinations(range(count), min(guilty, count)):
        names = {f"s{number}" for number in some}
        runs, landed, ejected = land_all(queued(count), names)
        assert ejected == names
        assert len(landed) == count - len(names)
        assert runs <= min(1 + 2 * len(names) * ceil(log2(count)), 2 * count - 1)


@given(st.integers(1, 40), st.integers(1, 20), st.data())
@settings(max_examples=60, deadline=None)
def test_all_innocent_land_and_all_guilty_go_back_whatever_the_size_of_batches(
    count: int, batch: int, data: st.DataObject
) -> None:
    guilty = {f"s{number}" for number in data.draw(st.sets(st.integers(0, count - 1)))}
    runs, landed, ejected = land_all(queued(count, batch=batch), guilty)
    assert ejected == guilty
    assert landed == {f"s{number}" for number in range(count)} - guilty
    assert runs < 2 * count


def test_a_green_queue_lands_in_as_few_batches_as_the_policy_allows() -> None:
    runs, landed, _ = land_all(queued(100, batch=16), set())
    assert (runs, len(landed)) == (ceil(100 / 16), 100)


def test_a_candidate_that_is_guilty_goes_to_the_planner_with_the_output_of_the_gate() -> None:
    story = queued(2)
    land_all(story, {"s1"})
    failure = story.of("s1").failure
    assert failure is not None
    assert failure.kind == "integration"
    assert "the gate" in failure.summary
    assert "1 failed" in failure.evidence
    assert story.of("s1").remedy == "planner"


def test_while_one_batch_is_tested_no_other_is_formed() -> None:
    story = Story(Policy(), plan_of("a", "b"))
    story.work_is_done("a", "b")
    batch = story.state.landing.batch
    assert batch is not None
    assert [member.subtask for member in batch.members] == ["a"]
    assert next_batch(story.state) == ()
    story.batch_lands()
    assert [(member.subtask, member.commit) for fact in story.facts_of(f.BatchFormed) for member in fact.members] == [
        ("a", "c-a"),
        ("b", "c-b"),
    ]


def test_one_that_conflicts_goes_back_while_the_others_of_its_batch_land() -> None:
    story = queued(3)
    batch = story.state.landing.batch
    assert batch is not None
    first, *others = batch.members
    conflict = f.Failure(kind="conflict", summary="does not merge")
    out = f.Ejected(subtask=first.subtask, attempt=first.attempt, failure=conflict)
    story.happens(f.BatchTested(at=0, number=batch.number, tip="t", landed=tuple(others), ejected=(out,)))
    assert story.standings() == {"first": "merged", "s0": "failed", "s1": "merged", "s2": "merged"}


def test_candidates_that_come_while_a_red_batch_is_taken_apart_wait_for_its_end() -> None:
    story = Story(Policy(), plan_of("first", "a", "b", "late"))
    story.work_is_done("first", "a", "b")
    story.batch_lands()
    story.work_is_done("late")
    runs, landed, ejected = land_all(story, {"a"})
    assert (landed, ejected) == ({"b", "late"}, {"a"})
    order = [[member.subtask for member in fact.members] for fact in story.facts_of(f.BatchFormed)]
    assert order == [["first"], ["a", "b"], ["a"], ["b"], ["late"]]
    assert runs == 4
