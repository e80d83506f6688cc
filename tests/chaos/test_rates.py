"""A sample of `make chaos`, each level in small; and that its figures are right."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from chaos.environment import Survival
from chaos.faults import FAULTS, LEVELS
from chaos.play import Played, episodes, play
from chaos.rates import passing_figure, planner_faults, rate_figure, row_details, unrecoverable_figure, wilson
from chaos.unrecoverable_runs import play_lasting_fault
from chaos.unrecoverable_subtasks import COMPLEX, UNRECOVERABLE, Verdict, keeps_limits, play_unrecoverable
from fleet.core.facts.facts import FailureKind
from tests.fleet.core.story import Story, plan_of

FLAKY_ROW = 35  # chance, not the seed, decides whether its check is red
SEED = 7
REMEDILESS = [kind for kind in UNRECOVERABLE if kind != COMPLEX]
"""Only `make chaos` plays the kind that is split again and again, which takes long."""


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.thorough)])
def of_each_level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, of_each_level: int) -> Played:
    """Some faults of every level, in one run."""
    certain = [fault for fault in FAULTS if fault.row != FLAKY_ROW]
    chosen = [episode.fault for level in LEVELS for episode in episodes(level, of_each_level, SEED, certain)]
    batch = [fault.episode(f"m{index:02}", Random(index)) for index, fault in enumerate(chosen)]  # noqa: S311 - not a secret
    faults = planner_faults(LEVELS[-1], Random(SEED))  # noqa: S311 - not a secret
    return play(tmp_path_factory.mktemp("faults"), batch, seed=SEED, planner_faults=faults)


def test_faults_of_every_level_are_recovered_from_without_a_human(mixed: Played, of_each_level: int) -> None:
    assert [outcome.episode.fault.name for outcome in mixed.outcomes if not outcome.recovered] == []
    mixed.done.ended(0)
    assert sum(outcome.struck for outcome in mixed.outcomes) >= 4 * of_each_level


def test_a_fault_opens_only_the_incidents_that_its_row_allows(mixed: Played) -> None:
    assert [(each.episode.fault.name, each.classes) for each in mixed.outcomes if not each.as_expected] == []
    calls = [each for each in mixed.outcomes if each.episode.fault.level == 1 and not each.episode.fault.classes]
    assert {outcome.attempts for outcome in calls} == {1}


@pytest.mark.parametrize(
    "kinds", [REMEDILESS[:3], pytest.param(REMEDILESS[3:], marks=pytest.mark.thorough)], ids=("three", "others")
)
def test_faults_without_a_remedy_end_with_a_question_to_a_human(tmp_path: Path, kinds: list[str]) -> None:
    verdicts = play_unrecoverable(tmp_path, 1, SEED, kinds)
    assert [verdict for verdict in verdicts if not verdict.honest] == []
    assert len(verdicts) == len(kinds)
    assert len(REMEDILESS) == 9


@pytest.mark.thorough
def test_a_run_whose_key_is_revoked_ends_with_a_question_and_what_landed(tmp_path: Path) -> None:
    """Without a new key and without an answer. `make chaos` plays this with every lasting fault."""
    verdict = play_lasting_fault("the key is revoked", 0, tmp_path, SEED)
    assert verdict.honest, verdict
    assert "no one answered" in verdict.reason


def test_endings_that_are_not_honest_and_runs_that_were_harmed_miss_the_target() -> None:
    honest = Verdict("any", asked=True, landed=False, endless=False)
    wrong = [
        replace(honest, asked=False),
        replace(honest, landed=True),
        replace(honest, endless=True),
        replace(honest, within_limits=False),
    ]
    assert (honest.honest, [verdict.honest for verdict in wrong]) == (True, [False] * 4)
    assert unrecoverable_figure([honest])[0].met
    figure, details = unrecoverable_figure([honest, *wrong])
    assert (figure.met, figure.where) == (False, "1 / 5")
    assert figure.note == "asked: 4, false success: 1, endless: 1, past a limit: 1"
    assert [line.startswith("NOT AS WANTED") for line in details].count(True) == 4
    unharmed = Survival("any", landed=True, asked=False, lost_attempts=0, reason="")
    assert passing_figure([unharmed])[0].met
    figure, details = passing_figure([unharmed, replace(unharmed, lost_attempts=1)])
    assert (figure.met, figure.where) == (False, "1 / 2")
    assert [line.startswith("NOT AS WANTED") for line in details].count(True) == 1


def test_attempts_retries_or_calls_beyond_the_limits_are_detected() -> None:
    story = Story(plan=plan_of("a"))
    kinds: tuple[FailureKind, ...] = ("check", "transient", "transient")
    for kind in kinds:
        story.attempt_fails("a", kind)
        if story.state.planning.open is not None:
            story.planner_answers(retry=[{"id": "a", "guidance": "again"}], add=plan_of("b").subtasks)
        else:
            story.time_passes_to_the_next_wake()
    state = story.state
    assert keeps_limits(state)
    for limit in ("max_attempts", "max_retries", "max_planner_calls", "max_subtasks"):
        assert not keeps_limits(replace(state, policy=state.policy.model_copy(update={limit: 0}))), limit


@pytest.mark.parametrize(
    ("good", "of", "low", "high"), [(200, 200, 0.981, 1.0), (190, 200, 0.910, 0.973), (0, 10, 0.0, 0.278)]
)
def test_the_interval_is_wilsons(good: int, of: int, low: float, high: float) -> None:
    assert list(wilson(good, of)) == pytest.approx([low, high], abs=0.001)


def test_the_same_seed_gives_the_same_faults() -> None:
    for level in LEVELS:
        assert episodes(level, 20, 3) == episodes(level, 20, 3)
        assert {each.fault for each in episodes(level, 200, 3)} == {each for each in FAULTS if each.level == level}


def test_a_rate_is_shown_with_its_denominator(mixed: Played) -> None:
    struck = [outcome for outcome in mixed.outcomes if outcome.struck]
    figure = rate_figure(5, struck)
    assert figure.where == f"{sum(outcome.recovered for outcome in struck)} / {len(struck)}"
    assert all(" / " in line for line in row_details(mixed.outcomes))
