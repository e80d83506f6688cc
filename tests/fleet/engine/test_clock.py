"""A machine whose clock is set during a run."""

import time

import pytest

from fleet.engine.clock import SystemClock

HOUR_S = 3600.0


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_setting_the_machines_clock_moves_no_time_of_a_run(monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    clock, said = SystemClock(), time.time
    assert abs(clock.now() - said()) < HOUR_S / 2
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: said() + jump_s)
    assert 0 <= clock.now() - before < HOUR_S / 2
    assert abs(SystemClock().now() - time.time()) < HOUR_S / 2, "the next run begins with what the clock says then"
