"""Which workers a run needs: if all of them are programs and nothing is reviewed, it needs no model."""

from fleet.core.plans.plan import Plan
from fleet.core.state.state import RunState


def workers_of(plan: Plan | None, rollback: Plan | None) -> frozenset[str] | None:
    """The workers that the plans of an order name; None if models are needed anyway: to plan or to review."""
    plans = [each for each in (plan, rollback) if each is not None]
    if plan is None or any(each.asks_for_reviews for each in plans):
        return None
    return frozenset(subtask.worker for each in plans for subtask in each.subtasks)


def open_workers(state: RunState) -> set[str]:
    """The workers of the subtasks that are not finished."""
    return {spec.worker for spec in state.plan.subtasks if not state.subtasks[spec.id].closed}
