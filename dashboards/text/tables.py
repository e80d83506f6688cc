"""The output of the command line as plain text: runs, a status, a subtask, the policy, commits."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from dashboards.text.event_text import waiting_line
from dashboards.text.formats import (
    counted,
    duration,
    figure_rows,
    kind_mark,
    listed,
    moment,
    money,
    untested,
)
from dashboards.text.incident_text import (
    BRIEF,
    base_lines,
    ends_text,
    needs_text,
    question_lines,
    rates_lines,
    reviews_line,
    story_lines,
)
from dashboards.text.plan_review import estimate_rows
from dashboards.text.safe import safe, safe_block, safe_goal
from fleet.core.facts.facts import CheckRun, RungChoice, RungOption, RungReason
from fleet.read.agent_rows import NodeUseView
from fleet.read.policy_document import PolicyView, RungView
from fleet.read.question_view import InstructionView
from fleet.read.run_view import LimitsView, RunView, StatusView
from fleet.read.subtask_view import AttemptView, BatchView, SubtaskView

NAMES = 8  # subtasks in a line
MOST_NODES = 20  # rows of a status
NAME, TEXT = 40, 300


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with aligned columns."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# ---- runs -----------------------------------------------------------------------------------------------------------


def runs_lines(rows: Sequence[StatusView]) -> list[str]:
    head = ("RUN", "STARTED", "STATE", "NEEDS", "LANDED", "COST", "TIME", "REPOSITORY", "GOAL")
    cells = [
        (
            safe(row.run),
            moment(row.started_at),
            f"{row.state}{' (rehearsal)' if row.rehearsal else ''}",
            needs_text(row.needs) or "-",
            f"{row.landed.done} of {row.landed.total}",
            money(row.cost_dollars),
            duration(row.seconds),
            safe(row.repository),
            safe_goal(row.goal, limit=50),
        )
        for row in rows
    ]
    return columns([head, *cells])


def status_lines(status: StatusView) -> list[str]:
    agents, subtasks = status.agents, status.subtasks
    lines = [
        f"{safe(status.run)}  {status.state}{kind_mark(status)}",
        *_needs_lines(status),
        f"  goal       {safe_goal(status.goal, limit=100)}",
        f"  subtasks   {', '.join(f'{number} {name}' for name, number in subtasks.items()) or 'none planned yet'}",
        f"  agents     {agents.running} running (peak {agents.peak}, limit {agents.limit})",
        *(f"  {title:<10} {value}" for title, value in figure_rows(status)),
        f"  commits    {status.commits}{untested(status.commits, status.commits_tested)}",
        *rates_lines(status.incidents),
        f"  cost       {money(status.cost_dollars)}{_in_all(status)}",
        f"  time       {duration(status.seconds)}{_left(status)}",
        *_estimate_lines(status),
        f"  branch     {safe(status.result_branch or 'nothing landed yet')}",
    ]
    if status.landing.queued:
        full = ", queue full: new attempts wait until some have landed" if status.landing.full else ""
        testing = counted(status.landing.testing, "batch")
        lines.append(f"  landing    {status.landing.queued} queued, testing {testing}{full}")
    lines += _node_lines(status)
    if status.state == "paused":
        lines.append(f"  paused     by {safe(status.paused_by or '')} (running attempts may finish)")
    if status.why:
        lines.append(f"  because    {safe(status.why, limit=TEXT)}")
    if status.state == "refused":
        lines += [f"             | {safe(line, limit=TEXT)}" for line in status.causes]
        lines.append(
            f"  more       fleet show {safe(status.run)}  (to rerun the setup command and the gate: fleet try)"
        )
    if status.change_reviews is not None:
        lines.append(f"  reviews    {reviews_line(status.change_reviews)}")
    lines += [f"  WAITING    {waiting_line(wait.message, wait.seconds)}" for wait in status.service]
    if status.sandbox == "none":
        lines.append("  sandbox    NONE: commands run with your permissions")
    lines += [f"  note       {safe(text)}" for text in status.warnings]
    if waiting := status.waiting_for_approval:
        names = [f"{safe(id_)} ({'; '.join(map(safe, why))})" if why else safe(id_) for id_, why in waiting.items()]
        lines.append(f"  APPROVAL   needed for {listed(names, NAMES)}  →  fleet approve {safe(status.run)}")
    for question in status.questions:
        lines.append(f"  QUESTION   {question.id}: {safe(question.question, limit=200)}  →  {safe(question.command)}")
        lines += [f"             {line}" for line in question_lines(question, evidence=0)]
        if question.options and not question.aside:
            answers = ", ".join(safe(text, limit=80) for text in question.options)
            lines.append(f"             answers   {answers}, or your own text")
    return lines


def _node_lines(status: StatusView) -> Iterator[str]:
    first = "nodes"
    for row in columns([node_cells(node) for node in status.nodes[:MOST_NODES]]):
        yield f"  {first:<10} {row}"
        first = ""
    if len(status.nodes) > MOST_NODES:
        yield f"  {first:<10} and {len(status.nodes) - MOST_NODES} more: fleet status {safe(status.run)} --json"
    waiting = status.waiting_for_machines
    for id_, why in islice(waiting.items(), NAMES):
        yield f"  WAITING    {safe(id_)}: {safe(why, limit=TEXT)}"
    if len(waiting) > NAMES:
        yield f"  WAITING    {len(waiting) - NAMES} more for machines: fleet status {safe(status.run)} --json"


def node_cells(node: NodeUseView) -> tuple[str, ...]:
    """A node as a row: name, status, slots, attempts, labels and problem."""
    slots = f"{node.working} of {node.workers} busy" if node.workers is not None else ""
    done = counted(node.attempts, "attempt") + (f", {node.failed} lost" if node.failed else "")
    labels = ", ".join(map(safe, node.labels))
    return (safe(node.name), node.status, slots, done, labels, safe(node.why, limit=TEXT))


def _in_all(status: StatusView) -> str:
    dollars = status.remaining.dollars if status.remaining is not None else None
    return f", about {money(dollars)} in total" if dollars is not None else ""


def _left(status: StatusView) -> str:
    return f", about {duration(status.remaining.seconds)} left" if status.remaining is not None else ""


def _needs_lines(status: StatusView) -> Iterator[str]:
    if status.needs:
        ends = f"; otherwise {ends_text(status.ends_in_s)}" if status.ends_in_s is not None else ""
        how = f"  →  fleet resume {safe(status.run)}" if "resume" in status.needs else ""
        yield f"  NEEDS YOU  {needs_text(status.needs)}{ends}{how}"


def _estimate_lines(status: StatusView) -> Iterator[str]:
    first = "estimate"
    for line in estimate_rows(status.estimates) if status.estimates else ():
        yield f"  {first:<10} {line}"
        first = ""


def limits_lines(view: LimitsView) -> list[str]:
    rows = [("workers", str(view.workers), "")]
    for unit, budget in view.budgets.items():
        shown = partial(_amount, unit)
        rows.append((unit, shown(budget.limit), "" if budget.left is None else f"{shown(budget.left)} left"))
    idle = "" if view.alive or not view.changed else " (not running: `fleet resume` applies them)"
    head = f"{safe(view.run)}: limits{' requested' if view.changed else ''}{idle}"
    return [head, *(f"  {row}" for row in columns(rows))]


def _amount(unit: str, value: float | None) -> str:
    if value is None:
        return "no limit"
    return money(value) if unit == "dollars" else f"{value:,.10g}"


def policy_lines(policy: PolicyView) -> list[str]:
    ladder = [(rung.kind, "yes" if rung.counts else "no", rung.first, rung.what) for rung in policy.ladder]
    limits = [(row.key, "none" if row.limit is None else f"{row.limit:g}", row.effect) for row in policy.limits]
    return [
        *columns([("FAILURE", "COUNTS", "FIRST", "MEANING"), *ladder]),
        "",
        *columns([("FAILURE_ACTION", "WHAT HAPPENS"), *policy.failure_action.items()]),
        "",
        *columns([("LIMIT", "VALUE", "MEANING"), *limits]),
        *(["", *columns(rungs)] if (rungs := rung_rows(policy.rungs)) else []),
    ]


def run_lines(view: RunView, *, logs: str = "") -> Iterator[str]:
    """The output of `fleet show RUN`: the recovery rates, the base and every incident."""
    yield f"{safe(view.run)}  {view.state}{kind_mark(view)}"
    yield f"  goal       {safe_goal(view.goal, limit=100)}"
    subtasks = ", ".join(f"{count} {name}" for name, count in view.subtasks.items())
    yield f"  subtasks   {subtasks or 'none planned yet'}"
    yield from rates_lines(view.rates)
    if view.why:
        yield f"  because    {safe(view.why, limit=TEXT)}"
    if base := list(base_lines(view.base_check, logs=logs)):
        yield from ("", "Setup and gate on the base", *(f"  {line}" for line in base))
    for story in view.incidents:
        yield ""
        yield from story_lines(story, evidence=BRIEF)


# ---- a subtask ------------------------------------------------------------------------------------------------------


def subtask_lines(view: SubtaskView) -> list[str]:
    spec = view.subtask
    lines = [f"{safe(spec.id)}  {view.status}  {safe(spec.title)}", f"  {safe(spec.goal, limit=600)}"]
    if spec.depends_on:
        lines.append(f"  after   {', '.join(map(safe, spec.depends_on))}")
    if spec.not_before:
        lines.append(f"  not before {safe(spec.not_before)}")
    if spec.touches:
        lines.append(f"  touches {', '.join(map(safe, spec.touches))}")
    if spec.labels:
        lines.append(f"  labels  {', '.join(map(safe, spec.labels))}")
    if view.waits_for:
        lines.append(f"  WAITING {safe(view.waits_for, limit=TEXT)}")
    lines += [f"  check   {safe(c.shown, limit=TEXT)}  ({safe(c.criterion)})" for c in spec.acceptance]
    if view.parts:
        lines.append(f"  split into {', '.join(map(safe, view.parts))}")
    lines += map(_instruction_line, view.instructions)
    for attempt in view.attempts:
        lines += _attempt_lines(attempt)
    lines += map(_batch_line, view.batches)
    for story in view.incidents:
        lines += story_lines(story, evidence=0)  # the attempts above show it
    return lines


def _attempt_lines(attempt: AttemptView) -> list[str]:
    failure, report = attempt.failure, attempt.report
    end = f"failed: {failure.kind}" if failure else "open"
    if attempt.landed:
        end = "done, no files changed" if attempt.unchanged else f"landed as {safe(attempt.landed[:7])}"
        end += "" if attempt.tested else ", only tested together with the next commit"
    model = " ".join(filter(None, (attempt.model, attempt.effort)))
    worker = safe(attempt.worker) + (f" ({safe(model)})" if model else "")
    worker += f" on {safe(attempt.node)}" if attempt.node else ""
    spent = f"{counted(attempt.turns, 'turn')}  {duration(attempt.seconds)}  {money(attempt.cost_dollars)}"
    lines = [f"Attempt {attempt.number}  {worker}  {attempt.strategy}  {spent}  {end}"]
    if attempt.choice:
        lines.append(f"  rung      {choice_text(attempt.choice)}")
    if attempt.guidance:
        lines.append(f"  guidance  {safe(attempt.guidance, limit=TEXT)}")
    if attempt.last_message:
        lines.append(f"  message   {safe(attempt.last_message, limit=TEXT)}")
    if report:
        lines.append(f"  reported  {report.status}: {safe(report.summary, limit=TEXT)}")
    if attempt.paths:
        lines.append(f"  changed   {', '.join(map(safe, attempt.paths[:12]))}")
    lines += map(_check_line, attempt.checks)
    if failure:
        lines.append(f"  failure   {safe(failure.summary, limit=TEXT)}")
        lines += [f"    {line}" for line in safe_block(failure.evidence, lines=24).splitlines()]
    return lines


def _instruction_line(told: InstructionView) -> str:
    readers = f"read by attempt {', '.join(map(str, told.read_by))}" if told.read_by else "not read yet"
    stopped = ", interrupting" if told.interrupt else ""
    return f"  instruction from {safe(told.by)}{stopped}, {readers}: {safe(told.text, limit=TEXT)}"


def _check_line(check: CheckRun) -> str:
    verdict = "passed" if check.passed else "FLAKY " if check.flaky else "FAILED"
    if check.review:
        return f"  {verdict}    {safe(check.command)}  ({safe(check.criterion, limit=TEXT)})"
    log = f"  {safe(check.log)}" if check.log else ""
    node = f"  on {safe(check.node)}" if check.node else ""
    return f"  {verdict}    {safe(check.command)}  {duration(check.seconds)}{node}{log}"


def _batch_line(batch: BatchView) -> str:
    """A batch that tested the subtask, and its result."""
    size = "alone" if len(batch.members) == 1 else f"of {len(batch.members)}"
    result = f"landed {len(batch.landed)}" if batch.landed else "red" if batch.red else "nothing landed"
    suspects = [safe(id_) for id_ in batch.suspects]
    if len(suspects) == 1:
        result += f", caused by {suspects[0]}"
    elif suspects:
        result += f", bisecting {len(suspects)} suspects: {listed(suspects, NAMES)}"
    if batch.sent_back:
        result += f", sent back: {listed([safe(id_) for id_ in batch.sent_back], NAMES)}"
    return f"Batch {batch.number}  {size}  {result}  ({counted(batch.gate_runs, 'gate run')})"


# ---- rung text -------------------------------------------------------------------------------------------------------
# Rungs as plain text: the ladders of workers with the cost of each rung, and the reason for the rung of an attempt.


RUNG_TEXT_NAME = 60
_HEAD = ("WORKER", "SIZE", "RUNG", "LANDED", "COST PER ATTEMPT", "COST PER LANDED SUBTASK", "")
_WHY: dict[RungReason, str] = {
    "evidence": "lowest cost per landed subtask",
    "order": "first in order, because too few attempts were observed",
    "explored": "exploring: it may be cheaper per landed subtask, and has few observed attempts",
    "named": "set by first_rung",
    "unpriced": "first in order, because a price on the ladder is unknown",
    "climbed": "next in order, because the rung below failed",
    "again": "same as the previous attempt, whose failure does not call for a stronger rung",
}


def rung_rows(views: Sequence[RungView]) -> list[tuple[str, ...]]:
    """A table of the ladders with its header. Empty without ladders."""
    if not views:
        return []
    return [_HEAD, *(_row(view) for view in views)]


def _row(view: RungView) -> tuple[str, ...]:
    mark = "first (set by first_rung)" if view.named else "first" if view.chosen else ""
    return (
        safe(view.worker, limit=RUNG_TEXT_NAME),
        view.size,
        safe(" ".join(filter(None, (view.model, view.effort))), limit=RUNG_TEXT_NAME),
        _landed(view),
        _cost(view.dollars),
        _cost(view.per_landed),
        mark,
    )


def _landed(seen: RungView | RungOption) -> str:
    return f"{seen.landed} of {seen.tried}" if seen.tried else "untried"


def _cost(dollars: float | None) -> str:
    return "-" if dollars is None else money(dollars)


def choice_text(choice: RungChoice) -> str:
    """The reason for the rung of an attempt, with its past results and cost."""
    text = f"{choice.rung + 1}{f' of {len(choice.options)}' if choice.options else ''}; {_WHY[choice.why]}"
    if choice.rung >= len(choice.options):
        return text
    option = choice.options[choice.rung]
    cost = "" if option.per_landed is None else f"; {money(option.per_landed)} per landed subtask"
    return f"{text} ({_landed(option)} attempts landed before{cost})"
