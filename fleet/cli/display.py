"""How a run that begins or goes on is shown: on a full screen, as live lines, as plain text, or not at all."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.errors import FleetError

if TYPE_CHECKING:
    from fleet.app import Fleet
    from fleet.core import facts as f
    from fleet.folders import RunFolder

Plain = Annotated[bool, typer.Option("--plain", help="Lines of text, for screen readers, pipes and logs.")]
NoTui = Annotated[bool, typer.Option("--no-tui", help="Live lines instead of a full screen.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="In the background; `fleet watch` shows it.")]
LEFT: int = 0  # the exit code of who leaves a run that goes on


@dataclass(frozen=True, slots=True)
class Display:
    """What was asked for on the command line."""

    plain: bool = False
    no_tui: bool = False
    detach: bool = False
    as_json: bool = False

    @property
    def interactive(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stdout.isatty() and not self.as_json and not self.detach

    @property
    def screen(self) -> bool:
        """Whether the full screen is shown."""
        return self.interactive and not self.plain and not self.no_tui and os.environ.get("TERM", "dumb") != "dumb"


def present(fleet: Fleet, folder: RunFolder, display: Display) -> f.Ending | int | None:
    """Work on a run and show it; how it ended, or an exit code where that is not known when this returns."""
    if display.detach:
        return _detach(fleet, folder)
    if display.screen:
        return _on_screen(fleet, folder)
    from fleet.cli.conduct import conduct

    return conduct(fleet, folder, interactive=display.interactive, plain=display.plain, as_json=display.as_json)


def _detach(fleet: Fleet, folder: RunFolder) -> int:
    from fleet.cli.background import Background

    background = Background(folder)
    background.start(fleet)
    try:
        background.wait_begun()
    except FleetError:
        _forget_unbegun(folder)
        raise
    typer.echo(f"{folder.run}: runs in the background; `fleet watch {folder.run}` shows it")
    return LEFT


def _on_screen(fleet: Fleet, folder: RunFolder) -> f.Ending | int | None:
    """The engine in a process of its own, the screen in this one: leaving the screen costs the run nothing."""
    from fleet.cli.background import Background
    from fleet.cli.conduct import conclude
    from fleet.cli.watch import open_screen

    background = Background(folder)
    background.start(fleet)
    open_screen(folder, background=background)
    if folder.state().ended:
        return conclude(fleet, folder, as_json=False)
    if background.at_work or folder.alive:
        typer.echo(f"{folder.run} goes on: `fleet watch {folder.run}` shows it, `fleet cancel {folder.run}` stops it")
        return LEFT
    said = background.last_words()
    if said:
        _forget_unbegun(folder)
        raise FleetError(said)
    return conclude(fleet, folder, as_json=False)


def _forget_unbegun(folder: RunFolder) -> None:
    """A run that no engine ever worked on leaves nothing behind."""
    with suppress(FleetError):
        if folder.state().epoch == 0:
            folder.remove()
