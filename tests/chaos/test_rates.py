"""A share of `make chaos`: each level once, in small; and that the figures are what they say."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fleet.core.facts import FailureKind
from tests.chaos.faults import FAULTS, LEVELS
from tests.chaos.hopeless import COMPLEX, HOPELESS, Verdict, hopeless, within_limits
from tests.chaos.lost import lost
from tests.chaos.play import Played, episodes, play
from tests.chaos.rates import by_row, hopeless_lines, planner_troubles, table, wilson, world_lines
from tests.chaos.world import Weathered
from tests.core.story import Story, plan_of

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


def test_an_end_that_is_not_honest_is_told() -> None:
    honest = Verdict("any", asked=True, landed=False, endless=False)
    bad = [
        replace(honest, asked=False),
        replace(honest, landed=True),
        replace(honest, endless=True),
        replace(honest, within=False),
    ]
    assert (honest.honest, [one.honest for one in bad]) == (True, [False] * 4)
    told = hopeless_lines([honest, *bad])
    assert [line.startswith("  NOT AS WANTED") for line in told].count(True) == 4
    for said in ("5 of 1 kinds", "told at once: 4", "false success: 1", "endless: 1", "past a limit: 1"):
        assert said in told[0]
    fine = Weathered("any", landed=True, asked=False, attempts_lost=0, said="")
    assert "no attempt lost: 1" in world_lines([fine, replace(fine, attempts_lost=1)])[0]


def test_more_attempts_retries_or_calls_than_the_limits_allow_are_seen() -> None:
    story = Story(plan=plan_of("a"))
    kinds: tuple[FailureKind, ...] = ("check", "transient", "transient")
    for kind in kinds:
        story.attempt_fails("a", kind)
        if story.state.planning.open is not None:
            story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
        else:
            story.time_passes_to_the_next_wake()
    state = story.state
    assert within_limits(state)
    for limit in ("max_attempts", "max_retries", "max_planner_calls", "max_subtasks"):
        assert not within_limits(replace(state, policy=state.policy.model_copy(update={limit: 0}))), limit


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
