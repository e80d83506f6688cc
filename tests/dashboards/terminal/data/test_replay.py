"""A replay tells each fact when its time has come; it can be paused, stepped, hurried and set back."""

from dataclasses import dataclass

import pytest

from dashboards.terminal.replayed import LONGEST_GAP_S, Replay
from dashboards.terminal.watched import Watched
from fleet.core import facts as f
from fleet.core.facts import Fact
from tests.core.pretend import started
from tests.dashboards.feeds import Told


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
def replay(clock: Hands) -> Replay:
    facts = [started(), noted(1), noted(2), noted(5), noted(5), noted(100_000)]
    return Replay(Told(facts, alive=False), clock, speed=2.0)


def told(replay: Replay) -> int:
    return len(replay.read(0, 1000))


def test_facts_come_when_their_time_has_come(replay: Replay, clock: Hands) -> None:
    assert told(replay) == 1
    clock.now += 0.6
    assert told(replay) == 2
    assert replay.now() == pytest.approx(1.2)
    clock.now += 2
    assert told(replay) == 5
    assert [seq for seq, _ in replay.read(2, 2)] == [3, 4]


def test_long_silence_is_shortened_and_the_end_is_the_end(replay: Replay, clock: Hands) -> None:
    assert replay.length == 5 + LONGEST_GAP_S
    assert replay.alive
    clock.now += 11
    assert (told(replay), replay.alive, replay.over) == (6, False, True)
    assert replay.now() == 100_000


def test_paused_nothing_moves_but_by_steps(replay: Replay, clock: Hands) -> None:
    replay.pause(True)
    clock.now += 50
    assert told(replay) == 1
    replay.step()
    assert told(replay) == 2
    replay.step()
    replay.step()
    assert told(replay) == 5, "facts of the same moment come together"
    replay.pause(False)
    clock.now += 1
    assert replay.position == pytest.approx(7.0)


def test_speed_changes_what_comes_not_what_was(replay: Replay, clock: Hands) -> None:
    clock.now += 1
    replay.faster(2.0)
    assert replay.position == pytest.approx(2.0)
    clock.now += 1
    assert replay.position == pytest.approx(6.0)


def test_going_back_means_telling_it_again(replay: Replay, clock: Hands) -> None:
    clock.now += 2
    watched = Watched(replay, replay.now)
    watched.catch_up(1)
    assert watched.seq == 3
    assert replay.jump(-3.5)
    assert told(replay) == 1
    assert not replay.jump(1000)
    assert told(replay) == 6
