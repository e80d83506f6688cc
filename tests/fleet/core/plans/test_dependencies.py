"""The dependencies of subtasks as a graph: cycles, ancestors, chains and waves."""

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan, ancestors, find_cycle, longest_chains, waves
from tests.fleet.core.pretend import ids
from tests.fleet.core.story import plan_of

named = st.sampled_from(ids(*"abcdefgh"))
graphs = st.dictionaries(named, st.lists(named, max_size=3).map(tuple), min_size=1)
Needs = dict[SubtaskId, tuple[SubtaskId, ...]]


def reaches(needs: Needs, start: SubtaskId) -> set[SubtaskId]:
    """Everything `start` needs in the end, itself only by way of another."""
    seen = set[SubtaskId]()
    todo = [need for need in needs.get(start, ()) if need != start]
    while todo:
        if (here := todo.pop()) not in seen:
            seen.add(here)
            todo += [need for need in needs.get(here, ()) if need != here]
    return seen


@given(graphs)
def test_a_cycle_is_found_exactly_when_there_is_one(needs: Needs) -> None:
    cycle = find_cycle(needs)
    assert bool(cycle) == any(id_ in reaches(needs, id_) for id_ in needs)
    for id_, need in pairwise(cycle):
        assert need in needs[id_]
    assert not cycle or cycle[0] == cycle[-1]


def test_a_chain_may_be_as_long_as_any_plan() -> None:
    lines = ["s0", *(f"s{number} needs s{number - 1}" for number in range(1, 5000))]
    assert find_cycle({subtask.id: subtask.depends_on for subtask in plan_of(*lines).subtasks}) == ()


@given(graphs)
def test_without_a_cycle_each_subtask_has_its_ancestors_and_the_longest_chain_to_it(
    needs: Needs,
) -> None:
    assume(not find_cycle(needs) and not any(id_ in direct for id_, direct in needs.items()))
    lands_before, everything = ancestors(needs), {*needs, *(need for direct in needs.values() for need in direct)}
    for id_ in everything:
        assert {other for other in everything if lands_before(other, id_)} == reaches(needs, id_)
    chains = longest_chains(needs)
    for id_, direct in needs.items():
        assert chains[id_] == 1 + max((chains[need] for need in direct), default=0)


def test_waves_group_subtasks_by_what_must_land_before_them() -> None:
    assert waves(plan_of("d needs b c", "a", "b needs a", "c")) == [["a", "c"], ["b"], ["d"]]


def test_an_empty_plan_has_no_waves() -> None:
    assert waves(Plan()) == []
