"""Verbs that make a request to a run: limits, pause, cancel, retry, answer. Its engine acts on them."""

import time
from typing import Annotated

import typer

from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, Yes
from fleet.cli.completion import question_ids, subtask_ids
from fleet.config.environment import user
from fleet.core.state.facts import CancelRequested, InstructionGiven, Paused, QuestionAnswered, RetryRequested
from fleet.core.views.question_view import when_read


def pause(
    run: RunArgument = None, named: RunName = None, repo: Repo = HERE, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Start nothing new until `fleet resume`.

    Running agents continue, and their work may land.

    \b
    Examples:
      fleet pause
      fleet pause RUN && fleet resume RUN
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    common.make_request(folder, Paused(at=time.time(), by=user()), "no new agents start", as_json=as_json)


def cancel(
    run: RunArgument = None, named: RunName = None, repo: Repo = HERE, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Stop a run and its agents.

    What has landed stays on its branch, finished work stays in the store; `fleet resume` continues the run.

    \b
    Examples:
      fleet cancel
      fleet cancel RUN
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    common.make_request(folder, CancelRequested(at=time.time(), by=user()), "cancelled", as_json=as_json)


def retry(
    subtask: Annotated[
        str, typer.Argument(metavar="SUBTASK", help="The id of a subtask that failed.", autocompletion=subtask_ids)
    ],
    guidance: Annotated[str, typer.Option("--guidance", "-g", metavar="TEXT", help="What to do differently.")] = "",
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retry a failed subtask, with your guidance.

    \b
    Examples:
      fleet retry tokens -g "use hmac.compare_digest"
    """
    request = RetryRequested(at=time.time(), subtask=subtask, guidance=guidance, by=user())
    folder = common.run_to_change(None, named, repo, yes=yes)
    common.make_request(folder, request, f"{subtask} will be retried", as_json=as_json)


def tell(
    subtask: common.SubtaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to do, or to know, in your words.")],
    interrupt: Annotated[
        bool, typer.Option("--interrupt", help="Stop the command that the agent runs, so that it reads this now.")
    ] = False,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Tell an agent what to do, while it works.

    It reads this after the results of the tools that it runs, as an instruction of yours; later attempts at the subtask
    read it, too. A worker that is a program reads it with the next attempt.

    \b
    Examples:
      fleet tell tokens "the clock is in UTC, add no time zone"
      fleet tell tokens --interrupt "stop the load test, it never ends"
    """
    request = InstructionGiven(at=time.time(), subtask=subtask, text=text, by=user(), interrupt=interrupt)
    folder = common.run_to_change(None, named, repo, yes=yes)
    state = folder.requested_state()
    message = when_read(state, subtask, interrupt=interrupt) if subtask in state.subtasks else ""
    common.make_request(folder, request, f"{subtask} told: {message}", as_json=as_json)


def answer(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="The id of a question, such as q1.", autocompletion=question_ids)
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Your answer, for the planner.")],
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question that a run asks.

    \b
    Examples:
      fleet answer q1 "Use UTC everywhere"
    """
    folder = common.run_to_change(None, named, repo, yes=yes)
    known = next((id_ for id_ in folder.state().questions if id_.lower() == question.lower()), question)
    request = QuestionAnswered(at=time.time(), question=known, answer=text, by=user())
    common.make_request(folder, request, f"{known} answered", as_json=as_json)
