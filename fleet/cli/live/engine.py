"""The engine of a run: in this process, or in one of its own that outlives the terminal.

    python -m fleet.cli.live.engine RUN-FOLDER     the configuration, as JSON, on standard input

Errors of the other process go to `engine.log` in the run's folder; facts go to the journal, as always.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import CancelScope, create_task_group
from pydantic import BaseModel

from fleet.app.fleet import Fleet, Measures
from fleet.cli.common import hard_stop, run_async, send_requests
from fleet.config.environment import current, user
from fleet.config.layer import WHOLE
from fleet.config.load import Loaded
from fleet.core.base.hours import BY_HOURS, Hours, read_hours
from fleet.core.facts.facts import DrainRequested, EngineStarted, Fact, Paused, RunEnded, Unpaused
from fleet.core.history.evolve import Follower, OnFact
from fleet.core.plans.limits import Choices
from fleet.core.policy.requests import Request
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from fleet.cli.live.run_display import RunDisplay


LOG = "engine.log"
TAIL = 2_000  # characters of the log
START_S, POLL_S = 30.0, 0.05


async def run_engine(
    fleet: Fleet,
    folder: RunFolder,
    stops: Sequence[signal.Signals],
    display: RunDisplay | None = None,
) -> RunSnapshot:
    """Run the engine, and show what it does. The first signal of `stops` drains it, the second one stops it."""
    stop = CancelScope()

    async def listen() -> None:
        with anyio.open_signal_receiver(*stops) as signals:
            async for _ in signals:
                break
            with hard_stop(stops, f"`fleet resume {folder.run}` continues it"):
                send_requests(folder, DrainRequested(at=time.time(), by=user()))
                async for _ in signals:
                    stop.cancel()

    async with beside(fleet, folder) as measures, create_task_group() as tasks:
        tasks.start_soon(listen)
        if display is not None:
            tasks.start_soon(display.follow)
        tasks.start_soon(keep_hours, fleet.config.run.not_between, folder)
        on_fact = _shown_by(display) if display is not None else None
        state = await fleet.run(folder, stop=stop, measures=measures, on_fact=on_fact)
        tasks.cancel_scope.cancel()
    if display is not None:
        display.refresh()
    return just_after(state)


def _shown_by(display: RunDisplay) -> OnFact:
    return lambda _, fact, after: display.take(fact, just_after(after))


@asynccontextmanager
async def beside(fleet: Fleet, folder: RunFolder) -> AsyncIterator[Measures | None]:
    """What features do beside a run, as far as they are on. Yields what one of them measures this process with."""
    measures: Measures | None = None
    async with AsyncExitStack() as stack:
        for feature in FEATURES.values():
            if feature.beside and fleet.config.is_set(feature.on):
                opened = await stack.enter_async_context(load_part(feature.beside)(fleet, folder))
                measures = opened or measures
        yield measures


def refuse_unstarted(folder: RunFolder, error: FleetError) -> bool:
    """Record why a run ended if no engine has worked on it: it is kept as refused. Returns whether that was done."""
    with suppress(FleetError), held(folder.journal), Journal(folder.journal) as journal:  # the disk may be full
        state = folder.state()
        if state.epoch == 0 and not state.ended:
            journal.append([RunEnded(at=time.time(), ending="failed", why=str(error))])
            return True
    return False


# ---- in a process of its own ----------------------------------------------------------------------------------------


class EngineInput(BaseModel):
    """The configuration with the origin of each value, as the new process reads it."""

    config: dict[str, Any]
    origin: dict[str, str]
    choices: Choices = Choices()


class Background:
    """The process that works on a run, as seen by the process that started it."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._recorded = 0  # facts before the process started

    def start(self, fleet: Fleet) -> None:
        """Raises `FleetError` if the process can't be started."""
        loaded = fleet.loaded
        with Journal(self._folder.journal) as journal:
            self._recorded = journal.length
        given = EngineInput(config=loaded.config.model_dump(mode="json"), origin=loaded.origin, choices=loaded.choices)
        command = [sys.executable, "-P", "-m", "fleet.cli.live.engine", str(self._folder.path)]
        try:
            with (self._folder.path / LOG).open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/"
                )
            if self._process.stdin is not None:
                with self._process.stdin as stdin:
                    stdin.write(given.model_dump_json().encode())
        except OSError as error:
            raise FleetError(f"the engine can't be started: {error.strerror}") from error

    @property
    def at_work(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_started(self) -> None:
        """Wait until the engine has recorded its start; raises `FleetError` with its error if it fails before."""
        until = time.monotonic() + START_S
        with Journal(self._folder.journal) as journal:
            while time.monotonic() < until and self.at_work and not self._has_started(journal):
                time.sleep(POLL_S)
        if not self.at_work and (error := self.last_words()):
            raise FleetError(error)

    def _has_started(self, journal: Journal) -> bool:
        return any(isinstance(fact, EngineStarted) for _, fact in journal.facts(self._recorded))

    def last_words(self) -> str:
        """The error that ended the process; empty if it runs or ended well."""
        if self._process is None or self._process.poll() in {None, 0}:
            return ""
        try:
            return (self._folder.path / LOG).read_text(encoding="utf-8", errors="replace").strip()[-TAIL:]
        except OSError:
            return ""


def main() -> int:
    """Run the engine until the run ends or is drained. Closing the terminal does not stop it."""
    folder = RunFolder(Path(sys.argv[1]))
    settings = EngineInput.model_validate_json(sys.stdin.buffer.read())
    fleet = Fleet(
        Loaded(config=WHOLE.model_validate(settings.config), origin=settings.origin, choices=settings.choices),
        current(),
    )
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run_async(lambda: run_engine(fleet, folder, (signal.SIGINT, signal.SIGTERM)))
    except FleetError as error:
        refuse_unstarted(folder, error)
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


# ---- hours -----------------------------------------------------------------------------------------------------------
# Pauses a run in the hours of the day in which it is to start nothing, and lets it continue afterwards.
#
# A pause is a request like a person's, in the journal with its reason. Who unpauses the run in these hours has the
# last word, until they begin again.


LOOK_S = 5.0
Clock = Callable[[], datetime]


async def keep_hours(
    not_between: str, folder: RunFolder, clock: Clock = datetime.now, *, look_s: float = LOOK_S
) -> None:
    """Do so as long as the engine runs, if there are such hours or an earlier engine had them."""
    hours = read_hours(not_between)
    if hours is None and not _has_rested(folder):
        return
    unpaused_at = -math.inf

    def note(_: object, fact: Fact, __: object) -> None:
        nonlocal unpaused_at
        if isinstance(fact, Unpaused) and fact.by != BY_HOURS:
            unpaused_at = fact.at

    follower = Follower(note)
    with Journal(folder.journal) as journal:
        while True:
            follower.catch_up(journal)
            is_asked = any(isinstance(request, Paused | Unpaused) for _, request in journal.requests())
            if follower.state is not None and not is_asked:
                request = due(just_after(follower.state), hours, clock(), unpaused_at)
                if request is not None:
                    send_requests(folder, request)
            await anyio.sleep(look_s)


def _has_rested(folder: RunFolder) -> bool:
    with Journal(folder.journal) as journal:
        return any(isinstance(fact, Paused) and fact.by == BY_HOURS for fact in journal.facts_of("paused"))


def due(run: RunSnapshot, hours: Hours | None, now: datetime, unpaused_at: float) -> Request | None:
    """What is to be requested: a pause in these hours, its end outside of them."""
    since = hours.since(now) if hours is not None else None
    if since is None:
        return Unpaused(at=time.time(), by=BY_HOURS) if run.figures.rests else None
    if run.figures.is_paused or unpaused_at >= since.timestamp():
        return None
    return Paused(at=time.time(), by=BY_HOURS)


if __name__ == "__main__":
    sys.exit(main())
