"""What waits for whom, and the longest chain."""

from fleet.read.plan_graph import waiting
from tests.fleet.core.pretend import ids
from tests.fleet.core.story import plan_of

PLAN = plan_of("d needs b c", "a", "b needs a", "c needs a", "e needs d", "alone")


def test_what_waits_through_others_is_counted_once() -> None:
    found = waiting(PLAN, {*ids("a", "b", "c", "d", "e", "alone")})
    assert found.counts == {"a": 4, "b": 2, "c": 2, "d": 1, "e": 0, "alone": 0}
    assert found.chain in ({"a", "b", "d", "e"}, {"a", "c", "d", "e"})


def test_what_is_closed_holds_nothing_up() -> None:
    found = waiting(PLAN, {*ids("c", "d", "e")})
    assert found.counts == {"c": 2, "d": 1, "e": 0}
    assert found.chain == {"c", "d", "e"}


def test_subtasks_that_wait_for_nothing_are_no_chain() -> None:
    assert waiting(PLAN, {*ids("alone", "e")}).chain == frozenset()
    assert waiting(PLAN, set()).counts == {}
