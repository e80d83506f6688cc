"""The size of a plan by its own estimates: risks, minutes, dollars, and how many subtasks have an estimate."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.plans.dependencies import longest_chains, needs_of
from fleet.core.plans.plan import Plan, Risk


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    risks: Mapping[Risk, int]
    minutes: float
    longest: float
    """Minutes of the longest chain: the time that remains with any number of workers."""
    timed: int
    """Number of subtasks with an estimate in minutes."""
    dollars: float
    priced: int
    """Number of subtasks with an estimate in dollars."""


def plan_estimate(plan: Plan) -> PlanEstimate:
    """The sums over a plan without cycles."""
    minutes = {
        subtask.id: subtask.estimate.minutes for subtask in plan.subtasks if subtask.estimate.minutes is not None
    }
    dollars = [subtask.estimate.dollars for subtask in plan.subtasks if subtask.estimate.dollars is not None]
    counts = Counter(subtask.risk for subtask in plan.subtasks)
    return PlanEstimate(
        risks={risk: counts[risk] for risk in ("low", "medium", "high") if counts[risk]},
        minutes=sum(minutes.values()),
        longest=max(longest_chains(needs_of(plan.subtasks), minutes).values(), default=0.0),
        timed=len(minutes),
        dollars=sum(dollars),
        priced=len(dollars),
    )
