"""A run at each of its moments is the run that was there then, whichever way one comes to it."""

import pytest

from dashboards.state_history import Past
from dashboards.text.event_text import events_of
from fleet.core.history.evolve import SLICE, evolve
from fleet.core.plans.limits import Policy
from fleet.core.state.state import RunState
from fleet.read.follow import FollowedRun
from tests.dashboards.feeds import MemoryFeed
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def feed() -> MemoryFeed:
    return run_of(12)


def run_of(subtasks: int) -> MemoryFeed:
    story = Story(Policy(workers=4), plan_of(*(f"s{number}" for number in range(subtasks))))
    for number in range(subtasks):
        story.now += 5
        story.model_is_called(f"s{number}")
        story.landed(f"s{number}")
    return MemoryFeed(story.facts, alive=False)


def read(feed: MemoryFeed) -> Past:
    made = Past(feed)
    while not made.loaded:
        made.read(0.001)
    return made


def test_every_moment_is_what_was_then_forwards_and_backwards() -> None:
    feed = run_of(60)
    made = Past(feed, apart=SLICE)
    while not made.loaded:
        made.read(0.001)
    assert len(made) == len(feed.recorded) > 2 * SLICE
    states: list[RunState] = []
    for fact in feed.recorded:
        states.append(evolve(states[-1] if states else None, fact))
    places = list(range(1, len(made) + 1))
    for place in (*places[::7], *reversed(places[::5]), places[-1], places[0]):
        then = made.at(place)
        assert then.state == states[place - 1]
        assert then.now == states[place - 1].last_at


def test_events_and_figures_are_those_of_then(feed: MemoryFeed) -> None:
    made = read(feed)
    whole = FollowedRun(feed, lambda: 0.0, tell=events_of)
    whole.catch_up(1.0)
    assert [event.text for event in made.at(len(made)).events] == [event.text for event in whole.events]
    half = made.at(len(made) // 2)
    assert [event.text for event in half.events] == [event.text for event in whole.events][: len(half.events)]
    assert 0 < sum(half.landings(4)) < sum(whole.landings(4)) == 12
    assert len(made.at(len(made)).events) == len(whole.events), "a moment before does not change one after"


def test_a_step_leads_to_the_event_or_the_time_beside(feed: MemoryFeed) -> None:
    made = read(feed)
    first, last = made.event_after(1), len(made)
    assert made.event_before(made.event_after(first)) == first
    assert made.event_after(last) == last
    assert made.event_before(1) == 1
    assert made.place_at(-10) == 1
    assert made.place_at(1e9) == last
    middle = made.place_at(30)
    assert made.moment(middle) <= 30 < made.moment(middle + 1)


def test_a_run_that_goes_on_has_more_moments_later(feed: MemoryFeed) -> None:
    recorded = list(feed.recorded)
    growing = MemoryFeed(recorded[:20])
    made = read(growing)
    assert len(made) == 20
    growing.recorded = recorded
    made.read(10)
    assert len(made) == len(recorded)
