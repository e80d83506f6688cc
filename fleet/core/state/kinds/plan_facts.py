"""Facts about the plan: the calls of its planners, its versions, the verdicts on it."""

from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.revision import Revision
from fleet.core.state.kinds.estimate_parts import Forecast
from fleet.core.state.kinds.fact_parts import Failure, Happened


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
