"""A machine whose clock is set during a run."""

import time

import pytest

from fleet.engine.loop import SystemClock

MINUTE_S, HOUR_S = 60.0, 3600.0


def test_a_run_begins_with_what_the_machines_clock_says() -> None:
    assert abs(SystemClock().now() - time.time()) < MINUTE_S


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_setting_the_machines_clock_moves_no_time_of_a_run(jump_s: float) -> None:
    """A clock that was made before the machine's was set by an hour goes on where it was."""
    clock = SystemClock(SystemClock().zero + jump_s)
    assert abs(clock.now() - time.time() - jump_s) < MINUTE_S
    assert abs(clock.now() - jump_s - SystemClock().now()) < MINUTE_S
