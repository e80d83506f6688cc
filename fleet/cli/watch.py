"""The verb that watches a run, and what `fleet run` opens on a terminal: the same screen over the same journal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import AsJson, RunArgument, configuration, run_async, the_run
from fleet.cli.display import Plain
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.cli.background import Background
    from fleet.core.state import RunState
    from fleet.folders import RunFolder

Light = Annotated[bool, typer.Option("--light", help="Begin with light colours; t changes them.")]


def register(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    run: RunArgument = None,
    plain: Plain = False,
    replay: Annotated[bool, typer.Option("--replay", help="Play the run again from its journal.")] = False,
    speed: Annotated[float, typer.Option(help="Of a replay: 10 is ten times as fast as it was.")] = 1.0,
    light: Light = False,
    as_json: AsJson = False,
) -> None:
    """Watch a run, and act on it.

    Live, finished or crashed. `q` leaves and costs the run nothing; `?` shows every key. In a pipe, or with --plain, it
    prints what happens line by line until the run ends; with --json, each fact as one line of JSON.

    \b
    Examples:
      fleet watch                          the latest run of this repository
      fleet watch RUN --replay --speed 10  a finished run, played again
      fleet watch RUN --plain              without a screen
    """
    if speed <= 0:
        raise UsageError("--speed is more than nothing: 10 is ten times as fast as it was")
    folder = the_run(run)
    if plain or as_json or not on_terminal():
        from fleet.cli.plain import tell

        run_async(lambda: tell(folder, speed=speed if replay else None, as_json=as_json))
        return
    open_screen(folder, speed=speed if replay else None, light=light)


def on_terminal() -> bool:
    """Whether a full screen can be shown and keys can be read."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def open_screen(
    folder: RunFolder, *, background: Background | None = None, speed: float | None = None, light: bool = False
) -> None:
    """The terminal UI, until the person leaves it."""
    from dashboards.terminal.app import FleetApp
    from fleet.cli.watching import FolderLibrary
    from fleet.environment import user

    library = FolderLibrary(folder.path.parent.parent, _fleet_for, own=background, run=folder.run)
    FleetApp(library, folder.run, user=user(), speed=speed, light=light).run()


def _fleet_for(state: RunState) -> Fleet:
    from pathlib import Path

    from fleet.app import Fleet
    from fleet.environment import current

    flags = {"box.sandbox": state.sandbox, "models.base_url": state.base_url}
    return Fleet(configuration(Path(state.repository), None, flags), current())
