"""A plan for its reviewer: pending subtasks and why they need approval, notes, risk, time and cost.

During a run, shows only pending subtasks, with their changes since the last approval or rejection.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

from dashboards.text.formats import counted, duration, listed, money
from dashboards.text.safe import safe, safe_goal
from fleet.core.facts.facts import Spread, SubtaskEstimate
from fleet.core.plans.parameters import value_text
from fleet.core.plans.plan import PLANNER, Plan, Subtask, plan_estimate, waves
from fleet.read.costs import EstimateView, plan_estimates
from fleet.read.plan_views import PendingSubtask, PlanReview, VersionChangesView

TITLE = 70
NOTES = 12  # notes on a plan
NAMES = 6  # patterns or subtasks in a line
CHANGES = 8  # changes of a subtask
INDENT = f"  {'':<20}   "


def review_lines(review: PlanReview, only: Collection[str] | None = None) -> list[str]:
    """The review of all pending subtasks, or of those in `only`."""
    plan, total, values = review.plan, len(review.plan.subtasks), value_lines(review.values)
    if not review.pending:
        return [
            *plan_lines(plan, review.warnings),
            *estimate_lines(plan),
            *values,
            "No subtasks are waiting for approval.",
        ]
    chosen = [each for each in review.pending if only is None or each.subtask.id in only]
    specs = tuple(each.subtask for each in chosen)
    lines = [plan_head(plan), *_latest_version(review)]
    for each in chosen:
        lines += [*step_lines(each.subtask), *(f"{INDENT}{line}" for line in _details(review, each))]
    lines += [*note_lines(review.warnings), *estimate_lines(plan.model_copy(update={"subtasks": specs}))]
    if review.rollback is not None:
        lines += [f"  {safe(step.id):<20} {safe(step.title, limit=TITLE)}" for step in review.rollback.subtasks]
    lines += comparable_lines(plan_estimates(specs, review.past_estimates))
    pending = len(review.pending)
    if len(chosen) < pending:
        scope = f"Selected: {len(chosen)} of {pending} pending subtasks. The others remain pending."
    else:
        rest = "No subtask starts before that" if pending == total else "The others keep running"
        scope = f"Waiting for approval: {pending} of {counted(total, 'subtask')}. {rest}."
    return [*lines, *values, scope]


def waits_line(review: PlanReview) -> str:
    """The pending subtasks with the reasons, and the commands to decide. Used without a terminal."""
    run = safe(review.run)
    if review.unreviewed and len(review.pending) == len(review.plan.subtasks):
        subject = "the plan"
    else:
        reasons = {each.subtask.id: _reason(each) for each in review.pending}
        subject = listed([f"{safe(id_)} ({why})" if why else safe(id_) for id_, why in reasons.items()], NAMES)
    return f"WAITING for your approval: {subject}  →  fleet approve {run}, or fleet reject {run} -m WHY"


def estimate_lines(plan: Plan) -> list[str]:
    """The plan's risk, time and cost. A missing estimate is shown as unknown, never as zero."""
    estimate, total = plan_estimate(plan), len(plan.subtasks)
    risks = ", ".join(f"{count} {risk}" for risk, count in estimate.risks.items())
    overall = f"; overall: {plan.risk_level}" if plan.risk_level != "low" else ""
    time = (
        f"{safe(plan.estimated_duration, limit=100)} (according to the plan)" if plan.estimated_duration else "unknown"
    )
    if estimate.timed:
        critical = f"{estimate.longest:g} on the critical path"
        time = f"{estimate.minutes:g} minutes of work, {critical}{_coverage(estimate.timed, total)}"
    cost = f"${estimate.dollars:.2f}{_coverage(estimate.priced, total)}" if estimate.priced else "unknown"
    rollback = [f"Rollback: {safe(plan.rollback_plan, limit=200)}"] if plan.rollback_plan else []
    return [f"Risk: {risks}{overall}", f"Time: {time}", f"Cost: {cost}", *rollback]


def _coverage(known: int, total: int) -> str:
    return f" (estimated for {known} of {total} subtasks)" if known < total else ""


def value_lines(values: Mapping[str, object]) -> list[str]:
    """The values of the plan's parameters."""
    return [f"Set: {safe(name)} = {safe(value_text(value), limit=200)}" for name, value in values.items()]


