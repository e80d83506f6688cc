"""A sample of all kills; `make kill` has all points, `make soak` 2,000 seeds."""

import pytest

from tests.chaos.harness import met_rows


@pytest.mark.thorough
def test_a_kill_at_any_named_point_changes_nothing_in_the_end() -> None:
    """The first and the last point of every name, in the scenario with a conflict and a red batch."""
    assert met_rows("chaos.kill", "points", "clash", "--share", "1000") == 1


@pytest.mark.parametrize(
    ("scenarios", "seeds"),
    [
        ("plain", range(3)),
        pytest.param("plain", range(3, 12), marks=pytest.mark.thorough),
        pytest.param("trouble clash", range(8), marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_runs_that_are_killed_again_and_again_reach_their_end(scenarios: str, seeds: range) -> None:
    """Twenty: most of them of the scenario that needs a third of the engines of the others."""
    names, first, count = scenarios.split(), str(seeds.start), str(len(seeds))
    assert met_rows("chaos.kill", "seeds", *names, "--first", first, "--seeds", count, "--jobs", "2") == len(names)
