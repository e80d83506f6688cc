"""Run rehearsals for real: check history, confirm the cost, run, score the results and show them.

An interrupted rehearsal can be continued. Verdicts are recorded one by one.
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
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder, make_state_dir, new_run
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.sandbox.box import require_bubblewrap
from worktrees.target.target import inspect

STOPPED: Mapping[str, int] = {"cancelled": 1, "aborted": 1, "failed": 3, "budget": 4}
"""The exit codes of premature endings."""
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Redoing:
    """The options of `fleet rehearse --for-real`."""

    repository: Path
    last: int
    worker: str
    name: str | None
    yes: bool


def begin_and_show(fleet: Fleet, asked: Redoing, *, as_json: bool) -> int:
    """Start a rehearsal for real, and show its result. Returns the exit code."""
    return redo_and_show(fleet, _begin(fleet, asked), as_json=as_json)


def redo_and_show(fleet: Fleet, folder: RunFolder, *, as_json: bool, reopen: bool = False) -> int:
    """Continue the rehearsal, and show the result. Failed subtasks are only retried if the run is reopened."""
    view = _redo(fleet, folder, quiet=as_json, reopen=reopen)
    if view is None:
        typer.echo(f"{folder.run}: interrupted. To continue, run `fleet resume {folder.run}`", err=True)
        return INTERRUPTED
    show_view(view, past_tasks_lines, as_json=as_json)
    return _exit_code(view)


def _exit_code(view: PastTasksView) -> int:
    """Return 0 if every commit was attempted and judged, whether it passed or not."""
    untried = any(not commit.tried for commit in view.redone)
    unjudged = any(commit.landed and commit.tests and commit.passed is None for commit in view.redone)
    return STOPPED.get(view.ending or "", 1 if untried or unjudged else 0)


def _begin(fleet: Fleet, asked: Redoing) -> RunFolder:
    """Check history, confirm, and create the run. Raises `UsageError` if no commit is suitable or the user declines."""
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
    """Check the options before reading history. Raises `FleetError`."""
    config, workers = fleet.config, fleet.config.workers
    if asked.worker not in workers:
        near = did_you_mean(asked.worker, workers)
        raise UsageError(f"unknown worker: --worker {asked.worker}{near}", hint=f"use one of: {', '.join(workers)}")
    _require_box(fleet)
    if not config.checks.gate.strip():
        raise UsageError(
            "--for-real requires a gate to judge the work of workers", hint="set checks.gate, or pass --gate COMMAND"
        )
    if config.run.budget_dollars is None:
        raise UsageError(
            "--for-real costs money and requires a budget", hint="pass --budget USD, or set run.budget_dollars"
        )
    fleet.wiring.require_models({asked.worker})
    run_async(lambda: fleet.make_way(asked.name))
    new_run(fleet.state_dir, "", asked.name)  # raises if the name is taken


def _require_box(fleet: Fleet) -> None:
    if fleet.config.box.sandbox == "none":
        raise UsageError(
            "--for-real requires the sandbox: without it, workers can read the solution in the repository",
            hint="set box.sandbox to a value other than none",
        )


def _confirm(fleet: Fleet, asked: Redoing, found: PastTasks, estimates: Sequence[SubtaskEstimate]) -> None:
    tasks, budget = len(found.rehearsal.tasks), fleet.config.run.budget_dollars or 0.0
    with_tests = sum(bool(task.tests) for task in found.rehearsal.tasks)
    by = f"{asked.worker}{_with_model(fleet, asked.worker)}"
    head = f"{counted(tasks, 'commit')} to redo by {by}, {with_tests} of them with their own tests"
    limit = f"Budget: at most ${budget:.2f}, including planner calls after failures"
    typer.echo("\n".join([head, *comparable_lines(estimates), limit]), err=True)
    if asked.yes:
        return
    if not has_terminal():
        raise UsageError("--for-real costs money and can't ask for confirmation without a terminal", hint="pass --yes")
    typer.echo(f"Spend up to ${budget:.2f}? [y/N] ", nl=False, err=True)
    if read_answer().strip().lower() not in {"y", "yes"}:
        raise UsageError("not confirmed, so the rehearsal was not started")


def _with_model(fleet: Fleet, worker: str) -> str:
    kind = fleet.wiring.workers[worker]
    return "" if kind.kind == "command" else f" with {next(iter(kind.choices), fleet.config.models.worker)}"


def _redo(fleet: Fleet, folder: RunFolder, *, quiet: bool, reopen: bool) -> PastTasksView | None:
    """Run and score a rehearsal for real. Returns None if it was interrupted."""
    _require_box(fleet)
    state = folder.state()
    if not state.ended or reopen:
        state = work(fleet, folder, quiet=quiet)
    if not state.ended:
        return None
    _score(fleet, folder)
    return past_tasks_view(folder.state(), time.time())


def _score(fleet: Fleet, folder: RunFolder) -> None:
    """Run the original tests on landed results that have no verdict yet."""
    state, wiring = folder.state(), fleet.wiring
    waiting = unscored(state)
    if not waiting:
        return
    show_note(f"{folder.run}: running the original tests on {counted(len(waiting), 'result')} …")
    with engine_lock(folder.journal), Journal(folder.journal) as journal:

        def record(verdict: f.ResultScored) -> None:
            journal.append([verdict])
            says = "pass" if verdict.passed else "FAIL"
            typer.echo(f"  {verdict.subtask}: original tests {says}", err=True)

        run_async(lambda: score(state, wiring.worktrees, wiring.gate, SystemClock(), record))


# ---- rehearsal -------------------------------------------------------------------------------------------------------
# Runs or continues a rehearsal and prints its events: the trials of the gate, the run, the result.


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TRIES = 3  # runs of the gate on the newest commit


def rehearse(fleet: Fleet, folder: RunFolder, *, tries: int = TRIES, quiet: bool) -> RehearsalView | None:
    """Run or continue a rehearsal. Returns its result, or None if it was interrupted."""
    state = folder.state()
    if state.gate_tried is None:
        _try_gate(fleet, folder, tries)
        state = folder.state()
    is_whole, before = state.epoch == 0, used_processor()
    if state.ending != "landed":
        state = work(fleet, folder, quiet=quiet)
    processor_s = used_processor() - before if is_whole else None
    if not state.ended:
        typer.echo(f"{folder.run}: interrupted. To continue, run `fleet resume {folder.run}`", err=True)
        return None
    target = run_async(lambda: inspect(Path(state.repository), state.base))
    outcome = run_async(lambda: compare(fleet.state_dir, target, state))
    return rehearsal_view(state, outcome, machine(fleet.state_dir), now=time.time(), processor_s=processor_s)


def rehearsal_name(fleet: Fleet, head: Sha) -> str:
    """Return an unused name that identifies the run as a rehearsal."""
    taken = {path.name for path in (fleet.state_dir / "runs").glob("rehearsal-*")}
    stem = f"rehearsal-{head[:7]}"
    return next(name for number in range(1, len(taken) + 2) if (name := f"{stem}-{number}") not in taken)


def _try_gate(fleet: Fleet, folder: RunFolder, tries: int) -> None:
    """Run the gate on the newest commit, and record the results."""
    wiring, state = fleet.wiring, folder.state()
    head = head_of(state)
    if not wiring.gate.criteria:
        typer.echo(
            f"{folder.run}: no gate configured, so only trees are compared (set checks.gate, or pass --gate COMMAND)",
            err=True,
        )
    else:
        show_note(f"{folder.run}: running the gate on {head[:12]}, {counted(tries, 'time')} …")
    target = run_async(lambda: inspect(Path(state.repository), head))
    tried = run_async(lambda: try_gate(target, wiring.worktrees, wiring.gate, times=tries, at=time.time()))
    with engine_lock(folder.journal), Journal(folder.journal) as journal:
        journal.append([tried])


def work(fleet: Fleet, folder: RunFolder, *, quiet: bool) -> RunState:
    """Run the engine until the run has ended, and print its events."""
    with open_screen(live=False, as_json=quiet) as screen:
        events = RunDisplay(folder, screen, interactive=False)
        return run_async(lambda: run_engine(fleet, folder, STOPS, events)).state


# ---- resume ----------------------------------------------------------------------------------------------------------


async def rehearsal_adapters(engine: Recorder, adapters: Adapters, worktrees: RunWorktrees) -> Adapters:
    if engine.state.for_real:
        return redoing(engine.state, adapters, worktrees)
    return await rehearsing(engine, adapters, worktrees)


class RehearsalPlayer:
    """Satisfies `Player` for runs that replay or redo history."""

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
