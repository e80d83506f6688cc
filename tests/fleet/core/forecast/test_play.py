"""One play of a plan: what starts when, what waits for what, who is paid."""

import pytest

from fleet.core.forecast.draws import Draws
from fleet.core.forecast.play import Network, Played, Rules, Try, play

SURE = Try(lands=1.0, dollars=1.0, seconds=100.0)
NEVER = Try(lands=0.0, dollars=1.0, seconds=100.0)
RULES = Rules(
    workers=2,
    slots=1,
    gate_s=10.0,
    quick_s=0.0,
    has_planner=True,
    reports=False,
    settle_s=2.0,
    call_s=30.0,
    call_dollars=5.0,
)


class Even(Draws):
    """Without chance: every attempt takes and costs what is usual."""

    def factor(self, width: float) -> float:
        del width
        return 1.0


def network(*needs: tuple[int, ...]) -> Network:
    """A plan in which each subtask needs these others."""
    followers = tuple(tuple(n for n, needed in enumerate(needs) if each in needed) for each in range(len(needs)))
    return Network(kinds=(0,) * len(needs), needs=tuple(map(len, needs)), followers=followers)


def played(plan: Network, *tries: Try, **rules: object) -> Played:
    values = {name: getattr(RULES, name) for name in RULES.__slots__} | rules
    return play(plan, {0: tries}, Rules(**values), Even())


def test_as_many_start_at_once_as_there_are_workers() -> None:
    four = network((), (), (), ())
    assert played(four, SURE) == Played(workers=4.0, planner=0.0, seconds=220.0, landed=4)
    assert played(four, SURE, workers=4).seconds == 120.0


def test_what_needs_others_starts_when_these_have_landed() -> None:
    assert played(network((), (0,), (1,)), SURE).seconds == 330.0


def test_what_fails_waits_for_the_planner_and_is_tried_again() -> None:
    assert played(network(()), NEVER, SURE) == Played(workers=2.0, planner=5.0, seconds=240.0, landed=1)


def test_failures_that_come_during_a_call_cost_one_call_together() -> None:
    assert played(network((), (), (), ()), NEVER, SURE, workers=4).planner == 2 * 5.0


def test_a_climb_needs_no_planner() -> None:
    climbs = Try(lands=0.0, dollars=1.0, seconds=100.0, climbs=True)
    assert played(network(()), climbs, SURE) == Played(workers=2.0, planner=0.0, seconds=210.0, landed=1)


def test_what_needs_something_given_up_never_starts() -> None:
    assert played(network((), (0,)), NEVER, NEVER) == Played(workers=2.0, planner=5.0, seconds=230.0, landed=0)


def test_without_a_planner_a_failure_is_the_end() -> None:
    assert played(network(()), NEVER, SURE, has_planner=False) == Played(1.0, 0.0, 100.0, 0)


def test_a_planner_that_made_the_plan_reads_what_landed() -> None:
    made = played(network((), (0,)), SURE, reports=True)
    assert made == Played(workers=2.0, planner=10.0, seconds=252.0, landed=2)


@pytest.mark.parametrize(("quick_s", "seconds"), [(0.0, 120.0), (1000.0, 140.0)])
def test_while_that_is_quick_the_tree_of_each_commit_is_tested(quick_s: float, seconds: float) -> None:
    assert played(network((), (), (), ()), SURE, workers=4, quick_s=quick_s).seconds == seconds


def test_draws_are_the_same_each_time_and_look_like_chance() -> None:
    one, other = Draws(), Draws()
    shares = [one.share() for _ in range(2_000)]
    assert shares == [other.share() for _ in range(2_000)]
    assert 0.48 < sum(shares) / len(shares) < 0.52
    normal = [one.normal() for _ in range(2_000)]
    assert abs(sum(normal)) / len(normal) < 0.1
    assert 0.85 < sum(each <= 1.2816 for each in normal) / len(normal) < 0.95
    assert 0.95 < sum(one.factor(0.5) for _ in range(2_000)) / 2_000 < 1.05
