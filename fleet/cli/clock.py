"""A clock on standard error beside work that takes longer than a second: what is done, and for how long."""

import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio
import typer

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from fleet.cli.common import run_async
from fleet.cli.verbosity import is_quiet

TICK_S, REMIND_S = 1.0, 30.0  # how often a person is shown the time: on a terminal, and elsewhere
LINE = 200  # characters of a command
LABEL = 40
SHOWN = LABEL + 25  # of the line with the time
Result = TypeVar("Result")


class Clock:
    """Shows the step that is under way, with its time. One that is quiet shows nothing.

    By default on the terminal that standard error is, if it is one, and as often as that takes.
    """

    def __init__(self, *, quiet: bool = False, is_terminal: bool | None = None, every_s: float | None = None) -> None:
        self._step = ""
        self._since = 0.0
        self._quiet = quiet or is_quiet()
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._every_s = every_s or (TICK_S if self._is_terminal else REMIND_S)

    def begin(self, step: str, command: str) -> None:
        """A step begins: say so, and show its time from now on."""
        self.time(step)
        if not self._quiet:
            typer.echo(f"{step}: {safe(command, limit=LINE)} …", err=True)

    def time(self, step: str) -> None:
        """Show the time of a step from now on."""
        self.stop()
        self._step, self._since = safe(step, limit=LABEL), time.monotonic()

    def stop(self) -> None:
        """Show no time until the next step begins: something else is printed, or asked."""
        if self._step and self._is_terminal and not self._quiet:
            typer.echo(f"\r{' ' * SHOWN}\r", err=True, nl=False)
        self._step = ""

    async def tick(self) -> None:
        while not self._quiet:
            await anyio.sleep(self._every_s)
            if self._step:
                text = f"{self._step}: {duration(time.monotonic() - self._since)} so far"
                typer.echo(f"\r{text}" if self._is_terminal else text, err=True, nl=not self._is_terminal)


def run_with_clock(main: Callable[[], Coroutine[Any, Any, Result]], clock: Clock) -> Result:
    """Run to the end as `run_async` does, with the clock beside it."""

    async def timed() -> Result:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(clock.tick)
            try:
                result = await main()
            finally:
                clock.stop()
            tasks.cancel_scope.cancel()
        return result

    return run_async(timed)
