"""Verbs that decide: approve, reject, pause, cancel, retry, tell, answer."""

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
    typer.Option(
        "--only", metavar="SUBTASK", help="Only this subtask. Can be used multiple times.", autocompletion=subtask_ids
    ),
]
PlanInstead = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="PLAN",
        help="Approve this plan instead: a file, or a plan in the library.",
        autocompletion=plan_names,
    ),
]
NOT_APPROVED = 1  # the exit code if the user answers no


def approve(
    run: RunArgument = None,
    plan: PlanInstead = None,
    sets: Sets = None,
    edit: Annotated[bool, typer.Option("--edit", "-e", help="Edit the plan in $EDITOR before you approve it.")] = False,
    only: Only = None,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the subtasks that need approval, then exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Approve a run's plan, or some of its subtasks.

    On a terminal, it asks for confirmation. In a script, it does not. With --edit or --plan, it approves the changed
    plan. If that plan is invalid, it prints every problem and the run keeps its plan.

    \b
    Examples:
      fleet approve
      fleet approve RUN --edit
      fleet approve --plan better.toml --yes
      fleet approve --only schema --only api      the others stay pending
      fleet approve --dry-run --json | jq .waiting
    """
    if plan is not None and edit:
        raise UsageError("--plan and --edit can't be used together", hint="use one of them")
    if sets and plan is None:
        raise UsageError("--set requires --plan", hint="pass the plan: fleet approve --plan PLAN --set NAME=VALUE")
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
        typer.echo(f"{folder.run}: not approved. The plan is still pending.")
        raise typer.Exit(NOT_APPROVED)
    if not dry_run:
        common.send_requests(folder, *([revised] if revised is not None else []), approved)
    if as_json:
        common.show_json(review_view(it.state, approved, done=not dry_run, alive=folder.alive))
    elif not dry_run:
        common.confirm_request(
            folder, approved.kind, f"plan version {approved.version} approved{_name(subtasks)}", as_json=False
        )


def _says_yes(approval: PlanApproved) -> bool:
    """Ask for confirmation. Without a terminal the answer is yes. The end of the input means no."""
    if not common.has_terminal():
        return True
    typer.echo(f"Approve this{_name(approval.subtasks)}? [y/N] ", nl=False)
    return common.read_answer().strip().lower() in {"y", "yes"}


def _name(ids: Sequence[str] | None) -> str:
    return f": {', '.join(ids)}" if ids else ""


def reject(
    run: RunArgument = None,
    reason: Annotated[
        str, typer.Option("--reason", "-m", metavar="TEXT", help="The reason. The planner uses it to revise the plan.")
    ] = "",
    only: Only = None,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reject a run's plan, or some of its subtasks.

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
        message = f"plan version {rejected.version} rejected{_name(subtasks)}. The planner will revise it."
        common.confirm_request(folder, rejected.kind, message, as_json=False)


# ---- act -------------------------------------------------------------------------------------------------------------
# Verbs that send a request to a run: pause, cancel, retry, tell, answer. The run's engine applies it.


def pause(
    run: RunArgument = None, named: RunName = None, repo: Repo = HERE, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Pause a run: let running attempts finish, start no new ones.

    Their work may still land. `fleet resume` continues the run.

    \b
    Examples:
      fleet pause
      fleet pause RUN && fleet resume RUN
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    common.make_request(folder, Paused(at=time.time(), by=user()), "paused: no new agents start", as_json=as_json)


def cancel(
    run: RunArgument = None, named: RunName = None, repo: Repo = HERE, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Stop a run and its agents.

    Landed commits stay on the branch, and finished work stays in the store. `fleet resume` continues the run.

    \b
    Examples:
      fleet cancel
      fleet cancel RUN
    """
    folder = common.run_to_change(run, named, repo, yes=yes)
    common.make_request(folder, CancelRequested(at=time.time(), by=user()), "cancelled", as_json=as_json)


def retry(
    subtask: Annotated[
        str, typer.Argument(metavar="SUBTASK", help="The id of a failed subtask.", autocompletion=subtask_ids)
    ],
    guidance: Annotated[
        str, typer.Option("--guidance", "-g", metavar="TEXT", help="Instructions for the next attempt.")
    ] = "",
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retry a failed subtask, optionally with guidance.

    \b
    Examples:
      fleet retry tokens -g "use hmac.compare_digest"
    """
    request = RetryRequested(at=time.time(), subtask=subtask, guidance=guidance, by=user())
    folder = common.run_to_change(None, named, repo, yes=yes)
    common.make_request(folder, request, f"{subtask} will be retried", as_json=as_json)


def tell(
    subtask: common.SubtaskArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The instruction to send.")],
    interrupt: Annotated[
        bool,
        typer.Option("--interrupt", help="Stop the agent's current command, so that it reads the instruction now."),
    ] = False,
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send an instruction to a running agent.

    The agent reads the instruction after its current tool calls. Later attempts at the subtask read it too. A worker
    that is a program reads it in the next attempt.

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
    common.make_request(folder, request, f"instruction sent to {subtask}: {message}", as_json=as_json)


def answer(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="The id of a question, such as q1.", autocompletion=question_ids)
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Your answer to the planner.")],
    named: RunName = None,
    repo: Repo = HERE,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question from a run.

    \b
    Examples:
      fleet answer q1 "Use UTC everywhere"
    """
    folder = common.run_to_change(None, named, repo, yes=yes)
    known = next((id_ for id_ in folder.state().questions if id_.lower() == question.lower()), question)
    request = QuestionAnswered(at=time.time(), question=known, answer=text, by=user())
    common.make_request(folder, request, f"{known} answered", as_json=as_json)
