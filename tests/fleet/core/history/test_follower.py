"""A follower reads each fact of a journal once and can stop between two slices."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fleet.core.facts import facts as f
from fleet.core.history.evolve import SLICE, Follower
from fleet.core.state.state import RunState
from tests.fleet.core.story import Story, plan_of


@dataclass
class Source:
    """A journal in memory."""

    held: list[f.Fact] = field(default_factory=list)
    may_have_changed: bool = True

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, f.Fact]]:
        return list(enumerate(self.held, 1))[after : after + limit]

    def changed(self) -> bool:
        return self.may_have_changed


def test_new_facts_are_read_once_and_folded_into_the_state() -> None:
    story = Story(plan=plan_of("a"))
    source, follower = Source(list(story.facts)), Follower()
    assert follower.catch_up(source)
    assert (follower.state, follower.seq, follower.loaded) == (story.state, len(story.facts), True)
    assert not follower.catch_up(source)


def test_a_source_that_has_not_changed_is_not_read() -> None:
    story = Story(plan=plan_of("a"))
    source, follower = Source(list(story.facts)), Follower()
    follower.catch_up(source)
    source.held.append(f.Paused(at=1, by="ada"))
    source.may_have_changed = False
    assert not follower.catch_up(source)
    assert follower.seq == len(story.facts)


def test_each_fact_is_passed_on_with_the_state_before_and_after_it() -> None:
    seen = list[tuple[RunState | None, str, RunState]]()
    story = Story(plan=plan_of("a"))
    Follower(lambda before, fact, after: seen.append((before, fact.kind, after))).catch_up(Source(list(story.facts)))
    assert [kind for _, kind, _ in seen] == [fact.kind for fact in story.facts]
    assert seen[0][0] is None
    assert all(then is before for (_, _, then), (before, _, _) in pairwise(seen))


def test_reading_stops_between_slices_and_continues_there() -> None:
    story = Story(plan=plan_of("a"))
    notes: list[f.Fact] = [f.WarningNoted(at=0, text=str(number)) for number in range(SLICE)]
    source, follower = Source([*story.facts, *notes]), Follower()
    assert follower.catch_up(source, lambda: False)
    assert (follower.seq, follower.loaded) == (SLICE, False)
    assert follower.catch_up(source, lambda: False)
    assert (follower.seq, follower.loaded) == (len(source.held), True)
