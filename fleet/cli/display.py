"""Show a run while this program works on it: on a full screen, as live lines, as plain text, or not at all."""

import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from dashboards.text.summary import refusal_lines, summary_lines
from fleet.app.capacity import collect_rarely
from fleet.app.fleet import Fleet
from fleet.cli import verbosity
from fleet.cli.common import has_terminal, run_async, show, show_json
from fleet.cli.engine import BackgroundRun, RunDisplay, open_screen, refuse_unstarted, run_engine
from fleet.cli.terminal_data import library_of, start_pages
from fleet.cli.verbosity import is_normal, show_note
from fleet.config import environment
from fleet.core.facts import facts as f
from fleet.errors import FleetError, read_error
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

Plain = Annotated[bool, typer.Option("--plain", help="Print lines of text, for screen readers, pipes and logs.")]
NoTui = Annotated[bool, typer.Option("--no-tui", help="Print live progress instead of opening the terminal UI.")]
Web = Annotated[
    bool, typer.Option("--web", help="Serve the web UI for this run and print its link (disables the terminal UI).")
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Run in the background. `fleet watch` shows the run.")]
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONTINUES = 0  # the exit code if the run continues in the background


@dataclass(frozen=True, slots=True)
class Display:
    """The output options of the command line."""

    plain: bool = False
    no_tui: bool = False
    detach: bool = False
    as_json: bool = False
    web: bool = False

    @property
    def interactive(self) -> bool:
        """Whether the user can be asked."""
        return has_terminal() and not self.as_json and not self.detach

    @property
    def wants_full_screen(self) -> bool:
        return self.interactive and not self.plain and not self.no_tui and not self.web


def work_and_show(fleet: Fleet, folder: RunFolder, display: Display) -> f.Ending | int | None:
    """Work on a run and show it. Return its ending, or an exit code if it continues in the background."""
    if display.detach:
        return _detach(fleet, folder, display)
    if display.web:
        start_pages(folder)
    if display.wants_full_screen and has_full_screen():
        return _on_full_screen(fleet, folder)
    hint = f"Ctrl-C stops it after the running agents have finished. Details: fleet status {folder.run}"
    show_note(f"{folder.run}: running. {hint}")
    shown = _facts_shown(folder)
    opened = open_screen(live=display.interactive and not display.plain, as_json=display.as_json)
    try:
        with opened as screen:
            events = RunDisplay(folder, screen, shown, interactive=display.interactive)
            run = run_async(lambda: run_engine(fleet, folder, STOPS, events))
    except FleetError as error:
        if refuse_unstarted(folder, error) and not display.as_json:
            show(["", *refusal_lines(just_after(folder.state()), f"{folder.path}/")])
        raise
    return _conclude(fleet, folder, run, as_json=display.as_json)


def _detach(fleet: Fleet, folder: RunFolder, display: Display) -> int:
    background = BackgroundRun(folder)
    background.start(fleet)
    background.wait_started()
    if display.web:
        start_pages(folder)
    if display.as_json:
        show_json(RunSnapshot(folder.state(), time.time(), folder.alive).status)
    else:
        typer.echo(f"{folder.run}: running in the background. `fleet watch {folder.run}` shows it.")
    return CONTINUES


def _on_full_screen(fleet: Fleet, folder: RunFolder) -> f.Ending | int | None:
    """Run the engine in a separate process, so that leaving the screen does not stop it."""
    background = BackgroundRun(folder)
    background.start(fleet)
    open_full_screen(folder, background=background)
    if not folder.state().ended:
        if background.at_work or folder.alive:
            watch, cancel = f"fleet watch {folder.run}", f"fleet cancel {folder.run}"
            typer.echo(f"{folder.run} continues in the background. `{watch}` shows it, `{cancel}` stops it.")
            return CONTINUES
        if error := background.last_stderr_line():
            raise read_error(error)
    return _conclude(fleet, folder, just_after(folder.state()), as_json=False)


def _facts_shown(folder: RunFolder) -> int:
    """Return the number of facts that earlier engines have shown, 0 for a run without an engine so far."""
    with Journal(folder.journal) as journal:
        return journal.length if journal.facts_of("engine_started") else 0


def _conclude(fleet: Fleet, folder: RunFolder, run: RunSnapshot, *, as_json: bool) -> f.Ending | None:
    """Print the result of a run. For a refused run, raise the reason after its events are printed."""
    run = replace(run, now=time.time(), alive=False)
    if as_json:
        show_json(run.status)
    elif run.word == "refused":
        show(["", *refusal_lines(run, f"{folder.path}/")])
        message, hint = fleet.explained(run.refused_for) if run.refused_for is not None else (run.status.why, "")
        raise FleetError(message, hint=hint)
    else:
        show(["", *summary_lines(run)])
    return run.ending.ending if run.ending is not None else None


def has_full_screen() -> bool:
    """Whether the terminal can show a full screen and send keys, and neither -q nor -v is set."""
    return has_terminal() and environment.can_move_cursor() and is_normal()


def open_full_screen(
    folder: RunFolder, *, background: BackgroundRun | None = None, speed: float | None = None, light: bool = False
) -> None:
    """Show the terminal UI until the user leaves it."""
    from dashboards.terminal.app import FleetApp  # noqa: PLC0415 - Textual takes as long to import as all of fleet

    collect_rarely()  # a full garbage collection stops the screen for a quarter of a second
    with library_of(folder.path.parent.parent, background=background, run=folder.run) as library:
        FleetApp(
            library,
            folder.run,
            user=environment.user(),
            editor_command=environment.editor(),
            shell_command=environment.shell(),
            fleet_command=(sys.executable, "-P", "-m", "fleet"),
            colours="none" if not verbosity.is_wanted() else "true" if environment.has_many_colours() else "16",
            speed=speed,
            light=light,
        ).run()


async def work_and_follow(fleet: Fleet, folder: RunFolder, *, as_json: bool) -> None:
    """Work on a run that is part of a larger task, until it ends or is stopped.

    Shows live lines on a terminal, otherwise a line for each event. Earlier events are not shown.
    """
    with Journal(folder.journal) as journal:
        shown = journal.length
    live = has_terminal() and not as_json
    with open_screen(live=live, as_json=not live) as screen:
        events = RunDisplay(folder, screen, shown, interactive=False)
        await run_engine(fleet, folder, STOPS, events)
