"""Verbs of a review: let what waits begin, all of it or a part, as it is or changed; or say no, and why."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.act import say
from fleet.cli.common import AsJson, RunArgument, show, show_json, the_run
from fleet.cli.sources import Sets, settings, shelves
from fleet.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.core.facts import PlanApproved, PlanRejected, PlanRevised
    from fleet.core.requests import Request
    from fleet.core.state import RunState
    from fleet.folders import RunFolder

Only = Annotated[list[str] | None, typer.Option("--only", help="This subtask, not all that wait; may be repeated.")]
LEFT_WAITING = 1  # the exit code of who looks and does not say yes


def register(app: typer.Typer) -> None:
    for verb in (approve, reject):
        app.command()(verb)


def approve(
    run: RunArgument = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="With this plan instead: a file, or a name of the library."),
    ] = None,
    sets: Sets = None,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Edit the plan in $EDITOR first.")] = False,
    only: Only = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what waits and why; approve nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at the plan that a run waits with, and let it begin.

    As it is, in part, or changed: a plan that does not hold together changes nothing, and every reason is told. On a
    terminal it asks first; in a script whoever calls it has said yes.

    \b
    Examples:
      fleet approve
      fleet approve RUN --edit
      fleet approve --plan better.toml --yes
      fleet approve --only schema --only api      the rest goes on waiting
      fleet approve --dry-run --json | jq .waiting
    """
    from dashboards.reviewing import review_lines
    from fleet.core.evolve import evolve
    from fleet.core.facts import PlanApproved
    from fleet.environment import user

    if plan is not None and edit:
        raise UsageError("choose one of --plan and --edit")
    if sets and plan is None:
        raise UsageError("--set sets a parameter of a plan; name it with --plan")
    folder = the_run(run)
    state = folder.asked()
    changed = _changed(state, plan, sets, edit=edit)
    if changed is not None:
        state = _graded(evolve(state, changed))
    approved = PlanApproved(
        at=time.time(), version=state.plan.version, by=user(), subtasks=tuple(only) if only else None
    )
    _accept(state, approved)
    if not as_json:
        show(review_lines(state, only))
    if not (yes or as_json or dry_run) and not _says_yes(approved):
        typer.echo(f"{folder.run}: nothing was approved or changed; it goes on waiting")
        raise typer.Exit(LEFT_WAITING)
    if not dry_run:
        _ask(folder, [*([changed] if changed is not None else []), approved])
    if as_json:
        show_json(_told(folder, state, approved, done=not dry_run))
    elif not dry_run:
        say(folder, f"plan version {approved.version} approved{_part(approved.subtasks)}")


def _changed(state: RunState, plan: str | None, sets: list[str] | None, *, edit: bool) -> PlanRevised | None:
    """What a person changes before the yes. Raises `UsageError` where that can't be."""
    if plan is None and not edit:
        return None
    from fleet.cli.edit import edited, revision_for

    if plan is None:
        return edited(state)
    return revision_for(state, shelves(Path(state.repository)).plan(plan), settings(sets))


def _graded(state: RunState) -> RunState:
    """With what the linter says of the plan as it was changed."""
    from dataclasses import replace

    from fleet.core.lint import grade_plan
    from fleet.core.standing import gone

    last = replace(state.versions[-1], warnings=grade_plan(state.plan, gone=gone(state)).all)
    return replace(state, versions=(*state.versions[:-1], last))


def _says_yes(word: PlanApproved) -> bool:
    """Only a clear word is one; the end of the input is a no. Where nobody can be asked, the command was the word."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return True
    typer.echo(f"Let this begin{_part(word.subtasks)}? [y/N] ", nl=False)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _part(ids: Sequence[str] | None) -> str:
    return f": {', '.join(ids)}" if ids else ""


def _accept(state: RunState, request: Request) -> None:
    from fleet.core.requests import accept

    problem = accept(state, request)
    if problem is not None:
        raise UsageError(problem)


def _ask(folder: RunFolder, requests: Sequence[Request]) -> None:
    from fleet.journal import Journal

    with Journal(folder.journal) as journal:
        for request in requests:
            journal.ask(request)


def _told(folder: RunFolder, state: RunState, word: PlanApproved | PlanRejected, *, done: bool) -> dict[str, object]:
    """What a script is told: what the word is about, and what waits besides. Its keys are public."""
    from fleet.core.approval import stopped_by, waiting

    about = [id_ for id_ in waiting(state) if word.subtasks is None or id_ in word.subtasks]
    return {
        "run": state.run,
        "version": word.version,
        "by": word.by,
        "done": done,
        "subtasks": about,
        "waiting": {id_: list(stopped_by(state, id_)) for id_ in waiting(state) if not done or id_ not in about},
        "plan_warnings": list(state.noticed),
        "alive": folder.alive,
    }


def reject(
    run: RunArgument = None,
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why; the planner revises by it.")] = "",
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """Say no to the plan that a run waits with, or to a part of it; the planner revises.

    \b
    Examples:
      fleet reject -m "deploy in the maintenance window"
      fleet reject RUN --only migrate -m "make a backup first"
    """
    from fleet.core.facts import PlanRejected
    from fleet.environment import user

    folder = the_run(run)
    state = folder.asked()
    part = tuple(only) if only else None
    rejected = PlanRejected(at=time.time(), version=state.plan.version, by=user(), reason=reason, subtasks=part)
    _accept(state, rejected)
    _ask(folder, [rejected])
    if as_json:
        show_json(_told(folder, state, rejected, done=True))
    else:
        say(folder, f"plan version {rejected.version} rejected{_part(part)}; the planner is told")
