"""Carries out a rehearsal and prints its events: the gate's tries, the run, the result. Continues one that stopped."""

import signal
import time
from pathlib import Path

import typer

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet
from fleet.app.rehearsals.rehearse import compare, head_of, machine, try_gate, used_processor
from fleet.cli.common import run_async
from fleet.cli.live.engine import run_engine
from fleet.cli.live.follow import RunDisplay, open_screen
from fleet.cli.verbosity import show_note
from fleet.core.base.ids import Sha
from fleet.core.state.state import RunState
from fleet.core.views.rehearsal_view import RehearsalView, rehearsal_view
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder
from worktrees.target.target import inspect

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRIES = 3  # of the gate on the newest commit


def rehearse(fleet: Fleet, folder: RunFolder, *, tries: int = TRIES, quiet: bool) -> RehearsalView | None:
    """Carry out what is left of a rehearsal. Returns its result; None if it was interrupted."""
    state = folder.state()
    if state.gate_tried is None:
        _try_gate(fleet, folder, tries)
        state = folder.state()
    is_whole, before = state.epoch == 0, used_processor()
    if state.ending != "landed":
        state = work(fleet, folder, quiet=quiet)
    processor_s = used_processor() - before if is_whole else None
    if not state.ended:
        typer.echo(f"{folder.run}: interrupted; continue with: fleet resume {folder.run}", err=True)
        return None
    target = run_async(lambda: inspect(Path(state.repository), state.base))
    outcome = run_async(lambda: compare(fleet.state_dir, target, state))
    return rehearsal_view(state, outcome, machine(fleet.state_dir), now=time.time(), processor_s=processor_s)


def rehearsal_name(fleet: Fleet, head: Sha) -> str:
    """A name that says what it is, wherever runs are listed."""
    taken = {path.name for path in (fleet.state_dir / "runs").glob("rehearsal-*")}
    stem = f"rehearsal-{head[:7]}"
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)


def _try_gate(fleet: Fleet, folder: RunFolder, tries: int) -> None:
    """Run the gate on the newest commit, and record how it did."""
    wiring, state = fleet.wiring, folder.state()
    head = head_of(state)
    if not wiring.gate.criteria:
        typer.echo(
            f"{folder.run}: there is no gate (checks.gate, or --gate COMMAND): only trees are compared", err=True
        )
    else:
        show_note(f"{folder.run}: running the gate on {head[:12]}, {counted(tries, 'time')} …")
    target = run_async(lambda: inspect(Path(state.repository), head))
    tried = run_async(lambda: try_gate(target, wiring.worktrees, wiring.gate, times=tries, at=time.time()))
    with held(folder.journal), Journal(folder.journal) as journal:
        journal.append([tried])


def work(fleet: Fleet, folder: RunFolder, *, quiet: bool) -> RunState:
    """Work until the run has ended, and print its events."""
    with open_screen(live=False, as_json=quiet) as screen:
        events = RunDisplay(folder, screen, interactive=False)
        return run_async(lambda: run_engine(fleet, folder, None, STOPS, events))
