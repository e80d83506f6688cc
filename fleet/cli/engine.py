"""The engine of a run, in this process or in a separate one that survives the terminal.

    python -m fleet.cli.engine RUN-FOLDER     the configuration, as JSON, on standard input

The separate process writes its errors to `engine.log` in the run's folder.
"""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import typer
from anyio import CancelScope, create_task_group
from pydantic import BaseModel

from dashboards.text.event_text import event_lines
from dashboards.text.formats import clock_in
from dashboards.text.plan_review import review_lines, waits_line
from fleet.app.fleet import Fleet, Measures
from fleet.cli import verbosity
from fleet.cli.common import hard_stop, run_async, send_requests
from fleet.cli.verbosity import is_quiet, show_note
from fleet.config.environment import current, user
from fleet.config.layer import WHOLE
from fleet.config.load import Loaded
from fleet.core.base.hours import BY_HOURS, Hours, read_hours
from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.facts import DrainRequested, EngineStarted, Fact, Paused, RunEnded, Unpaused
from fleet.core.history.evolve import Follower, OnFact
from fleet.core.plans.limits import RunOverrides
from fleet.core.policy.requests import Request
from fleet.errors import FleetError, read_error
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.run import RunSnapshot, at_moment, just_after
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder

LOG = "engine.log"
TAIL = 2_000  # characters of the log
START_S, POLL_S = 30.0, 0.05


async def run_engine(
    fleet: Fleet,
    folder: RunFolder,
    stops: Sequence[signal.Signals],
    display: RunDisplay | None = None,
) -> RunSnapshot:
    """Run the engine and show its events. The first signal of `stops` drains it, the second one stops it."""
    stop = CancelScope()

    async def listen() -> None:
        with anyio.open_signal_receiver(*stops) as signals:
            async for _ in signals:
                break
            with hard_stop(stops, f"run `fleet resume {folder.run}` to continue"):
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
    """Run the enabled features next to a run. Yields the measures of this process, if a feature has them."""
    measures: Measures | None = None
    async with AsyncExitStack() as stack:
        for feature in FEATURES.values():
            if feature.beside and fleet.config.is_set(feature.on):
                opened = await stack.enter_async_context(load_part(feature.beside)(fleet, folder))
                measures = opened or measures
        yield measures


def refuse_unstarted(folder: RunFolder, error: FleetError) -> bool:
    """Record why a run ended before an engine worked on it, so that it is kept as refused. Return whether it was."""
    with suppress(FleetError), engine_lock(folder.journal), Journal(folder.journal) as journal:  # the disk may be full
        state = folder.state()
        if state.epoch == 0 and not state.ended:
            journal.append([RunEnded(at=time.time(), ending="failed", why=str(error))])
            return True
    return False


# ---- in a separate process ----------------------------------------------------------------------------------------


class EngineInput(BaseModel):
    """The configuration with the origin of each value: the input of the new process."""

    config: dict[str, Any]
    origin: dict[str, str]
    choices: RunOverrides = RunOverrides()


