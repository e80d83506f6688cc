"""A subtask with its attempts, its batches and its incidents."""

from dataclasses import dataclass

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import CheckRun, Failure, Report, RungChoice, Strategy
from fleet.core.plans.plan import Effort, Subtask
from fleet.core.state.machines import machine_problem
from fleet.core.state.state import RunState, TestedBatch
from fleet.core.state.status import Status, status_of
from fleet.core.state.subtasks import Attempt
from fleet.read.incident_view import IncidentView, incident_view
from fleet.read.question_view import InstructionView, instruction_views
from fleet.read.run_view import TokensView, tokens_view

BatchView = TestedBatch
"""A tested batch."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt at a subtask."""

    number: int
    """Number of the attempt, from 1."""
    worker: str
    """Worker kind that ran the attempt."""
    node: str
    """The node that worked on it. Empty for the manager's machine, or before it started."""
    model: str | None
    """Model that ran the attempt. Null: the worker's default."""
    effort: Effort | None
    """The effort level of the model. Null for the default."""
    choice: RungChoice | None
    """The rung of its worker's ladder, with the reason. Null without a ladder."""
    strategy: Strategy
    """Reason for the attempt."""
    guidance: str
    """The instructions for this attempt after a failure."""
    instructions: tuple[str, ...]
    """The instructions from people that it read."""
    started_at: float
    """In seconds since 1970."""
    ended_at: float | None
    """In seconds since 1970. Null while it is running."""
    seconds: float
    """Duration of the attempt."""
    base: Sha
    """Commit that the attempt started from."""
    commit: Sha | None
    """The commit. Null without a commit."""
    verified: bool
    """Whether its checks passed on this commit."""
    landed: Sha | None
    """The landed commit. Null if it did not land."""
    unchanged: bool
    """Whether it finished without changing a file."""
    tested: bool
    """Whether the tree of its own commit was tested when it landed."""
    paths: tuple[str, ...]
    """Changed files."""
    turns: int
    """Number of turns in the conversation."""
    last_message: str
    """The latest text of its model, or the latest summary of its thinking."""
    cost_dollars: float | None
    """Cost in USD. Null if the price of a call is unknown."""
    tokens: TokensView
    """Tokens used by the attempt."""
    report: Report | None
    """The worker's report. Not verified."""
    failure: Failure | None
    """Cause of the failure. Null if the attempt did not fail."""
    checks: tuple[CheckRun, ...]
    """Checks that ran, with their results."""


@dataclass(frozen=True, slots=True)
class DiffView:
    """The changes of an attempt."""

    subtask: SubtaskId
    """Subtask of the attempt."""
    attempt: int
    """Number of the attempt."""
    base: Sha
    """The commit that the attempt started from."""
    commit: Sha
    """The commit of the attempt."""
    diff: str
    """The patch from `base` to `commit`."""


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """A subtask and its history."""

    subtask: Subtask
    """The specification in the current plan: [a subtask](plan-file.md#a-subtask)."""
    status: Status
    """Status of the subtask."""
    waits_for: str
    """The machine that it waits for, and why none accepts it. Empty if it does not wait for one."""
    landed: Sha | None
    """The landed commit. Null if it did not land."""
    parts: tuple[SubtaskId, ...]
    """The parts it was split into."""
    dropped: str | None
    """Why the planner dropped it. Null if it was not dropped."""
    cost_dollars: float | None
    """Cost in USD. Null if the price of a call is unknown."""
    tokens: TokensView
    """Tokens used by all attempts."""
    instructions: tuple[InstructionView, ...]
    """The instructions from people for this subtask, in order."""
    attempts: tuple[AttemptView, ...]
    """All attempts, in order."""
    batches: tuple[TestedBatch, ...]
    """The batches that tested it or marked it as a suspect."""
    incidents: tuple[IncidentView, ...]
    """Incidents of the subtask."""


def subtask_view(state: RunState, spec: Subtask, now: float, *, logs: str = "") -> SubtaskView:
    """`logs` is the path prefix for the logs of checks."""
    subtask = state.subtasks[spec.id]
    return SubtaskView(
        subtask=spec,
        status=(status := status_of(state, spec.id, now)),
        waits_for=machine_problem(state, spec) if status == "ready" and not state.ended else "",
        landed=subtask.landed,
        parts=subtask.parts,
        dropped=subtask.dropped,
        cost_dollars=subtask.spend.dollars,
        tokens=tokens_view(subtask.spend),
        instructions=instruction_views(subtask),
        attempts=tuple(attempt_view(attempt, now, logs) for attempt in subtask.attempts),
        batches=tuple(b for b in state.landing.tested if spec.id in b.members or spec.id in b.suspects),
        incidents=tuple(incident_view(state, one, now) for one in state.incidents if one.subtask == spec.id),
    )


def attempt_view(attempt: Attempt, now: float, logs: str = "") -> AttemptView:
    """`logs` is the path prefix for the logs of checks."""
    return AttemptView(
        number=attempt.number,
        worker=attempt.worker,
        node=attempt.node,
        model=attempt.model,
        effort=attempt.effort,
        choice=attempt.choice,
        strategy=attempt.strategy,
        guidance=attempt.guidance,
        instructions=tuple(each.text for each in attempt.instructions),
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        seconds=round((attempt.ended_at or now) - attempt.started_at, 3),
        base=attempt.base,
        commit=attempt.commit,
        verified=attempt.verified,
        landed=attempt.landed,
        unchanged=attempt.unchanged,
        tested=attempt.tested,
        paths=attempt.paths,
        turns=attempt.turn,
        last_message=attempt.said,
        cost_dollars=attempt.spend.dollars,
        tokens=tokens_view(attempt.spend),
        report=attempt.report,
        failure=attempt.failure,
        checks=tuple(_check(check, logs) for check in attempt.checks),
    )


def _check(check: CheckRun, logs: str) -> CheckRun:
    return check.model_copy(update={"log": f"{logs}{check.log}"}) if check.log and logs else check
