"""A rehearsal for real: the check of history, the question whether to pay, the run, the verdicts, the result.

Continues one that stopped. Verdicts are recorded one by one.
"""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from dashboards.text.formats import counted
from dashboards.text.plan_review import comparable_lines
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet, Order
from fleet.app.past_runs import read_evidence
from fleet.cli.common import has_terminal, read_answer, run_async, show_view
from fleet.cli.engine import RunDisplay, open_screen, run_engine
from fleet.cli.verbosity import show_note
from fleet.config.load import Loaded
from fleet.core.base.ids import Sha, did_you_mean
from fleet.core.facts import facts as f
from fleet.core.facts.facts import SubtaskEstimate
from fleet.core.state.state import RunState
from fleet.engine.adapters import Adapters
from fleet.engine.loop import SystemClock
from fleet.errors import UsageError
from fleet.features.rehearse.past_tasks import PastTasks, for_real_policy, read_tasks, redoing, score, unscored
from fleet.features.rehearse.rehearsal_text import past_tasks_lines, rehearsal_lines
from fleet.features.rehearse.rehearsal_view import PastTasksView, RehearsalView, past_tasks_view, rehearsal_view
from fleet.features.rehearse.rehearsing import (
    compare,
    for_rehearsal,
    head_of,
    machine,
    rehearsing,
    try_gate,
    used_processor,
)
from fleet.ports.journal import Recorder
from fleet.read.costs import plan_estimates
from fleet.runs.journal import Journal, held
from fleet.runs.run_folder import RunFolder, make_state_dir, new_run
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.sandbox.box import require_bubblewrap
from worktrees.target.target import inspect

STOPPED: Mapping[str, int] = {"cancelled": 1, "aborted": 1, "failed": 3, "budget": 4}
"""The exit codes of endings that came too early."""
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Redoing:
    """What a person asks for."""

    repository: Path
    last: int
    worker: str
    name: str | None
    yes: bool


def begin_and_show(fleet: Fleet, asked: Redoing, *, as_json: bool) -> int:
    """All of it. Returns the exit code."""
    return redo_and_show(fleet, _begin(fleet, asked), as_json=as_json)


def redo_and_show(fleet: Fleet, folder: RunFolder, *, as_json: bool, reopen: bool = False) -> int:
    """Carry out what is left, and show the result. What failed is tried again only if the run is reopened."""
    view = _redo(fleet, folder, quiet=as_json, reopen=reopen)
    if view is None:
        typer.echo(f"{folder.run}: interrupted; continue with: fleet resume {folder.run}", err=True)
        return INTERRUPTED
    show_view(view, past_tasks_lines, as_json=as_json)
    return _exit_code(view)


def _exit_code(view: PastTasksView) -> int:
    """0 where every commit was tried and judged, whatever came of it."""
    untried = any(not commit.tried for commit in view.redone)
    unjudged = any(commit.landed and commit.tests and commit.passed is None for commit in view.redone)
    return STOPPED.get(view.ending or "", 1 if untried or unjudged else 0)


def _begin(fleet: Fleet, asked: Redoing) -> RunFolder:
    """Check history, ask, and create the run. Raises `UsageError` if nothing can be judged, or if the answer is no."""
    _check(fleet, asked)
    wiring = fleet.wiring
    make_state_dir(fleet.state_dir)
    require_bubblewrap(wiring.worktrees)
    show_note(f"running the gate on the last commits, at most {asked.last}, free of charge …")
    found = run_async(
        lambda: read_tasks(
            wiring.worktrees,
            wiring.gate,
            SystemClock(),
            asked.repository,
            last=asked.last,
            worker=asked.worker,
            say=lambda text: typer.echo(f"  {safe(text)}", err=True),
        )
    )
    past = run_async(lambda: read_evidence(fleet.config, asked.repository))
    _confirm(fleet, asked, found, plan_estimates(found.plan.subtasks, past.estimates))
    order = Order(
        goal=found.plan.goal,
        repository=asked.repository,
        base=found.base,
        name=asked.name or rehearsal_name(fleet, found.rehearsal.head),
        plan=found.plan,
        rehearsal=found.rehearsal,
        publishes=False,
        policy=for_real_policy(fleet.wiring.policy, len(found.rehearsal.tasks)),
    )
    return run_async(lambda: fleet.create(order))


