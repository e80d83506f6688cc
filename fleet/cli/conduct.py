"""Running a run in the foreground: the engine at work, its journal on the screen, signals as requests."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import anyio
import typer
from anyio import CancelScope, create_task_group

from dashboards.summary import summary_lines
from dashboards.words import plan_lines, said
from fleet.app import Fleet
from fleet.cli.common import run_async, show, show_json
from fleet.core import facts as f
from fleet.core.decide import awaits_approval
from fleet.core.requests import Request
from fleet.core.state import RunState
from fleet.core.views import status
from fleet.environment import user
from fleet.folders import RunFolder
from fleet.journal import Journal, View
from fleet.ports import FleetError

TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class Screen:
    """Where events and the state go."""

    event: Callable[[str], None]
    show: Callable[[RunState, float], None]


def conduct(fleet: Fleet, folder: RunFolder, *, interactive: bool, as_json: bool) -> f.Ending | None:
    """Work on a run until it ends or is interrupted; how it ended."""
    typer.echo(f"{folder.run}: working; Ctrl-C drains, `fleet status {folder.run}` tells more", err=True)
    known = _old_story(folder)
    try:
        run_async(lambda: _conduct(fleet, folder, known, interactive=interactive, as_json=as_json))
    except FleetError:
        with suppress(FleetError):
            if folder.state().epoch == 0:
                folder.remove()
        raise
    state = folder.state()
    if state.ending == "failed" and _came_to_nothing(state):
        folder.remove()
        failure = failure_of(state)
        raise FleetError(fleet.explained(failure) if failure is not None else state.ending_why)
    if as_json:
        show_json(status(state, time.time(), alive=False))
    else:
        show(["", *summary_lines(state, time.time())])
    return state.ending


def _old_story(folder: RunFolder) -> int:
    """The number of the last fact that an earlier engine told already."""
    with Journal(folder.journal) as journal:
        view = View(journal)
        view.refresh()
        return view.seq if view.state is not None and view.state.epoch else 0


def _came_to_nothing(state: RunState) -> bool:
    """A first try that no model answered: nothing was paid or done, so nothing is left behind."""
    return state.epoch == 1 and state.spent.calls == 0 and not state.commits


def failure_of(state: RunState) -> f.Failure | None:
    """What the model's service said, to the planner or to a worker."""
    workers = (subtask.failure for subtask in state.subtasks.values() if subtask.failure is not None)
    return state.planning.last_failure or next(workers, None)


async def _conduct(fleet: Fleet, folder: RunFolder, known: int, *, interactive: bool, as_json: bool) -> None:
    stop = CancelScope()
    with _screen(interactive=interactive, quiet=as_json) as screen:
        follower = Follower(folder, screen, known, interactive=interactive)
        async with create_task_group() as sides:
            sides.start_soon(_listen, folder, stop)
            sides.start_soon(follower.follow)
            await fleet.run(folder, stop=stop)
            sides.cancel_scope.cancel()
        follower.catch_up()


@contextmanager
def _screen(*, interactive: bool, quiet: bool) -> Iterator[Screen]:
    """A live screen on a terminal; one line an event in a pipe."""
    if quiet:
        yield Screen(event=lambda line: typer.echo(line, err=True), show=lambda *_: None)
    elif interactive:
        from rich.console import Console

        from dashboards.live import LiveScreen

        with LiveScreen(Console(highlight=False)) as live:
            yield Screen(event=live.event, show=live.show)
    else:
        yield Screen(event=typer.echo, show=lambda *_: sys.stdout.flush())


async def _listen(folder: RunFolder, stop: CancelScope) -> None:
    """The first signal drains, the second stops at once."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for _ in signals:
            break
        with Journal(folder.journal) as journal:
            journal.ask(f.DrainRequested(at=time.time(), by=user()))
        async for _ in signals:
            stop.cancel()


class Follower:
    """Shows the journal as it grows; a plan that waits for approval is shown, and asked about."""

    def __init__(self, folder: RunFolder, screen: Screen, known: int, *, interactive: bool) -> None:
        self._folder, self._screen, self._interactive = folder, screen, interactive
        self._shown = known

    async def follow(self) -> None:
        with Journal(self._folder.journal) as journal:
            view = View(journal)
            while True:
                self._tick(view)
                if self._interactive and view.state is not None and awaits_approval(view.state):
                    await _review(journal, view.state, self._screen)
                await anyio.sleep(TICK_S)

    def catch_up(self) -> None:
        """The last words, written after the follower looked for the last time."""
        with Journal(self._folder.journal) as journal:
            self._tick(View(journal))

    def _tick(self, view: View) -> None:
        def event(state: RunState, fact: f.Fact) -> None:
            if view.seq > self._shown:
                self._shown = view.seq
                for row in (said(state, fact) or "").splitlines():
                    self._screen.event(f"{_stamp(state, fact)}  {row}")

        view.refresh(event)
        if view.state is not None:
            self._screen.show(view.state, time.time())


def _stamp(state: RunState, fact: f.Fact) -> str:
    minutes, seconds = divmod(int(max(0.0, fact.at - state.started_at)), 60)
    return f"{minutes:3}:{seconds:02}"


async def _review(journal: Journal, state: RunState, screen: Screen) -> None:
    """Show the plan and ask; nothing runs before the answer."""
    for line in plan_lines(state.plan):
        screen.event(line)
    screen.event("Run this plan? [y]es / [n]o")
    answer = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
    now, who = time.time(), user()
    request: Request = f.CancelRequested(at=now, by=who)
    if answer.strip().lower() in {"y", "yes"}:
        request = f.PlanApproved(at=now, version=state.plan.version, by=who)
    journal.ask(request)
    await anyio.sleep(1)
