"""Works on a rehearsal and prints its events. With faults, the engine runs in a process of its own, which is killed."""

import signal
import time
from pathlib import Path

import typer

from fleet.app.fleet import Fleet
from fleet.cli.common import run_async
from fleet.cli.live.engine import POLL_S, Background, run_engine
from fleet.cli.live.follow import RunDisplay, Screen, open_screen
from fleet.core.base.ids import tip_ref
from fleet.core.history.follower import Follower
from fleet.core.policy.replay_faults import KILLED, kills
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.errors import FleetError
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder
from worktrees.store.store import home_of
from worktrees.store.target import inspect

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MOST_STARTS = 5  # of an engine between two kills; more means that it can't work


def work(fleet: Fleet, folder: RunFolder, *, quiet: bool) -> bool:
    """Work until the run has ended. Returns whether the engine worked in this process."""
    state = folder.state()
    with open_screen(live=False, quiet=quiet) as screen:
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
