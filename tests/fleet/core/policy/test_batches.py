"""Which prefixes of the queue are tested side by side, and how their results are put together."""

from dataclasses import replace

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.base.vector import Vector
from fleet.core.facts.facts import (
    AttemptVerified,
    BaseChecked,
    BatchFormed,
    BatchTested,
    CheckRun,
    Ejected,
    Failure,
    Member,
)
from fleet.core.history import merge_queue
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.policy.landing import cuts, every_tree, failure_rate, next_sizes, prefixes, soon_count
from fleet.core.state.state import Landing
from tests.fleet.core.pretend import ids
from tests.fleet.core.story import Story, plan_of

RED = (CheckRun(criterion="the gate", command="make test", passed=False),)


def waiting(names: str) -> Landing:
    return Landing(queue=tuple(map(SubtaskId, names)))


def probing(landing: Landing, *sizes: int) -> Landing:
    for size in sizes:
        members = tuple(Member(subtask=id_, attempt=1, commit=id_) for id_ in landing.queue[:size])
        fact = BatchFormed(at=0.0, number=landing.batches + 1, members=members)
        landing = merge_queue.form_batch(landing, fact)
    return landing


def red(landing: Landing, number: int) -> Landing:
    return merge_queue.close_batch(landing, BatchTested(at=0.0, number=number, tip="", red=True, checks=RED))


def green(landing: Landing, number: int) -> Landing:
    probe = landing.open_batch(number)
    assert probe is not None
    return merge_queue.close_batch(landing, BatchTested(at=0.0, number=number, tip="tip", landed=probe.members))


def sizes_of(landing: Landing) -> list[int]:
    return [len(probe.members) for probe in landing.open_batches]


def test_a_green_prefix_and_a_longer_red_one_leave_those_between_as_suspects() -> None:
    landing = green(red(probing(waiting("abcdefghi"), 3, 6), 2), 1)
    assert landing.queue == tuple("defghi")
    assert landing.suspects == tuple("def")
    assert landing.suspicion == RED
    assert landing.open_batches == ()


def test_the_order_of_results_makes_no_difference() -> None:
    start = probing(waiting("abcdefghi"), 3, 6)
    one, other = green(red(start, 2), 1), red(green(start, 1), 2)
    assert replace(one, tested=Vector()) == replace(other, tested=Vector())
    assert [batch.number for batch in one.tested] == [2, 1]


def test_a_red_prefix_answers_the_longer_ones() -> None:
    landing = red(probing(waiting("abcdefghi"), 3, 6), 1)
    assert landing.suspects == tuple("abc")
    assert landing.open_batches == ()


def test_a_green_prefix_answers_the_shorter_ones() -> None:
    landing = green(probing(waiting("abcdefghi"), 3, 6), 2)
    assert landing.queue == tuple("ghi")
    assert landing.open_batches == ()


def test_a_longer_batch_continues_without_those_that_landed() -> None:
    landing = green(probing(waiting("abcdefghi"), 3, 6), 1)
    assert [member.subtask for probe in landing.open_batches for member in probe.members] == list("def")


def test_suspicion_ends_with_the_guilty_one() -> None:
    landing = red(probing(waiting("abc"), 2), 1)
    landing = merge_queue.remove(landing, ids("b"), guilty=ids("b"))
    assert (landing.queue, landing.suspects, landing.suspicion) == (("a", "c"), (), ())
    assert landing.outcomes == (False,)


def test_a_conflict_does_not_count_as_a_red_tree() -> None:
    landing = probing(waiting("abc"), 3)
    out = Ejected(subtask="b", attempt=1, failure=Failure(kind="conflict", summary="clashes"))
    members = tuple(member for member in landing.open_batches[0].members if member.subtask != "b")
    landing = merge_queue.close_batch(landing, BatchTested(at=0.0, number=1, tip="tip", landed=members, ejected=(out,)))
    assert (landing.queue, landing.outcomes) == ((), (True, True))


def test_a_free_slot_takes_what_came_meanwhile_on_top_of_what_is_tested() -> None:
    landing = probing(waiting("a"), 1)
    for late in "bcd":
        landing = merge_queue.enqueue(landing, SubtaskId(late))
    assert next_sizes(landing, slots=2, most=256) == (4,)
    assert next_sizes(landing, slots=1, most=256) == ()


def test_nothing_is_tested_where_nothing_waits_or_where_one_suspect_is_left() -> None:
    assert next_sizes(Landing(), slots=2, most=256) == ()
    assert next_sizes(red(probing(waiting("a"), 1), 1), slots=2, most=256) == ()