def _latest_version(review: PlanReview) -> Iterator[str]:
    """The reason for the latest version. Includes its changes until a subtask is approved."""
    if review.latest is not None:
        yield f"  by {safe(review.latest.by)}: {safe(review.latest.why, limit=400)}"
        yield from (f"    {safe(line, limit=240)}" for line in review.changes[:CHANGES])


def _details(review: PlanReview, pending: PendingSubtask) -> Iterator[str]:
    """The scope of a pending subtask, its changes since the last review, and why it needs approval."""
    spec = pending.subtask
    facts = [f"risk {spec.risk}", f"worker {safe(spec.worker)}"]
    if spec.touches:
        facts.append(f"may change {listed([safe(pattern) for pattern in spec.touches], NAMES)}")
    facts += [f"{safe(name, limit=40)} = {safe(value, limit=80)}" for name, value in spec.parameters.items()]
    if spec.estimate.minutes is not None:
        facts.append(f"{spec.estimate.minutes:g} min")
    if spec.estimate.dollars is not None:
        facts.append(f"${spec.estimate.dollars:.2f}")
    yield ", ".join(facts)
    if spec.goal.strip() not in {"", spec.title.strip()}:
        yield f"goal: {safe(spec.goal, limit=200)}"
    since = f"since it was {pending.since}"
    yield from (f"{since}: {safe(line, limit=240)}" for line in pending.changes[:CHANGES])
    if why := _reason(pending):
        yield f"needs approval: {why}"
    elif not review.unreviewed:
        yield "needs approval"


def _reason(pending: PendingSubtask) -> str:
    """Return why a subtask needs approval. Empty if the reason does not concern this subtask."""
    if (review := pending.rejected) is not None:
        return f"was rejected in this form by {safe(review.by)}: {safe(review.why, limit=200)}"
    return "; ".join(map(safe, pending.objections))


# ---- plans and versions ---------------------------------------------------------------------------------------------


def plan_lines(plan: Plan, notes: Sequence[str] = ()) -> list[str]:
    rollback = f"  rolled back by {safe(plan.rollback_plan, limit=TITLE)} if a step fails"
    steps = chain.from_iterable(map(step_lines, plan.subtasks))
    return [plan_head(plan), *steps, *([rollback] if plan.rollback_plan else []), *note_lines(notes)]


def plan_head(plan: Plan) -> str:
    return (
        f"Plan: {safe_goal(plan.goal, limit=200)}  (version {plan.version}, {counted(len(plan.subtasks), 'subtask')})"
    )


def step_lines(subtask: Subtask) -> list[str]:
    """A subtask with its dependencies and checks."""
    after = f"  after {', '.join(map(safe, subtask.depends_on))}" if subtask.depends_on else ""
    after += "  (an area: a sub-planner breaks it down)" if subtask.worker == PLANNER else ""
    after += f"  not before {subtask.not_before:%Y-%m-%d %H:%M %Z}" if subtask.not_before is not None else ""
    after += f"  on a machine with {', '.join(map(safe, subtask.labels))}" if subtask.labels else ""
    after += f"  if it fails: {subtask.failure_action}" if subtask.failure_action != "replan" else ""
    checks = [f"{INDENT}check: {safe(c.shown, limit=100)}" for c in subtask.acceptance]
    return [f"  {safe(subtask.id):<20} {safe(subtask.title, limit=TITLE)}{after}", *checks]


def note_lines(warnings: Sequence[str]) -> list[str]:
    """The linter's warnings about a plan."""
    more = [f"  … and {len(warnings) - NOTES} more"] if len(warnings) > NOTES else []
    return [*(f"  note: {safe(text, limit=240)}" for text in warnings[:NOTES]), *more]


def version_lines(version: VersionChangesView) -> list[str]:
    """A version of a plan with its author, its reason and its changes."""
    author = f"{version.by} of {version.area}" if version.area is not None else version.by
    head = f"version {version.version}, by {safe(author)}: {safe(version.why, limit=400)}"
    return [head, *(f"  {safe(line, limit=300)}" for line in version.changes or ("(only the worker changed)",))]


