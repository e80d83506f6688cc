"""Boxes of an engine that is killed: 20 of them; 100 by `make kill`."""

from tests.chaos.harness import met_rows


def test_no_box_of_a_dead_engine_lives_when_the_next_one_leases_its_first_worktree() -> None:
    """Each holds a command that ignores signals, and a child in a session of its own."""
    assert met_rows("chaos.boxes", "boxes", "--many", "20") == 3
