"""A replay yields each fact when its time has come; it can be paused, stepped, hurried and set back."""

from dataclasses import dataclass

import pytest

from dashboards.state_history import LONGEST_GAP_S, RunReplay
from dashboards.text.event_text import events_of
from fleet.core.facts import facts as f
from fleet.core.facts.facts import Fact
from fleet.read.follow import FollowedRun
from tests.dashboards.feeds import MemoryFeed
from tests.fleet.core.pretend import started


@dataclass
class Hands:
    """A clock that is moved by hand."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


def noted(at: float) -> Fact:
    return f.WarningNoted(at=at, text=f"at {at:g}")


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def replay(clock: Hands) -> RunReplay:
    facts = [started(), noted(1), noted(2), noted(5), noted(5), noted(100_000)]
    return RunReplay(MemoryFeed(facts, alive=False), clock, speed=2.0)


def played_count(replay: RunReplay) -> int:
    return len(replay.facts(0, 1000))


def test_facts_come_when_their_time_has_come(replay: RunReplay, clock: Hands) -> None:
    assert played_count(replay) == 1
    clock.now += 0.6
    assert played_count(replay) == 2
    assert replay.now() == pytest.approx(1.2)
    clock.now += 2
    assert played_count(replay) == 5
    assert [seq for seq, _ in replay.facts(2, 2)] == [3, 4]


def test_long_silence_is_shortened_and_the_end_is_the_end(replay: RunReplay, clock: Hands) -> None:
    assert replay.length == 5 + LONGEST_GAP_S
    assert replay.alive
    clock.now += 11
    assert (played_count(replay), replay.alive, replay.over) == (6, False, True)
    assert replay.now() == 100_000


def test_paused_nothing_moves_but_by_steps(replay: RunReplay, clock: Hands) -> None:
    replay.pause(True)
    clock.now += 50
    assert played_count(replay) == 1
    replay.step()
    assert played_count(replay) == 2
    replay.step()
    replay.step()
    assert played_count(replay) == 5, "facts of the same moment come together"
    replay.pause(False)
    clock.now += 1
    assert replay.position == pytest.approx(7.0)


def test_speed_changes_what_comes_not_what_was(replay: RunReplay, clock: Hands) -> None:
    clock.now += 1
    replay.faster(2.0)
    assert replay.position == pytest.approx(2.0)
    clock.now += 1
    assert replay.position == pytest.approx(6.0)


def test_after_going_back_facts_are_played_again(replay: RunReplay, clock: Hands) -> None:
    clock.now += 2
    watched = FollowedRun(MemoryFeed([]), replay.now, facts=replay, tell=events_of)
    watched.catch_up(1)
    assert watched._follower.seq == 3
    replay.jump(-3.5)
    assert played_count(replay) == 1
    replay.jump(1000)
    assert played_count(replay) == 6


def test_a_replay_that_has_ended_is_at_its_end(replay: RunReplay, clock: Hands) -> None:
    clock.now += 1000
    assert str(replay) == f"REPLAY ended {replay.length:.0f}/{replay.length:.0f} s"


def test_it_goes_from_failure_to_failure(clock: Hands) -> None:
    failed = [
        f.AttemptFailed(at=at, subtask="a", number=1, failure=f.Failure(kind="check", summary="red")) for at in (3, 7)
    ]
    replay = RunReplay(MemoryFeed([started(), noted(1), *failed, noted(9)], alive=False), clock, speed=1.0)
    replay.pause(paused=True)
    assert [replay.next_failure(1), replay.next_failure(-1)] == [3, 0]
    replay.jump(3)
    assert [replay.next_failure(1), replay.next_failure(-1)] == [7, 0]
    replay.jump(4)
    assert [replay.next_failure(1), replay.next_failure(-1)] == [9, 3]
