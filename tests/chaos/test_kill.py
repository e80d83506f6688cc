"""A share of all kills, small enough for each run of the tests; `make kill` has all points, `make soak` 2,000 seeds."""

import subprocess
import sys
from pathlib import Path

from tests.chaos.damage import DAMAGES

ROOT = Path(__file__).parents[2]
LONGEST_S = 1500


def harness(*arguments: str) -> str:
    """In an interpreter of its own: it forks, and a process with threads should not."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_kill_at_any_named_point_changes_nothing_in_the_end() -> None:
    """The first and the last of every name, where a conflict and a red batch are about."""
    assert ", 0 violations" in harness("tests.chaos.kill", "points", "clash", "--share", "1000")


def test_runs_that_are_killed_again_and_again_get_there() -> None:
    """Fifty: most of them of the scenario that takes a third of the lives of the others."""
    assert harness("tests.chaos.kill", "seeds", "plain", "--seeds", "30").count(", 0 violations") == 1
    assert harness("tests.chaos.kill", "seeds", "trouble", "clash", "--seeds", "20", "--jobs", "2").count(", 0 v") == 2


def test_what_is_damaged_after_a_kill_is_mended_or_done_again_and_nobody_is_asked() -> None:
    """Each kind of damage once, with most of the run behind it."""
    told = harness("tests.chaos.damage", "--moments", "1")
    assert told.count(", 0 violations") == told.count("damage: ") == len(DAMAGES)


def test_no_box_of_a_dead_engine_lives_when_the_next_one_begins_to_work() -> None:
    """Each holds a command that ignores signals, and a child in a session of its own; 100 by `make kill`."""
    assert "0 when its first work began" in harness("tests.chaos.crowd", "boxes", "--many", "20")
