"""Facts about the plan: planner calls, versions, approvals and rejections."""

from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts.fact_parts import Failure, Forecast, TimedFact
from fleet.core.plans.revision import Revision


class PlannerCalled(TimedFact):
    """The engine decided to call a planner."""

    kind: Literal["planner_called"] = "planner_called"
    call: int
    """Number of the planner call, from 1."""
    why: str
    """Reason for the call: `start`, `failures`, `reports`, `answers`, `budget` or `conclude`."""
    area: SubtaskId | None = None
    """Area whose planner is called. Null: the run's own planner."""


class PlanRevised(TimedFact):
    """A revision was applied, which gives the plan a new version."""

    kind: Literal["plan_revised"] = "plan_revised"
    call: int | None
    """Number of the planner call. Null: a user edited the plan."""
    by: str
    """`planner`, or the user who edited the plan."""
    revision: Revision
    """Changes to the plan."""
    area: SubtaskId | None = None
    """Area whose planner made the revision. Null: the run's own planner, or a user."""


class PlanGraded(TimedFact):
    """Warnings of the plan linter about a version of the plan. They do not stop the run."""

    kind: Literal["plan_graded"] = "plan_graded"
    version: int
    """Version of the plan."""
    warnings: tuple[str, ...]
    """Texts of the warnings."""


class PlanForecast(TimedFact):
    """Expected cost and duration, before any work started. Not written any more, so that old journals load."""

    kind: Literal["plan_forecast"] = "plan_forecast"
    version: int
    """Version of the plan."""
    forecast: Forecast
    """Median and 90th percentile of cost and duration."""


class PlannerFailed(TimedFact):
    """A planner call failed. The planner is called again at `not_before`."""

    kind: Literal["planner_failed"] = "planner_failed"
    call: int
    """Number of the planner call."""
    failure: Failure
    """Cause of the failure."""
    not_before: float
    """Earliest time of the next call."""
    area: SubtaskId | None = None
    """Area whose planner was called. Null: the run's own planner."""


class PlanApproved(TimedFact):
    """Subtasks of a plan version were approved and may start."""

    kind: Literal["plan_approved"] = "plan_approved"
    version: int
    """Version of the plan."""
    by: str
    """User who approved, or `the review rules`."""
    subtasks: tuple[SubtaskId, ...] | None = None
    """Approved subtasks. Null, in requests and in facts of early versions: all that wait for approval."""
    left_out: tuple[SubtaskId, ...] | None = None
    """Other subtasks that waited for approval and were not approved. Null in facts of early versions."""
    automatic: bool = False
    """Whether the rules of `[review]` approved, not a user."""


class PlanRejected(TimedFact):
    """A user rejected the plan or a part of it. No rejected subtask starts, and the planner may revise the plan."""

    kind: Literal["plan_rejected"] = "plan_rejected"
    version: int
    """Version of the plan."""
    by: str
    """User who rejected."""
    reason: str
    """Reason given by the user."""
    subtasks: tuple[SubtaskId, ...] | None = None
    """Rejected subtasks. Null, in requests and in facts of early versions: all that wait for approval."""


PlanFact = PlannerCalled | PlanRevised | PlanGraded | PlanForecast | PlannerFailed | PlanApproved | PlanRejected


# ---- people facts ----------------------------------------------------------------------------------------------------
# Facts about questions to humans, and about requests from users.


class QuestionAsked(TimedFact):
    """The engine reached a limit and needs a human decision.

    The planner's questions are part of its revision.
    """

    kind: Literal["question_asked"] = "question_asked"
    about: SubtaskId | None
    """Subtask that the question concerns, if any."""
    question: str
    """Text of the question."""
    options: tuple[str, ...] = ()
    """Suggested answers."""
    evidence: str = ""
    """Output or report that led to the question."""
    planner: bool = False
    """Whether the question reports that the planner does not respond. It closes when the planner responds, and blocks
    no work."""
    service: str | None = None
    """Model family affected, for a question about the model service. Empty: the entire service."""
    aside: bool = False
    """Whether the work in question is set aside because of an internal error. The run does not wait for an answer."""


class QuestionAnswered(TimedFact):
    """A user answered a question."""

    kind: Literal["question_answered"] = "question_answered"
    question: QuestionId
    """Id of the question."""
    answer: str
    """Text of the answer."""
    by: str
    """User who answered."""
    drop: bool = False
    """Whether the answer drops the subtask in question. Used in runs without a planner."""


class RetryRequested(TimedFact):
    """A user requested another attempt at a subtask, regardless of its limits."""

    kind: Literal["retry_requested"] = "retry_requested"
    subtask: SubtaskId
    """Subtask to retry."""
    guidance: str
    """Instructions for the next attempt."""
    by: str
    """User who sent the request."""


class InstructionGiven(TimedFact):
    """A user sent an instruction to the workers of a subtask: to the running attempt and to later ones."""

    kind: Literal["instruction_given"] = "instruction_given"
    subtask: SubtaskId
    """Subtask that the instruction is for."""
    text: str
    """Text of the instruction."""
    by: str
    """User who sent the instruction."""
    interrupt: bool = False
    """Whether the attempt's running command is stopped so that the worker reads the instruction immediately."""


class InstructionRead(TimedFact):
    """An attempt's next model request includes the instructions given so far."""

    kind: Literal["instruction_read"] = "instruction_read"
    subtask: SubtaskId
    """Subtask of the attempt."""
    number: int
    """Number of the attempt."""
    count: int
    """Number of the subtask's instructions that the attempt has read."""


class Paused(TimedFact):
    """A user paused the run: no new work starts, and running work continues."""

    kind: Literal["paused"] = "paused"
    by: str
    """User who sent the request, or `run.not_between` during quiet hours."""


class Unpaused(TimedFact):
    """A user ended the pause."""

    kind: Literal["unpaused"] = "unpaused"
    by: str
    """User who sent the request, or `run.not_between` at the end of quiet hours."""


class DrainRequested(TimedFact):
    """A user requested a stop after running work has finished, for example with a first Ctrl-C."""

    kind: Literal["drain_requested"] = "drain_requested"
    by: str
    """User who sent the request."""


class CancelRequested(TimedFact):
    """A user cancelled the run and all its work."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    by: str
    """User who sent the request."""


class LimitsChanged(TimedFact):
    """A user changed limits of the run. Null leaves a limit unchanged."""

    kind: Literal["limits_changed"] = "limits_changed"
    by: str
    """User who sent the request, or `fleet`."""
    workers: int | None = None
    """New limit of concurrent attempts."""
    budget_dollars: float | None = None
    """New total budget in dollars."""
    budget_minutes: float | None = None
    """New total budget in minutes."""
    allow_red_base: bool | None = None
    """Whether the run may continue if the gate fails on the base. Applied when the base is checked."""
    budget_tokens: int | None = None
    """New total budget in tokens."""
    budget_attempts: int | None = None
    """New total budget of attempts."""


PeopleFact = (
    QuestionAsked
    | QuestionAnswered
    | RetryRequested
    | InstructionGiven
    | InstructionRead
    | Paused
    | Unpaused
    | DrainRequested
    | CancelRequested
    | LimitsChanged
)
