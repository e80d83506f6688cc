"""Verbs that ask something of a run: each puts a request into its inbox, where the engine finds it, now or later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import RunArgument, RunName, run_async, the_run
from fleet.cli.sources import Sets, settings, shelves
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.core.requests import Request
    from fleet.core.state import RunState
    from fleet.folders import RunFolder


Only = Annotated[list[str] | None, typer.Option("--only", help="This subtask, not all that wait; may be repeated.")]


def register(app: typer.Typer) -> None:
    for verb in (approve, reject, pause, cancel, retry, answer, merge):
        app.command()(verb)


def ask(folder: RunFolder, request: Request, done: str) -> None:
    """Put `request` into the inbox, if it makes sense now."""
    from fleet.core.requests import accept
    from fleet.journal import Journal

    problem = accept(folder.state(), request)
    if problem is not None:
        raise UsageError(problem)
    with Journal(folder.journal) as journal:
        journal.ask(request)
    _say(folder, done)


def _say(folder: RunFolder, done: str) -> None:
    later = "" if folder.alive else f"; nothing runs it now: `fleet resume {folder.run}`"
    typer.echo(f"{folder.run}: {done}{later}")


def approve(
    run: RunArgument = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="PLAN", help="With this plan instead: a file, or a name of the library."),
    ] = None,
    sets: Sets = None,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Edit the plan in $EDITOR first.")] = False,
    only: Only = None,
) -> None:
    """Let the plan that a run waits with begin.

    As it is, in part, or changed: a plan that does not hold together changes nothing, and every reason is told.

    \b
    Examples:
      fleet approve
      fleet approve RUN --edit
      fleet approve --plan better.toml
      fleet approve --only schema --only api      the rest goes on waiting
    """
    from dashboards.words import noticed_lines
    from fleet.cli.common import show
    from fleet.core.evolve import evolve
    from fleet.core.facts import PlanApproved
    from fleet.core.lint import grade_plan
    from fleet.core.requests import accept
    from fleet.core.standing import gone
    from fleet.environment import user
    from fleet.journal import Journal

    if plan is not None and edit:
        raise UsageError("choose one of --plan and --edit")
    if sets and plan is None:
        raise UsageError("--set sets a parameter of a plan; name it with --plan")
    folder = the_run(run)
    state, now = folder.asked(), time.time()
    requests: list[Request] = []
    if plan is not None or edit:
        from fleet.cli.edit import edited, revision_for

        revision = revision_for(state, _file(plan, state), settings(sets)) if plan is not None else edited(state)
        requests += [revision] if revision is not None else []
    for request in requests:
        state = evolve(state, request)
    approved = PlanApproved(at=now, version=state.plan.version, by=user(), subtasks=tuple(only) if only else None)
    if (problem := accept(state, approved)) is not None:
        raise UsageError(problem)
    with Journal(folder.journal) as journal:
        for request in (*requests, approved):
            journal.ask(request)
    show(noticed_lines(grade_plan(state.plan, gone=gone(state)).all if requests else state.noticed))
    _say(folder, f"plan version {approved.version} approved")


def _file(plan: str, state: RunState) -> Path:
    return shelves(Path(state.repository)).plan(plan)


def reject(
    run: RunArgument = None,
    reason: Annotated[str, typer.Option("--reason", "-m", help="Why; the planner revises by it.")] = "",
    only: Only = None,
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
    part = tuple(only) if only else None
    version = folder.state().plan.version
    request = PlanRejected(at=time.time(), version=version, by=user(), reason=reason, subtasks=part)
    ask(folder, request, f"plan version {version} rejected; the planner is told")


def pause(run: RunArgument = None) -> None:
    """Begin nothing new until `fleet resume`.

    What runs goes on, and may land.

    \b
    Examples:
      fleet pause
      fleet pause RUN && fleet resume RUN
    """
    from fleet.core.facts import Paused
    from fleet.environment import user

    ask(the_run(run), Paused(at=time.time(), by=user()), "nothing new begins")


def cancel(run: RunArgument = None) -> None:
    """Stop a run and what it is doing.

    What has landed stays on its branch, finished work stays in the store; `fleet resume` takes it up again.

    \b
    Examples:
      fleet cancel
      fleet cancel RUN
    """
    from fleet.core.facts import CancelRequested
    from fleet.environment import user

    ask(the_run(run), CancelRequested(at=time.time(), by=user()), "cancelled")


def retry(
    subtask: Annotated[str, typer.Argument(help="The id of a subtask that failed.")],
    guidance: Annotated[str, typer.Option("--guidance", "-g", help="What to do differently.")] = "",
    run: RunName = None,
) -> None:
    """Try a failed subtask again, with your guidance.

    \b
    Examples:
      fleet retry tokens -g "use hmac.compare_digest"
    """
    from fleet.core.facts import RetryRequested
    from fleet.environment import user

    request = RetryRequested(at=time.time(), subtask=subtask, guidance=guidance, by=user())
    ask(the_run(run), request, f"{subtask} will be tried again")


def answer(
    question: Annotated[str, typer.Argument(help="The id of a question, such as q1.")],
    text: Annotated[str, typer.Argument(help="Your answer; the planner reads it.")],
    run: RunName = None,
) -> None:
    """Answer a question that a run asks.

    \b
    Examples:
      fleet answer q1 "Use UTC everywhere"
    """
    from fleet.core.facts import QuestionAnswered
    from fleet.environment import user

    request = QuestionAnswered(at=time.time(), question=question, answer=text, by=user())
    ask(the_run(run), request, f"{question} answered")


def merge(
    run: Annotated[str, typer.Argument(help="The run whose result to take.")],
    into: Annotated[str, typer.Option("--into", help="A branch of yours that is not checked out.")],
) -> None:
    """Merge a run's result into a branch of yours.

    Your checkout is not touched: the branch must not be checked out.

    \b
    Examples:
      fleet merge RUN --into main
    """
    from worktrees.publish import merge_into
    from worktrees.target import inspect

    folder = the_run(run)
    state = folder.state()
    if state.published is None:
        raise UsageError(f"nothing of {folder.run} has landed; there is nothing to merge")

    async def merged() -> str:
        return await merge_into(await inspect(Path(state.repository)), folder.run, into)

    sha = run_async(merged)
    typer.echo(f"{into} is at {sha[:12]} now, with {state.commits} commits of {folder.run}")
