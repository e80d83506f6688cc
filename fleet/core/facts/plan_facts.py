"""Facts about the plan: the calls of its planners, its versions, the verdicts on it."""

from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts.fact_parts import Failure, Forecast, Happened
from fleet.core.plans.revision import Revision


class PlannerCalled(Happened):
    """The decision to call a planner."""

    kind: Literal["planner_called"] = "planner_called"
    call: int
    why: str
    """Why: `start`, `failures`, `reports`, `answers`, `budget` or `conclude`."""
    area: SubtaskId | None = None
    """The area whose planner it is; None means the run's own. The same in the other facts."""


class PlanRevised(Happened):
    """A revision was applied as a whole: the plan has a new version."""

    kind: Literal["plan_revised"] = "plan_revised"
    call: int | None
    """None means that a person edited the plan."""
    by: str
    revision: Revision
    area: SubtaskId | None = None


class PlanGraded(Happened):
    """The linter's warnings about a version of the plan. They do not stop it."""

    kind: Literal["plan_graded"] = "plan_graded"
    version: int
    warnings: tuple[str, ...]


class PlanForecast(Happened):
    """Before anything of the plan was begun: what an early version expected. Kept so that old journals load."""

    kind: Literal["plan_forecast"] = "plan_forecast"
    version: int
    forecast: Forecast
    """The medians, and what nine of ten runs should need at most."""


class PlannerFailed(Happened):
    """A planner call failed; the planner is called again at `not_before`."""

    kind: Literal["planner_failed"] = "planner_failed"
    call: int
    failure: Failure
    not_before: float
    area: SubtaskId | None = None


class PlanApproved(Happened):
    """A version of the plan, or a part of it, was approved and may begin."""

    kind: Literal["plan_approved"] = "plan_approved"
    version: int
    by: str
    subtasks: tuple[SubtaskId, ...] | None = None
    """Which subtasks. A request may leave it None for all that wait; so did the facts of early versions."""
    left_out: tuple[SubtaskId, ...] | None = None
    """The subtasks that waited beside them and that a person did not approve. None in facts of early versions."""
    automatic: bool = False
    """Approved by the rules of `[review]`, not by a person."""


class PlanRejected(Happened):
    """A person rejected the plan or a part of it: none of it begins, and the planner may revise it."""

    kind: Literal["plan_rejected"] = "plan_rejected"
    version: int
    by: str
    reason: str
    subtasks: tuple[SubtaskId, ...] | None = None
    """Which subtasks. A request may leave it None for all that wait; so did the facts of early versions."""


PlanFact = PlannerCalled | PlanRevised | PlanGraded | PlanForecast | PlannerFailed | PlanApproved | PlanRejected


# ---- people facts ----------------------------------------------------------------------------------------------------
# Facts about people: what they were asked and what they asked for.


class QuestionAsked(Happened):
    """Past a limit, the engine asks a human. A planner's questions come with its revision."""

    kind: Literal["question_asked"] = "question_asked"
    about: SubtaskId | None
    question: str
    options: tuple[str, ...] = ()
    evidence: str = ""
    planner: bool = False
    """It says that the planner does not answer. It blocks nothing and is settled when the planner answers."""
    service: str | None = None
    """The model family that a question about the model service concerns; empty means all of it."""
    aside: bool = False
    """What it is about is set aside because of an error of fleet: the run does not wait for an answer."""


class QuestionAnswered(Happened):
    """A person answered a question."""

    kind: Literal["question_answered"] = "question_answered"
    question: QuestionId
    answer: str
    by: str
    drop: bool = False
    """It drops the subtask in question, in a run without a planner who would."""


class RetryRequested(Happened):
    """A person wants a subtask to be tried again, past its limits."""

    kind: Literal["retry_requested"] = "retry_requested"
    subtask: SubtaskId
    guidance: str
    by: str


class InstructionGiven(Happened):
    """A person tells those who work on a subtask what to do: the attempt under way, and later ones."""

    kind: Literal["instruction_given"] = "instruction_given"
    subtask: SubtaskId
    text: str
    by: str
    interrupt: bool = False
    """Whether the command that the attempt runs is stopped, so that it reads this at once."""


class InstructionRead(Happened):
    """The next request of an attempt to its model holds the instructions for its subtask up to here."""

    kind: Literal["instruction_read"] = "instruction_read"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    count: int
    """How many of the subtask's instructions the attempt holds now."""


class Paused(Happened):
    """A person wants nothing new to begin; work under way continues."""

    kind: Literal["paused"] = "paused"
    by: str


class Unpaused(Happened):
    """A person lets the run continue."""

    kind: Literal["unpaused"] = "unpaused"
    by: str


class DrainRequested(Happened):
    """Nothing new begins, work under way may finish, then the engine stops: the first Ctrl-C."""

    kind: Literal["drain_requested"] = "drain_requested"
    by: str


class CancelRequested(Happened):
    """A person stops the run and all its work."""

    kind: Literal["cancel_requested"] = "cancel_requested"
    by: str


class LimitsChanged(Happened):
    """A person changed limits of the run. None leaves a limit as it was."""

    kind: Literal["limits_changed"] = "limits_changed"
    by: str
    workers: int | None = None
    budget_dollars: float | None = None
    budget_minutes: float | None = None
    allow_red_base: bool | None = None
    """Whether the run may continue on a base on which the gate is red. Applied when the base is checked."""
    budget_tokens: int | None = None
    budget_attempts: int | None = None


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
