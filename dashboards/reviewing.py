"""A plan as whoever approves it sees it: what waits and why, what was noticed, how risky, long and dear it may be."""

from collections.abc import Mapping

from dashboards.safe import safe
from dashboards.words import plan_lines
from fleet.core.approval import concerns, waiting
from fleet.core.estimates import estimated
from fleet.core.parameters import shown
from fleet.core.plan import Plan
from fleet.core.state import RunState


def review_lines(state: RunState) -> list[str]:
    lines = [*plan_lines(state.plan, state.noticed), *estimate_lines(state.plan), *value_lines(state.values)]
    waits = waiting(state)
    if not waits:
        return lines
    lines.append(f"Waits for approval: {len(waits)} of {len(state.plan.subtasks)} subtasks")
    return [*lines, *(f"  {safe(id_):<20} {_why(state, id_)}" for id_ in waits)]


def estimate_lines(plan: Plan) -> list[str]:
    """What the plan says of its size. What nobody estimated is said to be unknown, not nothing."""
    sums = estimated(plan)
    total = len(plan.subtasks)
    risky = ", ".join(f"{count} {risk}" for risk, count in sums.risks.items())
    time = "unknown"
    if sums.timed:
        time = f"{sums.minutes:g} minutes of work, {sums.longest:g} on the longest chain{_of(sums.timed, total)}"
    cost = f"${sums.dollars:.2f}{_of(sums.priced, total)}" if sums.priced else "unknown"
    said = [f"Risk: {risky}; of the whole: {plan.risk_level}", f"Time: {time}", f"Cost: {cost}"]
    return [*said, *([f"Rollback: {safe(plan.rollback_plan, limit=200)}"] if plan.rollback_plan else [])]


def value_lines(values: Mapping[str, object]) -> list[str]:
    """What the plan's parameters are set to."""
    return [f"Set: {safe(name)} = {safe(shown(value), limit=200)}" for name, value in values.items()]


def _of(known: int, total: int) -> str:
    return f" (estimated for {known} of {total} subtasks)" if known < total else ""


def _why(state: RunState, id_: str) -> str:
    shelved = state.shelved.get(id_) == state.spec(id_)
    if shelved and any(review.rejected and id_ in review.subtasks for review in state.reviews):
        return "was rejected as it stands"
    return "; ".join(map(safe, concerns(state.spec(id_), state.policy))) or "a person is to look at it"
