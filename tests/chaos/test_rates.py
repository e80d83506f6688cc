"""A share of `make chaos`: each level once, in small; and that the figures are what they say."""

from pathlib import Path
from random import Random

import pytest

from tests.chaos.faults import FAULTS, LEVELS
from tests.chaos.hopeless import COMPLEX, HOPELESS, hopeless
from tests.chaos.lost import lost
from tests.chaos.play import Played, episodes, play
from tests.chaos.rates import by_row, planner_troubles, table, wilson

SMALL = 3
BY_CHANCE = 35  # a flaky check's row: chance, not the seed, says whether it is red
SEED = 7


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Some of every level, in one run."""
    sure = [fault for fault in FAULTS if fault.row != BY_CHANCE]
    played = [one for level in LEVELS for one in episodes(level, SMALL, SEED, sure)]
    renamed = [
        fault.fault.episode(f"m{index:02}", Random(index))  # noqa: S311 - it is no secret
        for index, fault in enumerate(played)
    ]
    troubles = planner_troubles(LEVELS[-1], Random(SEED))  # noqa: S311 - it is no secret
    return play(tmp_path_factory.mktemp("faults"), renamed, seed=SEED, planner_faults=troubles)


def test_faults_of_every_level_are_recovered_from_without_a_human(mixed: Played) -> None:
    assert [one.episode.fault.name for one in mixed.outcomes if not one.recovered] == []
    mixed.done.ended(0)
    assert sum(one.struck for one in mixed.outcomes) >= 4 * SMALL


def test_a_fault_opens_no_incident_but_those_its_row_allows(mixed: Played) -> None:
    assert [(one.episode.fault.name, one.classes) for one in mixed.outcomes if not one.as_expected] == []
    calls = [one for one in mixed.outcomes if one.episode.fault.level == 1 and not one.episode.fault.classes]
    assert {one.attempts for one in calls} == {1}


def test_what_nobody_can_do_ends_with_a_human_asked(tmp_path: Path) -> None:
    """Those that take long, because they are split again and again, are played by `make chaos` alone."""
    quick = [kind for kind in HOPELESS if kind != COMPLEX]
    verdicts = hopeless(tmp_path, 1, SEED, quick)
    assert [one for one in verdicts if not one.honest] == []
    assert len(verdicts) == len(quick) == 9


def test_a_run_whose_key_is_revoked_ends_with_a_human_asked_and_what_landed(tmp_path: Path) -> None:
    """Nobody mends it, and nobody answers. `make chaos` plays this with every kind of loss."""
    verdict = lost("the key is revoked", 0, tmp_path, SEED)
    assert verdict.honest, verdict
    assert "nobody answered" in verdict.said


@pytest.mark.parametrize(
    ("good", "of", "low", "high"), [(200, 200, 0.981, 1.0), (190, 200, 0.910, 0.973), (0, 10, 0.0, 0.278)]
)
def test_the_interval_is_wilsons(good: int, of: int, low: float, high: float) -> None:
    assert list(wilson(good, of)) == pytest.approx([low, high], abs=0.001)


def test_the_same_seed_gives_the_same_faults() -> None:
    for level in LEVELS:
        assert episodes(level, 20, 3) == episodes(level, 20, 3)
        assert {one.fault for one in episodes(level, 200, 3)} == {one for one in FAULTS if one.level == level}


def test_a_rate_stands_with_its_denominator(mixed: Played) -> None:
    (told,) = table({5: [one for one in mixed.outcomes if one.struck]})[2:]
    assert f"/ {sum(one.struck for one in mixed.outcomes)} |" in told
    assert all(" / " in line for line in by_row(mixed.outcomes))
