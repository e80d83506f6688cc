"""Carries out a rehearsal and prints its events: the gate's tries, the run, the result. It continues one that stopped.

With faults, the engine runs in a process of its own, which is killed.
"""

import signal
import time
from pathlib import Path

import typer

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet
from fleet.app.rehearsals.rehearse import compare, head_of, machine, try_gate, used_processor
from fleet.cli.common import run_async
from fleet.cli.live.engine import POLL_S, Background, run_engine
from fleet.cli.live.follow import RunDisplay, Screen, open_screen
from fleet.cli.verbosity import show_note
from fleet.core.base.ids import Sha, tip_ref
from fleet.core.history.follower import Follower
from fleet.core.policy.replay_faults import KILLED, kills
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.views.repository.rehearsal_view import RehearsalView, rehearsal_view
from fleet.errors import FleetError
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder
from worktrees.store.store import home_of
from worktrees.target.target import inspect

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRIES = 3  # of the gate on the newest commit
MOST_STARTS = 5  # of an engine between two kills; more means that it can't work


def rehearse(fleet: Fleet, folder: RunFolder, *, tries: int = TRIES, quiet: bool) -> RehearsalView | None:
    """Carry out what is left of a rehearsal. Returns its result; None if it was interrupted."""
    state = folder.state()
    if state.gate_tried is None:
        _try_gate(fleet, folder, tries)
    in_process, is_whole, before = True, state.epoch == 0, used_processor()
    if state.ending != "landed":
        in_process = work(fleet, folder, quiet=quiet)
    processor_s = used_processor() - before if in_process and is_whole else None
    state = folder.state()
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


def work(fleet: Fleet, folder: RunFolder, *, quiet: bool) -> bool:
    """Work until the run has ended. Returns whether the engine worked in this process."""
    state = folder.state()
    with open_screen(live=False, as_json=quiet) as screen:
        if state.rehearsal is not None and state.rehearsal.faults:
            _work_with_kills(fleet, folder, screen)
            return False
        events = RunDisplay(folder, screen, 0, interactive=False)
        run_async(lambda: run_engine(fleet, folder, None, STOPS, events.follow))
        events.catch_up()
    return True


def _work_with_kills(fleet: Fleet, folder: RunFolder, screen: Screen) -> None:
    state = folder.state()
    background = Background(folder)
    events = RunDisplay(folder, screen, 0, interactive=False)
    try:
        for at in kills(state.rehearsal or f.Rehearsal(), len(state.subtasks)):
            if at <= state.commits:  # an earlier life was killed there
                continue
            if _run_until(fleet, folder, background, events, landed=at).ended:
                return
            background.kill()
            _leave_traces(fleet, folder)
        _run_until(fleet, folder, background, events, landed=None)
    except KeyboardInterrupt:
        background.stop()
        raise
    finally:
        events.catch_up()


def _run_until(
    fleet: Fleet, folder: RunFolder, background: Background, events: RunDisplay, *, landed: int | None
) -> RunState:
    """Run an engine until so many subtasks have landed, or until the run ends."""
    follower, starts = Follower(), 0
    with Journal(folder.journal) as journal:
        while True:
            follower.catch_up(journal)
            state = follower.state or folder.state()
            if (state.ended and not background.at_work) or (landed is not None and state.commits >= landed):
                return state
            if not background.at_work and not state.ended:
                if starts == MOST_STARTS:
                    raise FleetError(f"the engine of {folder.run} does not stay up: {background.last_words()}")
                starts += 1
                background.start(fleet)
            events.catch_up()
            time.sleep(POLL_S)


def _leave_traces(fleet: Fleet, folder: RunFolder) -> None:
    """What a killed git may leave: a lock on the integration branch."""
    state = folder.state()
    target = run_async(lambda: inspect(Path(state.repository), state.base))
    lock = home_of(fleet.state_dir, target) / "fleet.git" / f"{tip_ref(state.run)}.lock"
    lock.touch()
    with held(folder.journal), Journal(folder.journal) as journal:
        journal.append([f.RehearsalNoted(at=time.time(), what="fault", text=f"{KILLED} ({state.commits} landed)")])
    typer.echo(f"{folder.run}: killed its engine after {state.commits} commits had landed", err=True)
