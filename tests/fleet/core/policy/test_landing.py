"""Landing, as a story: the guilty are found, the innocent land, and the gate runs seldom."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.landing import send_back
from tests.effort import examples
from tests.fleet.core.story import Story, plan_of

RED = f.CheckRun(criterion="the gate", command="make test", passed=False, exit_code=1, output="1 failed")


def queued(count: int, **limits: object) -> Story:
    """Candidates that all wait for the gate: a first one holds it until the others are there."""
    names = [f"s{number}" for number in range(count)]
    policy = Policy.model_validate({"workers": 1000, "batch": 500, "slots": 1, "every_commit_within_s": 0, **limits})
    story = Story(policy, plan_of("first", *names))
    story.work_is_done("first", *names)
    story.batch_lands()
    return story


def land_all(story: Story, guilty: set[str], *, newest: bool = False) -> tuple[int, set[str], set[str]]:
    """How often the gate ran, who landed, who was sent back."""
    runs, landed = 0, set[str]()
    while probes := story.state.landing.open_batches:
        runs += 1
        probe = probes[-1] if newest else probes[0]
        names = {member.subtask for member in probe.members}
        red = bool(guilty & names)
        members = () if red else probe.members
        landed |= {member.subtask for member in members}
        tip = f"tip-{probe.number}" if members else story.state.tip
        checks = (RED,) if red else ()
        if red and probe.alone:
            story.happens(send_back(story.state, probe.members[0].subtask, checks, 0))
        story.happens(f.BatchTested(at=0, number=probe.number, tip=tip, landed=members, red=red, checks=checks))
    back = [fact for fact in story.facts_of(f.AttemptFailed) if fact.failure.kind == "integration"]
    return runs, landed, {fact.subtask for fact in back}


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("slots", [1, 2])
def test_one_guilty_in_eight_is_found_and_the_rest_lands_in_few_runs_of_the_gate(place: int, slots: int) -> None:
    runs, landed, sent_back = land_all(queued(8, slots=slots), {f"s{place}"})
    assert sent_back == {f"s{place}"}
    assert landed == {f"s{number}" for number in range(8)} - sent_back
    assert runs <= 3 * ceil(log2(8))


@given(st.integers(1, 40), st.integers(1, 20), st.integers(1, 4), st.booleans(), st.data())
@examples(80)
def test_all_innocent_land_and_all_guilty_go_back_whatever_the_sizes_and_the_order_of_results(
    count: int, batch: int, slots: int, newest: bool, data: st.DataObject
) -> None:
    guilty = {f"s{number}" for number in data.draw(st.sets(st.integers(0, count - 1)))}
    story = queued(count, batch=batch, slots=slots)
    _, landed, sent_back = land_all(story, guilty, newest=newest)
    assert sent_back == guilty
    assert landed == {f"s{number}" for number in range(count)} - guilty


def test_a_green_queue_lands_in_ever_larger_batches() -> None:
    story = queued(100)
    runs, landed, _ = land_all(story, set())
    assert len(landed) == 100
    sizes = [len(fact.members) for fact in story.facts_of(f.BatchFormed)]
    assert sizes[1:-1] == sorted(sizes[1:-1])
    assert runs <= 6


def test_a_batch_is_never_larger_than_the_policy_allows() -> None:
    story = queued(100, batch=7)
    land_all(story, set())
    assert max(len(fact.members) for fact in story.facts_of(f.BatchFormed)) == 7


def test_a_candidate_that_is_guilty_goes_to_the_planner_with_the_output_of_the_gate() -> None:
    story = queued(2)
    land_all(story, {"s1"})
    failure = story.of("s1").failure
    assert failure is not None
    assert failure.kind == "integration"
    assert "the gate" in failure.summary
    assert "1 failed" in failure.evidence
    assert story.of("s1").remedy == "planner"


def test_with_one_slot_no_other_batch_is_formed_while_one_is_tested() -> None:
    story = Story(Policy(slots=1), plan_of("a", "b"))
    story.work_is_done("a", "b")
    [batch] = story.state.landing.open_batches
    assert [member.subtask for member in batch.members] == ["a"]
    story.batch_lands()
    assert [(member.subtask, member.commit) for fact in story.facts_of(f.BatchFormed) for member in fact.members] == [
        ("a", "c-a"),
        ("b", "c-b"),
    ]


def test_with_two_slots_what_comes_meanwhile_is_tested_on_top_of_what_is_under_test() -> None:
    story = Story(Policy(slots=2, every_commit_within_s=0), plan_of("a", "b"))
    story.work_is_done("a", "b")
    batches = story.state.landing.open_batches
    assert [[member.subtask for member in batch.members] for batch in batches] == [["a"], ["a", "b"]]


def test_candidates_that_come_while_suspects_are_narrowed_down_wait_for_that() -> None:
    story = Story(Policy(slots=1), plan_of("first", "a", "b", "late"))
    story.work_is_done("first", "a", "b")
    story.batch_lands()
    story.work_is_done("late")
    _, landed, sent_back = land_all(story, {"a"})
    assert (landed, sent_back) == ({"b", "late"}, {"a"})
    order = [[member.subtask for member in fact.members] for fact in story.facts_of(f.BatchFormed)]
    assert order[:3] == [["first"], ["a", "b"], ["a"]]
    assert ["b", "late"] in order[3:]
