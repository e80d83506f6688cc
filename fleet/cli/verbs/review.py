"""Verbs of a review: approve the plan of a run, all or some of it, as it is or changed; or reject it with a reason."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.plan_review import review_lines
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, Yes, question_ids, subtask_ids
from fleet.cli.plan_editor import (
    Sets,
    edit_plan,
    parse_settings,
    plan_library,
    plan_names,
    revised_run,
    revision_from,
)
from fleet.config.environment import user
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import (
    CancelRequested,
    InstructionGiven,
    Paused,
    PlanApproved,
    PlanRejected,
    QuestionAnswered,
    RetryRequested,
)
from fleet.errors import UsageError
from fleet.read.question_view import review_view, when_read
from fleet.read.run import just_after

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="SUBTASK", help="Only this subtask; may be repeated.", autocompletion=subtask_ids),
]
PlanInstead = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="PLAN",
        help="Approve this plan instead: a file, or a name of the library.",
        autocompletion=plan_names,
    ),
]
NOT_APPROVED = 1  # the exit code where a person was asked and did not say yes


def approve(
    run: RunArgument = None,
    plan: PlanInstead = None,
    sets: Sets = None,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Edit the plan in $EDITOR first.")] = False,
    only: Only = None,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what needs approval; approve nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Approve the plan of a run, or some of its subtasks.

    With --edit or --plan, the changed plan: if it is invalid, every reason is printed and nothing changes. On a
    terminal it asks first; in a script, calling it means yes.

    \b
    Examples:
      fleet approve
      fleet approve RUN --edit
      fleet approve --plan better.toml --yes
      fleet approve --only schema --only api      the others stay pending
      fleet approve --dry-run --json | jq .waiting
    """
    if plan is not None and edit:
        raise UsageError("use one of --plan and --edit")
    if sets and plan is None:
        raise UsageError("--set sets a parameter of a plan", hint="name the plan with --plan")
    folder = common.run_to_change(run, named, repo, yes=yes)
    it = just_after(folder.requested_state())
    revised = edit_plan(it) if edit else None
    if plan is not None:
        path = plan_library(Path(it.figures.repository)).plan(plan)
        revised = revision_from(it, path, parse_settings(sets))
    if revised is not None:
        it = revised_run(it, revised)
    subtasks = tuple(only) if only else None
    approved = PlanApproved(at=time.time(), version=it.plan.version, by=user(), subtasks=subtasks)
    common.check_request(it.state, approved)
    if not as_json:
        common.show(review_lines(it.review, only))
    if not (yes or as_json or dry_run) and not _says_yes(approved):
        typer.echo(f"{folder.run}: nothing was approved or changed; the plan stays pending")
        raise typer.Exit(NOT_APPROVED)
    if not dry_run:
        common.send_requests(folder, *([revised] if revised is not None else []), approved)
    if as_json:
        common.show_json(review_view(it.state, approved, done=not dry_run, alive=folder.alive))
    elif not dry_run:
        common.confirm_request(
            folder, approved.kind, f"plan version {approved.version} approved{_named(subtasks)}", as_json=False
        )


def _says_yes(approval: PlanApproved) -> bool:
    """Without a terminal no one can be asked: calling the command was the yes. The end of the input is a no."""
    if not common.has_terminal():
        return True
    typer.echo(f"Approve this{_named(approval.subtasks)}? [y/N] ", nl=False)
    return common.read_answer().strip().lower() in {"y", "yes"}


def _named(ids: Sequence[str] | None) -> str:
    return f": {', '.join(ids)}" if ids else ""


def reject(
    run: RunArgument = None,
    reason: Annotated[
        str, typer.Option("--reason", "-m", metavar="TEXT", help="The reason; the planner uses it to revise the plan.")
    ] = "",
    only: Only = None,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reject the plan of a run, or some of its subtasks.

    \b
    Examples:
      fleet reject -m "deploy in the maintenance window"
      fleet reject RUN --only migrate -m "make a backup first"
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    state = folder.requested_state()
    subtasks = tuple(only) if only else None
    rejected = PlanRejected(at=time.time(), version=state.plan.version, by=user(), reason=reason, subtasks=subtasks)
    common.check_request(state, rejected)
    common.send_requests(folder, rejected)
    if as_json:
        common.show_json(review_view(state, rejected, done=True, alive=folder.alive))
    else:
        message = f"plan version {rejected.version} rejected{_named(subtasks)}; the planner will revise it"
        common.confirm_request(folder, rejected.kind, message, as_json=False)


# ---- act -------------------------------------------------------------------------------------------------------------
# Verbs that make a request to a run: limits, pause, cancel, retry, answer. Its engine acts on them.


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
    subtask: common.SubtaskArgument,
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
    id_ = SubtaskId(subtask)
    request = InstructionGiven(at=time.time(), subtask=id_, text=text, by=user(), interrupt=interrupt)
    folder = common.run_to_change(None, named, repo, yes=yes)
    state = folder.requested_state()
    message = when_read(state, id_, interrupt=interrupt) if id_ in state.subtasks else ""
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