# ---- plan graph ------------------------------------------------------------------------------------------------------
# The dependencies of a plan: as lines for a terminal, as Mermaid and DOT for files. Plans are untrusted.


PLAN_GRAPH_TITLE = 40


def graph_lines(plan: Plan) -> list[str]:
    """The subtasks in waves. A subtask depends only on those in earlier waves."""
    lines = []
    for number, wave in enumerate(waves(plan), start=1):
        lines.append(f"wave {number}")
        for id_ in wave:
            spec = plan.subtask(id_)
            needs = f"  ← {', '.join(map(safe, spec.depends_on))}" if spec and spec.depends_on else ""
            lines.append(f"  {safe(id_):<20} {safe(spec.title if spec else '', limit=PLAN_GRAPH_TITLE)}{needs}")
    return lines


def mermaid(plan: Plan) -> str:
    nodes = [f'  {name}["{_escape(label, "#{};")}"]' for name, label in _nodes(plan)]
    edges = [f"  {need} --> {name}" for need, name in _edges(plan)]
    return "\n".join(["graph LR", *nodes, *edges]) + "\n"


def dot(plan: Plan) -> str:
    nodes = [f'  {name} [label="{_escape(label, "&#{};")}"];' for name, label in _nodes(plan)]
    edges = [f"  {need} -> {name};" for need, name in _edges(plan)]
    return "\n".join(["digraph plan {", "  rankdir=LR;", "  node [shape=box];", *nodes, *edges, "}"]) + "\n"


FORMATS: Mapping[str, Callable[[Plan], str]] = {".mmd": mermaid, ".dot": dot, ".gv": dot}
"""The graph formats by file suffix."""


def _nodes(plan: Plan) -> list[tuple[str, str]]:
    return [
        (f"n{number}", f"{s.id}: {safe(s.title, limit=PLAN_GRAPH_TITLE)}") for number, s in enumerate(plan.subtasks)
    ]


def _edges(plan: Plan) -> list[tuple[str, str]]:
    names = {id_: f"n{number}" for number, id_ in enumerate(plan.ids)}
    return [(names[need], names[spec.id]) for spec in plan.subtasks for need in spec.depends_on]


def _escape(label: str, code: str) -> str:
    """Replace characters that could be markup with character codes."""
    return "".join(char if char.isalnum() or char in " .,:-_/" else code.format(ord(char)) for char in label)


# ---- estimate text ---------------------------------------------------------------------------------------------------
# Estimates as plain text: the median and the range of comparable landed subtasks.


UNKNOWN = "too few past runs in this repository for an estimate"
HEAD = "Estimate: "
NAME = 60


def estimate_rows(estimates: Sequence[SubtaskEstimate]) -> list[str]:
    """A line for each worker, size and model, or one sentence without data."""
    return [_estimate_text_row(each) for each in estimates] if any(each.landed for each in estimates) else [UNKNOWN]


def comparable_lines(estimates: Sequence[SubtaskEstimate]) -> list[str]:
    """The estimates with a heading, for `fleet plan` and the review of a plan."""
    first, *others = estimate_rows(estimates)
    return [f"{HEAD}{first}", *(f"{'':<{len(HEAD)}}{line}" for line in others)]


def run_estimate_lines(view: EstimateView) -> list[str]:
    """The output of `fleet run --estimate`."""
    return comparable_lines(view.estimates)


def _estimate_text_row(estimate: SubtaskEstimate) -> str:
    kind = f"{estimate.size} subtasks of {safe(estimate.worker, limit=NAME)}"
    if not estimate.landed:
        return f"{kind}: {UNKNOWN}"
    model = f" with {safe(estimate.model, limit=NAME)}" if estimate.model is not None else ""
    amounts = [_estimate_text_amount(estimate.dollars, money)] if estimate.dollars is not None else []
    amounts += [_estimate_text_amount(estimate.seconds, duration)] if estimate.seconds is not None else []
    each = ", ".join(amounts) or "cost and time unknown"
    return f"{kind}{model}: {each} each (median and range of {counted(estimate.landed, 'landed subtask')})"


def _estimate_text_amount(spread: Spread, shown: Callable[[float], str]) -> str:
    return f"{shown(spread.median)} ({shown(spread.low)} to {shown(spread.high)})"
