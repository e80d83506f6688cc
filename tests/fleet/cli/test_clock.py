"""The clock beside work that takes long: on a terminal it ticks, elsewhere it reminds, and it is silent on request."""

import sys

import anyio
import pytest

from fleet.cli import clock as clocks
from fleet.cli.clock import Clock, run_with_clock

TICK_S = 0.01


def work_beside(clock: Clock, begin: str = "gate") -> str:
    async def work() -> str:
        clock.begin(begin, "make test")
        await anyio.sleep(10 * TICK_S)
        return "done"

    return run_with_clock(work, clock)


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "TICK_S", TICK_S)
    monkeypatch.setattr(clocks, "REMIND_S", TICK_S)


def test_on_a_terminal_the_time_is_written_over_and_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert work_beside(Clock()) == "done"
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("gate: make test …\n\rgate: 0 s so far")
    assert shown.err.endswith(" \r")


def test_elsewhere_each_reminder_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    work_beside(Clock())
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["gate: make test …", "gate: 0 s so far"]


def test_a_quiet_one_shows_nothing_and_one_that_was_stopped_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    work_beside(Clock(quiet=True))

    async def silent() -> None:
        clock.time("gate")
        clock.stop()
        await anyio.sleep(5 * TICK_S)

    clock = Clock()
    run_with_clock(silent, clock)
    assert capsys.readouterr().err == ""


def test_an_error_of_the_work_ends_the_clock() -> None:
    async def broken() -> None:
        raise ValueError("no")

    with pytest.raises((ValueError, ExceptionGroup)):
        run_with_clock(broken, Clock())
