"""Running a run in the foreground: the engine at work, its journal on the screen, signals as requests."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import anyio
import typer
from anyio import CancelScope, create_task_group

from dashboards.summary import summary_lines
from fleet.app import Fleet
from fleet.cli.common import run_async, show, show_json
from fleet.cli.follow import Follower, Screen, open_screen
from fleet.core import facts as f
from fleet.core.state import RunState
from fleet.core.views import status
from fleet.environment import user
from fleet.folders import RunFolder
from fleet.journal import Journal, View
from fleet.ports import FleetError

if TYPE_CHECKING:
    from fleet.cli.exporter import Exporter

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def conduct(
    fleet: Fleet, folder: RunFolder, *, interactive: bool, plain: bool = False, as_json: bool
) -> f.Ending | None:
    """Work on a run until it ends or is interrupted; how it ended."""
    typer.echo(f"{folder.run}: working; Ctrl-C drains, `fleet status {folder.run}` tells more", err=True)
    known = _old_story(folder)
    try:
        screen = open_screen(live=interactive and not plain, quiet=as_json)
        run_async(lambda: _conduct(fleet, folder, known, screen, interactive=interactive))
    except FleetError:
        with suppress(FleetError):
            if folder.state().epoch == 0:
                folder.remove()
        raise
    return conclude(fleet, folder, as_json=as_json)


def conclude(fleet: Fleet, folder: RunFolder, *, as_json: bool) -> f.Ending | None:
    """The last word about a run: how it ended. One that came to nothing is forgotten, and its failure is the answer."""
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


async def _conduct(
    fleet: Fleet, folder: RunFolder, known: int, opened: AbstractContextManager[Screen], *, interactive: bool
) -> None:
    stop = CancelScope()
    with metrics(fleet, folder) as exporter, opened as screen:
        follower = Follower(folder, screen, known, interactive=interactive)
        async with create_task_group() as sides:
            sides.start_soon(listen, folder, stop)
            sides.start_soon(follower.follow)
            if exporter is not None:
                sides.start_soon(exporter.watch_loop)
            await fleet.run(folder, stop=stop, watcher=exporter)
            sides.cancel_scope.cancel()
        follower.catch_up()


@contextmanager
def metrics(fleet: Fleet, folder: RunFolder) -> Iterator[Exporter | None]:
    """Figures for Prometheus while the run lasts, where they are wanted. A port that is taken costs no run."""
    wanted = fleet.config.metrics
    if not wanted.listen:
        yield None
        return
    from dashboards.metrics.server import parse_address
    from fleet.cli.exporter import exporting

    with ExitStack() as stack:
        exporter = None
        try:
            address = parse_address(wanted.listen)
            exporter = stack.enter_context(exporting(lambda: [folder], fleet.state_dir, address, wanted.hosts))
            typer.echo(f"{folder.run}: metrics at http://{exporter.address}/metrics", err=True)
        except FleetError as error:
            typer.echo(f"{folder.run}: no metrics: {error}", err=True)
        yield exporter


async def listen(folder: RunFolder, stop: CancelScope, stops: Sequence[signal.Signals] = STOPS) -> None:
    """The first signal drains, the second stops at once."""
    with anyio.open_signal_receiver(*stops) as signals:
        async for _ in signals:
            break
        with Journal(folder.journal) as journal:
            journal.ask(f.DrainRequested(at=time.time(), by=user()))
        async for _ in signals:
            stop.cancel()
