"""The clock beside work that takes long: on a terminal it ticks, elsewhere it reminds, and it is silent on request."""

import anyio
import pytest

from fleet.cli.common import RunClock, run_with_clock

TICK_S = 0.01


def work_beside(clock: RunClock, begin: str = "gate") -> str:
    async def work() -> str:
        clock.begin(begin, "make test")
        await anyio.sleep(10 * TICK_S)
        return "done"

    return run_with_clock(work, clock)


def test_on_a_terminal_the_time_is_written_over_and_gone_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert work_beside(RunClock(is_terminal=True, every_s=TICK_S)) == "done"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gate: make test …\n\rgate: 0 s so far")
    assert shown.err.endswith(" \r")


def test_elsewhere_each_reminder_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    work_beside(RunClock(every_s=TICK_S))
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["gate: make test …", "gate: 0 s so far"]


def test_a_quiet_one_shows_nothing_and_one_that_was_stopped_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    work_beside(RunClock(quiet=True, every_s=TICK_S))

    async def silent() -> None:
        clock.time("gate")
        clock.stop()
        await anyio.sleep(5 * TICK_S)

    clock = RunClock(every_s=TICK_S)
    run_with_clock(silent, clock)
    assert capsys.readouterr().err == ""


def test_an_error_of_the_work_ends_the_clock() -> None:
    async def broken() -> None:
        raise ValueError("no")

    with pytest.raises((ValueError, ExceptionGroup)):
        run_with_clock(broken, RunClock(every_s=TICK_S))
