"""A plan as whoever approves it sees it: what waits and why, what was noticed, how risky, long and dear it may be.

In the middle of a run that is only what waits, and how it differs from what was approved or rejected before.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from dashboards.safe import safe
from dashboards.words import TITLE, noticed_lines, plan_head, plan_lines, step_lines
from fleet.core.approval import stopped_by, untouched, waiting
from fleet.core.diff import plan_diff, spec_diff
from fleet.core.estimates import estimated
from fleet.core.parameters import shown
from fleet.core.plan import Plan, Subtask
from fleet.core.state import Review, RunState

PATHS = 6  # patterns named
DIFFERENCES = 8  # changes of a subtask shown
LOOK = "a person is to look at it"
INDENT = f"  {'':<20}   "


def review_lines(state: RunState, only: Collection[str] | None = None) -> list[str]:
    """Everything to know before a yes or a no to all that waits, or to the part that is named."""
    waits = waiting(state)
    if not waits:
        size = [*estimate_lines(state.plan), *value_lines(state.values)]
        return [*plan_lines(state.plan, state.noticed), *size, "Nothing waits for approval."]
    part = [state.spec(id_) for id_ in waits if only is None or id_ in only]
    lines = [plan_head(state.plan)]
    lines += _latest(state)
    for spec in part:
        lines += [*step_lines(spec), *(f"{INDENT}{line}" for line in _details(state, spec))]
    lines += [*noticed_lines(state.noticed), *estimate_lines(state.plan.model_copy(update={"subtasks": tuple(part)}))]
    if state.rollback is not None:
        lines += [f"  {safe(step.id):<20} {safe(step.title, limit=TITLE)}" for step in state.rollback.subtasks]
    return [*lines, *value_lines(state.values), _what_waits(state, waits, part)]


def _latest(state: RunState) -> Iterator[str]:
    """Why the plan is as it is now; of one that nobody has approved anything of, also what changed it last."""
    if not state.versions:
        return
    last = state.versions[-1]
    yield f"  by {safe(last.by)}: {safe(last.why, limit=400)}"
    if untouched(state) and len(state.versions) > 1:
        changes = plan_diff(state.versions[-2].plan, last.plan)
        yield from (f"    {safe(line, limit=240)}" for line in changes[:DIFFERENCES])


def waits_line(state: RunState) -> str:
    """The same in a line, for who is not asked: what waits, why, and what to type."""
    waits = waiting(state)
    named = ", ".join(f"{safe(id_)} ({_why(state, state.spec(id_)) or LOOK})" for id_ in waits[:PATHS])
    more = f" and {len(waits) - PATHS} more" if len(waits) > PATHS else ""
    run = safe(state.run)
    what = "the plan" if untouched(state) and len(waits) == len(state.plan.subtasks) else f"{named}{more}"
    return f"WAITS for your approval: {what}  →  fleet approve {run}, or fleet reject {run} -m WHY"


def estimate_lines(plan: Plan) -> list[str]:
    """What the plan says of its size. What nobody estimated is said to be unknown, not nothing."""
    sums = estimated(plan)
    total = len(plan.subtasks)
    risky = ", ".join(f"{count} {risk}" for risk, count in sums.risks.items())
    time = f"{safe(plan.estimated_duration, limit=100)}, says the plan" if plan.estimated_duration else "unknown"
    if sums.timed:
        time = f"{sums.minutes:g} minutes of work, {sums.longest:g} on the longest chain{_of(sums.timed, total)}"
    cost = f"${sums.dollars:.2f}{_of(sums.priced, total)}" if sums.priced else "unknown"
    whole = f"; of the whole: {plan.risk_level}" if plan.risk_level != "low" else ""
    said = [f"Risk: {risky}{whole}", f"Time: {time}", f"Cost: {cost}"]
    return [*said, *([f"Rollback: {safe(plan.rollback_plan, limit=200)}"] if plan.rollback_plan else [])]


def value_lines(values: Mapping[str, object]) -> list[str]:
    """What the plan's parameters are set to."""
    return [f"Set: {safe(name)} = {safe(shown(value), limit=200)}" for name, value in values.items()]


def _of(known: int, total: int) -> str:
    return f" (estimated for {known} of {total} subtasks)" if known < total else ""


def _what_waits(state: RunState, waits: Sequence[str], part: Sequence[Subtask]) -> str:
    total = len(state.plan.subtasks)
    if len(part) < len(waits):
        return f"This is about {len(part)} of {len(waits)} subtasks that wait for approval; the others go on waiting."
    rest = "nothing begins before" if len(waits) == total else "the rest goes on without it"
    return f"Waits for approval: {len(waits)} of {total} subtask{'s' * (total != 1)}; {rest}."


def _details(state: RunState, spec: Subtask) -> Iterator[str]:
    """What a subtask may do, and why it waits, where there is more to that than that everything does."""
    said = [f"risk {spec.risk}", f"worker {safe(spec.worker)}"]
    if spec.touches:
        more = f" and {len(spec.touches) - PATHS} more" if len(spec.touches) > PATHS else ""
        said.append(f"may change {', '.join(map(safe, spec.touches[:PATHS]))}{more}")
    if spec.parameters:
        said += [f"{safe(name, limit=40)} = {safe(value, limit=80)}" for name, value in spec.parameters.items()]
    if spec.estimate.minutes is not None:
        said.append(f"{spec.estimate.minutes:g} min")
    if spec.estimate.dollars is not None:
        said.append(f"${spec.estimate.dollars:.2f}")
    yield ", ".join(said)
    if spec.goal.strip() not in {"", spec.title.strip()}:
        yield f"goal: {safe(spec.goal, limit=200)}"
    before, word = _before(state, spec)
    if before is not None and before != spec:
        changes = spec_diff(before, spec)
        yield from (f"{word}: {safe(line, limit=240)}" for line in changes[:DIFFERENCES])
    why = _why(state, spec)
    if why or not untouched(state):
        yield f"waits: {why or LOOK}"


def _before(state: RunState, spec: Subtask) -> tuple[Subtask | None, str]:
    """What a person or the rules saw of it last."""
    review = _last(state, spec.id)
    if review is not None and review.rejected:
        return state.shelved.get(spec.id), "since it was rejected"
    return state.cleared.get(spec.id), "since it was approved"


def _why(state: RunState, spec: Subtask) -> str:
    review = _last(state, spec.id)
    if state.shelved.get(spec.id) == spec and review is not None and review.rejected:
        return f"was rejected as it stands, by {safe(review.by)}: {safe(review.why, limit=200)}"
    return "; ".join(map(safe, stopped_by(state, spec.id)))


def _last(state: RunState, id_: str) -> Review | None:
    return next((review for review in reversed(state.reviews) if id_ in review.subtasks), None)