class BackgroundRun:
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
        command = [sys.executable, "-P", "-m", "fleet.cli.engine", str(self._folder.path)]
        try:
            with (self._folder.path / LOG).open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/"
                )
            if self._process.stdin is not None:
                with self._process.stdin as stdin:
                    stdin.write(given.model_dump_json().encode())
        except OSError as error:
            raise FleetError(f"can't start the engine: {error.strerror}") from error

    @property
    def at_work(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_started(self) -> None:
        """Wait until the engine has recorded its start. Raises `FleetError` with its error if it fails before."""
        until = time.monotonic() + START_S
        with Journal(self._folder.journal) as journal:
            while time.monotonic() < until and self.at_work and not self._has_started(journal):
                time.sleep(POLL_S)
        if not self.at_work and (error := self.last_stderr_line()):
            raise read_error(error)

    def _has_started(self, journal: Journal) -> bool:
        return any(isinstance(fact, EngineStarted) for _, fact in journal.facts(self._recorded))

    def last_stderr_line(self) -> str:
        """Return the error that ended the process, or an empty string if it is running or succeeded."""
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
        sys.stderr.write(f"{error.text}\n")
        return error.exit_code
    return 0


# ---- hours -----------------------------------------------------------------------------------------------------------
# Pauses a run during quiet hours (`run.not_between`) and lets it continue afterwards.
#
# A pause is a request in the journal, with its reason, like one from the user. A user who unpauses the run during
# quiet hours overrides them until they start again.


LOOK_S = 5.0
Clock = Callable[[], datetime]


async def keep_hours(
    not_between: str, folder: RunFolder, clock: Clock = datetime.now, *, look_s: float = LOOK_S
) -> None:
    """Keep quiet hours as long as the engine runs, if any are set or an earlier engine had them."""
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
    """Return the request that is due: a pause during quiet hours, its end outside of them."""
    since = hours.since(now) if hours is not None else None
    if since is None:
        return Unpaused(at=time.time(), by=BY_HOURS) if run.figures.rests else None
    if run.figures.is_paused or unpaused_at >= since.timestamp():
        return None
    return Paused(at=time.time(), by=BY_HOURS)


# ---- display ---------------------------------------------------------------------------------------------------------
# Shows the events of this process's engine on the terminal and asks whether to start a plan.


TICK_S = 0.25
YES, NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Screen:
    """The output of events and the state. A `still` block keeps the screen unchanged."""

    event: Callable[[str], None]
    decision: Callable[[str], None]
    """Prints a line that the user needs for a decision, also with -q."""
    show: Callable[[RunSnapshot], None]
    still: Callable[[], AbstractContextManager[None]] = nullcontext


@contextmanager
def open_screen(*, live: bool, as_json: bool) -> Iterator[Screen]:
    """Open a live screen on a terminal, or print a line for each event. With JSON, lines go to standard error."""
    if as_json:
        yield Screen(event=show_note, decision=_echo_error, show=lambda *_: None)
    elif is_quiet():
        yield Screen(event=lambda _: None, decision=typer.echo, show=lambda *_: None)
    elif live:
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        from dashboards.text.summary import LiveScreen  # noqa: PLC0415

        with LiveScreen(Console(highlight=False, no_color=not verbosity.is_wanted())) as screen:
            yield Screen(screen.event, screen.event, screen.show, screen.still)
    else:
        yield Screen(typer.echo, typer.echo, show=lambda *_: sys.stdout.flush())


def _echo_error(line: str) -> None:
    typer.echo(line, err=True)


class RunDisplay:
    """Shows the facts that this process's engine records. On a terminal, asks the user to approve a waiting plan."""

    def __init__(self, folder: RunFolder, screen: Screen, shown: int = 0, *, interactive: bool) -> None:
        self._folder, self._screen, self._interactive = folder, screen, interactive
        self._skipped = shown
        """The number of facts at the start of the journal that are not shown."""
        self._new: list[tuple[f.Fact, RunSnapshot]] = []
        """Recorded but not shown yet."""
        self._run: RunSnapshot | None = None
        """The run after the last shown fact."""
        self._pending: tuple[SubtaskId, ...] = ()
        """The subtasks last shown as waiting for approval."""

    def take(self, fact: f.Fact, after: RunSnapshot) -> None:
        """Keep a fact for the next refresh. The engine calls this, so it does not print."""
        if self._skipped:
            self._skipped, self._run = self._skipped - 1, after
        else:
            self._new.append((fact, after))

    async def follow(self) -> None:
        while True:
            self.refresh()
            if self._interactive and self._run is not None and self._run.asks_about_plan:
                with self._screen.still():
                    await self._ask()
            await anyio.sleep(TICK_S)

    def refresh(self) -> None:
        """Show the facts that were recorded since the last refresh, and the state."""
        self._show_new()
        if self._run is not None:
            if not self._interactive:
                self._show_pending(self._run)
            self._screen.show(at_moment(self._run, time.time()))

    def _show_pending(self, run: RunSnapshot) -> None:
        """Print the subtasks that need approval each time one is added. Used without a terminal."""
        pending = run.waiting_for_approval if run.asks_about_plan else ()
        if set(pending) - set(self._pending):
            self._screen.decision(f"{clock_in(run, run.last_at)}  {waits_line(run.review)}")
        self._pending = pending

    def _show_new(self) -> None:
        new, self._new = self._new, []
        for fact, self._run in new:
            for line in event_lines(self._run, fact):
                self._screen.event(line)

    async def _ask(self) -> None:
        """Show the plan and ask until it is approved or rejected, in this process or another."""
        is_asked = False
        version_shown: tuple[int, tuple[SubtaskId, ...]] | None = None
        while (run := self._run) is not None and run.asks_about_plan:
            if version_shown != (current := (run.plan.version, run.waiting_for_approval)):
                version_shown, is_asked = current, False
                for line in review_lines(run.review):
                    self._screen.decision(line)
            if not is_asked:
                question = "Run this plan?" if run.review.unreviewed else "Approve these subtasks?"
                sys.stdout.write(f"{question} Type yes or no (or: only ID…, reject WHY) and press Enter: ")
                sys.stdout.flush()
                is_asked = True
            with anyio.move_on_after(TICK_S):
                await anyio.wait_readable(sys.stdin)
                answer = sys.stdin.readline()
                is_asked = not answer  # after the end of input, an answer can only come from elsewhere
                _send_answer(self._folder, run, answer.strip())
            await anyio.sleep(TICK_S)
            self._show_new()


def _send_answer(folder: RunFolder, run: RunSnapshot, answer: str) -> None:
    """Send the typed answer as a request. An unclear answer leads to the same question again."""
    request: Request | None = None
    now, by, version = time.time(), user(), run.plan.version
    word, _, rest = answer.partition(" ")
    word, rest = word.lower(), rest.strip()
    if answer.lower() in YES:
        request = f.PlanApproved(at=now, version=version, by=by)
    elif word == "only" and rest:
        subtasks = tuple(rest.replace(",", " ").split())
        request = f.PlanApproved(at=now, version=version, by=by, subtasks=subtasks)
    elif word == "reject" and rest:
        request = f.PlanRejected(at=now, version=version, by=by, reason=rest)
    elif answer.lower() in NO and run.review.unreviewed:
        request = f.CancelRequested(at=now, by=by)
    elif answer.lower() in NO:  # some rejected subtasks do not cancel a running run
        sys.stdout.write("To have the planner revise the plan, give a reason: reject WHY\n")
    if request is None:
        return
    if (problem := run.problem_of(request)) is not None:
        sys.stdout.write(f"{problem}\n")
    else:
        send_requests(folder, request)


if __name__ == "__main__":
    sys.exit(main())
