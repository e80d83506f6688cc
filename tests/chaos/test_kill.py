"""A sample of all kills, small enough for `make test`; `make kill` has all points, `make soak` 2,000 seeds."""

import pytest

from tests.chaos.harness import met_rows


def test_a_kill_at_any_named_point_changes_nothing_in_the_end() -> None:
    """The first and the last point of every name, in the scenario with a conflict and a red batch."""
    assert met_rows("chaos.kill", "points", "clash", "--share", "1000") == 1


@pytest.mark.parametrize("scenarios", [("plain",), ("trouble", "clash")], ids=" ".join)
def test_runs_that_are_killed_again_and_again_reach_their_end(scenarios: tuple[str, ...]) -> None:
    """Twenty: most of them of the scenario that needs a third of the engines of the others."""
    seeds = "12" if scenarios == ("plain",) else "8"
    assert met_rows("chaos.kill", "seeds", *scenarios, "--seeds", seeds, "--jobs", "2") == len(scenarios)
