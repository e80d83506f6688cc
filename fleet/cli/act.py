"""Verbs that ask something of a run: each puts a request into its inbox, where the engine finds it, now or later."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.cli.common import RunArgument, RunName, run_async, the_run
from fleet.errors import UsageError

if TYPE_CHECKING:
    from fleet.core.requests import Request
    from fleet.folders import RunFolder


def register(app: typer.Typer) -> None:
    for verb in (pause, cancel, retry, answer, merge):
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
    say(folder, done)


def say(folder: RunFolder, done: str) -> None:
    later = "" if folder.alive else f"; nothing runs it now: `fleet resume {folder.run}`"
    typer.echo(f"{folder.run}: {done}{later}")


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