def test_suspects_are_cut_where_the_queue_holds_them() -> None:
    landing = probing(waiting("axbcyd"), 6)
    fact = BatchTested(at=0.0, number=1, tip="", red=True, suspects=tuple("abcd"))
    assert next_sizes(merge_queue.close_batch(landing, fact), slots=2, most=256) == (1, 4)


def test_where_there_is_time_for_every_tree_the_whole_queue_is_one_probe() -> None:
    assert next_sizes(waiting("abcdef"), slots=2, most=256, together=True) == (6,)
    assert next_sizes(waiting("abcdef"), slots=2, most=4, together=True) == (4,)
    assert next_sizes(probing(waiting("abcdef"), 2), slots=2, most=256, together=True) == ()


@pytest.mark.parametrize("mode", ["together", "every_commit"])
def test_whatever_is_tested_a_red_whole_is_narrowed_down(mode: str) -> None:
    landing = red(probing(waiting("abcd"), 4), 1)
    assert next_sizes(landing, slots=1, most=256, **{mode: True}) == (2,)


def test_there_is_time_for_every_tree_as_long_as_the_gate_is_quick() -> None:
    story = Story(Policy(every_commit_within_s=60, slots=2, check_base=True), plan_of("a", "b", "c"))
    gate = CheckRun(criterion="the gate", command="make test", passed=True, seconds=39.0)
    story.happens(BaseChecked(at=0, base="base", checks=(gate,)))
    assert every_tree(story.state, ())
    story.work_is_done("a", "b", "c")
    assert every_tree(story.state, ids("a", "b", "c"))
    slow = gate.model_copy(update={"seconds": 41.0})
    story.happens(BatchTested(at=0, number=story.state.landing.open_batches[0].number, tip="base", checks=(slow,)))
    assert not every_tree(story.state, ids("a", "b", "c"))
    assert every_tree(story.state, ids("a", "b"))


def test_while_every_tree_is_tested_a_long_queue_lands_in_parts() -> None:
    names = ids(*(f"s{number}" for number in range(30)))
    story = Story(Policy(every_commit_within_s=60, slots=2, workers=100, check_base=True), plan_of("first", *names))
    gate = CheckRun(criterion="the gate", command="make test", passed=True, seconds=1.95)
    story.happens(BaseChecked(at=0, base="base", checks=(gate,)))
    story.work_is_done("first", *names)
    story.batch_lands()
    [probe] = story.state.landing.open_batches
    assert [member.subtask for member in probe.members] == [*names[:10]]  # two at a time, two seconds each
    assert soon_count(story.state, names[:1]) == 1
    slow = gate.model_copy(update={"seconds": 50.0})
    story.happens(BatchTested(at=0, number=probe.number, tip="base", checks=(slow,)))
    assert soon_count(story.state, names) == 2


def test_the_time_of_its_own_checks_counts_too() -> None:
    story = Story(Policy(every_commit_within_s=60, slots=2), plan_of("a"))
    story.work_is_done("a")
    assert every_tree(story.state, ids("a"))
    own = CheckRun(criterion="it works", command="check a", passed=True, seconds=121.0)
    state = evolve(story.state, AttemptVerified(at=1, subtask="a", number=1, checks=(own,)))
    assert not every_tree(state, ids("a"))


def test_every_commit_is_one_probe_of_as_many_as_there_are_slots() -> None:
    assert next_sizes(waiting("abcdef"), slots=4, most=256, every_commit=True) == (4,)
    assert next_sizes(probing(waiting("abcdef"), 4), slots=4, most=256, every_commit=True) == ()


def test_the_whole_queue_is_tested_when_nothing_fails_and_few_when_much_does() -> None:
    assert prefixes(50, 2, 2, failure_rate([True] * 200))[-1] == 50
    assert prefixes(50, 2, 2, failure_rate([True, False] * 100)) == (1, 2)
    assert next_sizes(waiting("abcdefghijkl"), slots=2, most=5)[-1] == 5


def test_old_outcomes_are_forgotten() -> None:
    landing = Landing(outcomes=(False,) * merge_queue.REMEMBERED)
    for number in range(merge_queue.REMEMBERED):
        landing = green(probing(merge_queue.enqueue(landing, SubtaskId(f"s{number}")), 1), number + 1)
    assert landing.outcomes == (True,) * merge_queue.REMEMBERED


@pytest.mark.parametrize("length", [2, 3, 10, 200])
@pytest.mark.parametrize("slots", [1, 2, 5, 300])
@pytest.mark.parametrize("rate", [0.001, 0.05, 0.9])
def test_cuts_lie_inside_and_none_is_wasted(length: int, slots: int, rate: float) -> None:
    found = cuts(length, slots, rate)
    assert found == tuple(sorted(set(found)))
    assert 1 <= found[0] <= found[-1] < length
    assert len(found) <= slots