def _check(fleet: Fleet, asked: Redoing) -> None:
    """Raise `FleetError` for what can be known before history is looked at."""
    config, workers = fleet.config, fleet.config.workers
    if asked.worker not in workers:
        near = did_you_mean(asked.worker, workers)
        raise UsageError(
            f"--worker {asked.worker}: no worker is called that{near}", hint=f"there are {', '.join(workers)}"
        )
    _require_box(fleet)
    if not config.checks.gate.strip():
        raise UsageError(
            "--for-real needs a gate: nothing else can judge what workers do", hint="checks.gate, or --gate COMMAND"
        )
    if config.run.budget_dollars is None:
        raise UsageError("--for-real pays for models: give it a budget", hint="--budget USD, or run.budget_dollars")
    fleet.wiring.require_models({asked.worker})
    run_async(lambda: fleet.make_way(asked.name))
    new_run(fleet.state_dir, "", asked.name)  # raises where the name is taken


def _require_box(fleet: Fleet) -> None:
    if fleet.config.box.sandbox == "none":
        raise UsageError("--for-real needs the sandbox: without it, workers could read the answer in the repository")


def _confirm(fleet: Fleet, asked: Redoing, found: PastTasks, estimates: Sequence[SubtaskEstimate]) -> None:
    tasks, budget = len(found.rehearsal.tasks), fleet.config.run.budget_dollars or 0.0
    with_tests = sum(bool(task.tests) for task in found.rehearsal.tasks)
    by = f"{asked.worker}{_with_model(fleet, asked.worker)}"
    head = f"{counted(tasks, 'commit')} to do again, {with_tests} with tests of their own, by {by}"
    limit = f"Budget: never more than ${budget:.2f}, including the planner where one fails"
    typer.echo("\n".join([head, *comparable_lines(estimates), limit]), err=True)
    if asked.yes:
        return
    if not has_terminal():
        raise UsageError("--for-real pays for models, and there is no terminal to ask on", hint="--yes goes ahead")
    typer.echo(f"Spend up to ${budget:.2f}? [y/N] ", nl=False, err=True)
    if read_answer().strip().lower() not in {"y", "yes"}:
        raise UsageError("nothing was started")


def _with_model(fleet: Fleet, worker: str) -> str:
    kind = fleet.wiring.workers[worker]
    return "" if kind.kind == "command" else f" with {next(iter(kind.choices), fleet.config.models.worker)}"


def _redo(fleet: Fleet, folder: RunFolder, *, quiet: bool, reopen: bool) -> PastTasksView | None:
    """The result; None if the run was interrupted."""
    _require_box(fleet)
    state = folder.state()
    if not state.ended or reopen:
        state = work(fleet, folder, quiet=quiet)
    if not state.ended:
        return None
    _score(fleet, folder)
    return past_tasks_view(folder.state(), time.time())


def _score(fleet: Fleet, folder: RunFolder) -> None:
    """Judge what landed with history's tests, as far as that has not been done."""
    state, wiring = folder.state(), fleet.wiring
    waiting = unscored(state)
    if not waiting:
        return
    show_note(f"{folder.run}: running history's tests on {counted(len(waiting), 'result')} …")
    with held(folder.journal), Journal(folder.journal) as journal:

        def record(verdict: f.ResultScored) -> None:
            journal.append([verdict])
            says = "pass" if verdict.passed else "do NOT pass"
            typer.echo(f"  {verdict.subtask}: history's tests {says}", err=True)

        run_async(lambda: score(state, wiring.worktrees, wiring.gate, SystemClock(), record))


# ---- rehearsal -------------------------------------------------------------------------------------------------------
# Carries out a rehearsal and prints its events: the gate's tries, the run, the result. Continues one that stopped.


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
        return run_async(lambda: run_engine(fleet, folder, STOPS, events)).state


# ---- resumed ---------------------------------------------------------------------------------------------------------


async def rehearsal_adapters(engine: Recorder, adapters: Adapters, worktrees: RunWorktrees) -> Adapters:
    if engine.state.for_real:
        return redoing(engine.state, adapters, worktrees)
    return await rehearsing(engine, adapters, worktrees)


class RehearsalPlayer:
    """Satisfies `Player`: a run that replays history, or does it again."""

    def configure(self, loaded: Loaded, state: RunState) -> Loaded:
        return loaded if state.for_real else for_rehearsal(loaded)

    def resume(self, fleet: Fleet, folder: RunFolder, *, changed: bool, as_json: bool) -> int:
        state = folder.state()
        if state.for_real:
            reopen = changed or state.ending in {"cancelled", "aborted", "failed"}
            return redo_and_show(fleet, folder, reopen=reopen, as_json=as_json)
        view = rehearse(fleet, folder, quiet=as_json)
        if view is None:
            return INTERRUPTED
        show_view(view, rehearsal_lines, as_json=as_json)
        return 0 if view.succeeded else 1


PLAYER = RehearsalPlayer()
