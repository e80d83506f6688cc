"""The text of events: the lines that the UI shows for a fact. Does not depend on a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dashboards.text.formats import clock_in, counted, duration, listed, untested
from dashboards.text.incident_text import PROBLEM, STRATEGIES
from dashboards.text.plan_review import estimate_rows, note_lines
from dashboards.text.safe import safe, safe_block
from fleet.core.facts import facts as f
from fleet.core.facts.failures import how
from fleet.core.plans.parameters import is_flat
from fleet.core.plans.plan import PLANNER
from fleet.core.policy.budget import outage_text
from fleet.read.follow import Event
from fleet.read.question_view import reply_command

if TYPE_CHECKING:
    from fleet.core.base.ids import SubtaskId
    from fleet.read.follow import Step
    from fleet.read.question_view import QuestionLine
    from fleet.read.run import RunSnapshot

TITLE, TEXT = 70, 300
SUBTASKS = 8  # named in a line
FINDINGS = 5  # of one vote
OUTPUT = 200  # last characters of a red gate's output
NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
LIMITS = {
    "workers": "workers",
    "budget_dollars": "dollars",
    "budget_minutes": "minutes",
    "budget_tokens": "tokens",
    "budget_attempts": "attempts",
}


def event_lines(run: RunSnapshot, fact: f.Fact) -> Iterator[str]:
    """The text of a fact, prefixed with the run time at which it was applied: requests can be older than it."""
    yield from (f"{clock_in(run, run.last_at)}  {line}" for line in (event_text(run, fact) or "").splitlines())


def event_text(run: RunSnapshot, fact: f.Fact) -> str | None:
    """Return the text of `fact`, or None for facts that are not shown. `run` is the run after the fact."""
    return TEXTS[type(fact)](run, fact) or None


def _started(_: RunSnapshot, fact: f.RunStarted) -> str:
    model = " with the simulated model" if fact.simulated else ""
    if fact.rehearsal is not None:
        real, model = (" for real", model) if fact.rehearsal.for_real else ("", ", without model calls")
        return f"rehearsal{real} {safe(fact.run)} started on {safe(fact.base[:12])}{model}"
    return f"run {safe(fact.run)} started on {safe(fact.base_name)} {safe(fact.base[:7])}{model}"


def _evidence(run: RunSnapshot, fact: f.EvidenceRead) -> str:
    lines = [f"estimate: {row}" for row in estimate_rows(fact.estimates)]
    if run.chooses_rungs:
        lines.append(f"starting rungs chosen from the results and cost of {counted(fact.runs, 'past run')}")
    return "\n".join(lines)


def _gate_tried(_: RunSnapshot, fact: f.GateTried) -> str | None:
    green = sum(trial.passed for trial in fact.trials)
    return f"the gate passed {green} out of {counted(len(fact.trials), 'time')}" if fact.trials else None


def _rehearsal(_: RunSnapshot, fact: f.RehearsalNoted) -> str:
    commit, text = safe(fact.subtask or "the base"), safe(fact.text, limit=TEXT)
    match fact.what:
        case "by_hand":
            return f"{commit}: applied without a worker: {text}"
        case "red":
            return f"{commit}: the gate also fails on the original commit, landing it anyway"
        case "flaky":
            return f"{commit}: the gate is flaky: {text}"
        case "fault":
            return f"injected fault: {safe(fact.subtask or '')} {text}".replace(":  ", ": ")


def _engine(_: RunSnapshot, fact: f.EngineStarted) -> str | None:
    sandbox = ", WITHOUT A SANDBOX" if fact.sandbox == "none" else ""
    nth = NTH.get(fact.epoch - 1, f"{fact.epoch - 1}th")
    return f"resumed for the {nth} time{sandbox}" if fact.epoch > 1 else None


def _told(_: RunSnapshot, fact: f.InstructionGiven) -> str:
    what = "interrupting instruction" if fact.interrupt else "instruction"
    return f"{what} to {safe(fact.subtask)} from {safe(fact.by)}: {safe(fact.text, limit=200)}"


def _limits(_: RunSnapshot, fact: f.LimitsChanged) -> str:
    limits = fact.model_dump(include=set(LIMITS), exclude_none=True)
    changes = ", ".join(f"{LIMITS[name]} {value:,.10g}" for name, value in limits.items())
    return f"limits changed by {safe(fact.by)}{f': {changes}' if changes else ''}"


def _connected(_: RunSnapshot, fact: f.NodeConnected) -> str:
    labels = f", {', '.join(map(safe, fact.labels))}" if fact.labels else ""
    slots = f"{counted(fact.workers, 'worker')}, {counted(fact.checks, 'check')} at a time"
    return f"node {safe(fact.node)} connected: {safe(fact.host, limit=TITLE)}, {slots}{labels}"


def _attempt(run: RunSnapshot, fact: f.AttemptStarted) -> str:
    attempt = "" if fact.strategy == "first" else f", attempt {fact.number} ({STRATEGIES[fact.strategy]})"
    started = "started planning" if fact.worker == PLANNER else "started"
    return f"{safe(fact.subtask)} {started}{attempt}: {safe(run.title(fact.subtask), limit=TITLE)}"


def _verified(run: RunSnapshot, fact: f.AttemptVerified) -> str | None:
    """Work without files to land is done once it is verified. A change is reported when it lands."""
    summary = run.finished(fact.subtask)
    return f"{safe(fact.subtask)} is done: {safe(summary, limit=TEXT)}" if summary is not None else None


def _failed(_: RunSnapshot, fact: f.AttemptFailed) -> str:
    how = "sent back" if fact.failure.kind == "integration" else f"failed, attempt {fact.number}"
    return f"{safe(fact.subtask)} {how}: {_failure(fact.failure)}"


def _service(_: RunSnapshot, fact: f.ServiceChanged) -> str:
    if fact.condition == "up":
        return f"the model service{f' for {safe(fact.scope)}' if fact.scope else ''} is available again"
    return f"WAITING: {safe(outage_text(fact.scope, fact), limit=TEXT)}. Model calls wait, and no work is lost"


def waiting_line(why: str, seconds: float) -> str:
    """The duration and the reason of an outage, for a status or a live line."""
    return f"for {duration(max(0.0, seconds))}: {safe(why, limit=200)}; retrying periodically"


def _lost(run: RunSnapshot, fact: f.WorkLost) -> str:
    parts = []
    if fact.commits:
        parts.append(f"{counted(len(fact.commits), 'commit')} can't be read")
    if fact.reland:
        parts.append(f"will land again{_listed(fact.reland)}")
    if fact.redo:
        parts.append(f"will be redone{_listed(fact.redo)}")
    if fact.unpublished:
        parts.append(f"{safe(run.result.branch)} is missing and will be restored")
    return f"DAMAGE: {'; '.join(parts)}"


def _verdict(run: RunSnapshot, fact: f.PlanApproved | f.PlanRejected) -> str:
    """Name the subtasks, unless a person decided about everything that was pending."""
    version, by, subtasks = fact.version, safe(fact.by), ""
    automatic = isinstance(fact, f.PlanApproved) and fact.automatic
    if fact.subtasks is not None and (automatic or not set(run.waiting_for_approval) <= set(fact.subtasks)):
        subtasks = _listed(fact.subtasks)
    if isinstance(fact, f.PlanRejected):
        return f"plan version {version} rejected by {by}{subtasks}: {safe(fact.reason)}"
    return f"plan version {version} approved by {by}{subtasks}"


def _listed(ids: tuple[str, ...]) -> str:
    return f" ({listed([safe(id_) for id_ in ids], SUBTASKS)})"


def _failure(failure: f.Failure) -> str:
    return f"{failure.kind}: {safe(failure.summary, limit=160)}"


def _revision(run: RunSnapshot, fact: f.PlanRevised) -> str | None:
    revision = fact.revision
    if not (revision.changes_plan or revision.ask or revision.finished):
        return None
    changes = {
        "added": revision.add,
        "revised": revision.revise,
        "split": revision.split,
        "retried": revision.retry,
        "dropped": revision.drop,
    }
    parts = [f"{len(items)} {change}" for change, items in changes.items() if items]
    if revision.ask:
        parts.append(f"{counted(len(revision.ask), 'question')} asked")
    if revision.finished:
        parts.append("finished")
    area = f"{safe(fact.area)}: " if fact.area is not None else ""
    line = f"{area}plan version {run.plan.version}: {', '.join(parts)} — {safe(revision.assessment, limit=160)}"
    if run.plan.version == 1 and fact.area is None and is_flat(run.plan):
        line += " (flat: one worker, no decomposition)"
    questions = run.question_lines()[-len(revision.ask) :] if revision.ask else ()
    return "\n".join([line, *map(_question, questions)])


def _question(question: QuestionLine) -> str:
    about = f" about {safe(question.about)}" if question.about else ""
    return f"QUESTION {question.id}{about}: {safe(question.text, limit=TEXT)}  →  {safe(reply_command(question))}"


def _setup(_: RunSnapshot, fact: f.SetupRan) -> str:
    check, network = fact.setup.check, " with network access" if fact.setup.network else ""
    network += f" on node {safe(check.node)}" if check.node else ""
    result = f"took {duration(check.seconds)}" if check.passed else f"FAILED: {how(check)}"
    lines = "".join(f"\n  | {safe(line, limit=OUTPUT)}" for line in check.causes)
    return f"setup command{network} ({safe(check.command, limit=100)}) {result}{lines}"


def _base(_: RunSnapshot, fact: f.BaseChecked) -> str | None:
    if fact.failure is not None:
        return f"can't run commands on the base: {_failure(fact.failure)}"
    red = [check for check in fact.checks if not check.fine]
    if not red:
        if excused := [check.excused for check in fact.checks if check.excused]:
            return f"the gate is red on the base: {excused[0]}"
        return "the gate is green on the base" if fact.checks else None
    lines = [f"the gate is RED on the base: {', '.join(safe(check.command, limit=100) for check in red)}"]
    for check in red:
        shown = check.causes or (check.output.strip()[-OUTPUT:],)
        lines += [f"  | {safe(line, limit=OUTPUT)}" for line in shown if line.strip()]
    return "\n".join(lines)


def _remedy(run: RunSnapshot, fact: f.RemedyChosen) -> str | None:
    match fact.remedy:
        case "retry" if fact.climbs:
            return f"{safe(fact.subtask)} retries with the next model or effort level"
        case "retry":
            return f"{safe(fact.subtask)} retries in {max(0.0, fact.not_before - fact.at):.1f} s"
        case "resolve":
            is_red = run.latest_failure(fact.subtask) == "integration"
            return (
                f"{safe(fact.subtask)} {'fails after the merge' if is_red else 'conflicts'}: retrying on the new base"
            )
        case "skip":
            return f'{safe(fact.subtask)} skipped (failure_action = "skip")'
        case "planner":
            return None


def _batch(run: RunSnapshot, fact: f.BatchTested) -> str | None:
    lines = []
    if fact.landed:
        names = ", ".join(safe(member.subtask) for member in fact.landed)
        more = untested(len(fact.landed), sum(member.tested for member in fact.landed))
        lines.append(f"landed {names} ({run.landed}){more}")
    lines += [f"{safe(out.subtask)} sent back: {_failure(out.failure)}" for out in fact.ejected]
    if fact.red and not fact.ejected:
        suspects = run.queue.suspects
        if suspects:
            cause = f"bisecting {len(suspects)} suspects" if len(suspects) > 1 else f"caused by {safe(suspects[0])}"
            lines.append(f"batch {fact.number} is red: {cause}")
    return "\n".join(lines) or None


def _batched(_: RunSnapshot, fact: f.ReviewBatched) -> str | None:
    if not fact.batch:
        return None
    many, batch = counted(len(fact.asked), "review"), safe(fact.batch, limit=PROBLEM)
    return f"{safe(fact.subtask)}: requested {many} as batch {batch}, at half price"


def _vote(fact: f.ReviewVoted, vote: f.Vote) -> str:
    title = f"{safe(fact.subtask)}: reviewed by {safe(vote.model)} ({safe(vote.criterion, limit=PROBLEM)})"
    dropped = f", {vote.discarded} discarded" if vote.discarded else ""
    if not vote.findings:
        return f"{title}: no findings{dropped}"
    lines = [f"{title}: {counted(len(vote.findings), 'finding')}{dropped}"]
    lines += [
        f"  {place_text(finding)}: {safe(finding.problem, limit=PROBLEM)}" for finding in vote.findings[:FINDINGS]
    ]
    if len(vote.findings) > FINDINGS:
        lines.append(f"  and {len(vote.findings) - FINDINGS} more")
    return "\n".join(lines)


def _settled(settled: f.FindingSettled) -> str:
    return f"{safe(settled.subtask)}: finding at {place_text(settled.finding)} was {settled.result}"


def place_text(finding: f.ReviewFinding) -> str:
    return f"{safe(finding.file, limit=PROBLEM)}:{finding.line}"


def _silent(*_: object) -> None:
    """Facts that would only be noise have no text."""


TEXTS: Mapping[type[f.Fact], Callable[[RunSnapshot, Any], str | None]] = {
    # the run
    f.RunStarted: _started,
    f.EngineStarted: _engine,
    f.EngineStopped: lambda run, it: f"stopped ({safe(it.why)}). To continue, run: fleet resume {safe(run.run)}",
    f.WarningNoted: lambda _, it: f"note: {safe(it.text)}",
    f.BaseChecked: _base,
    f.EvidenceRead: _evidence,
    f.SetupRan: _setup,
    f.ModelCalled: _silent,
    f.CallsHeld: _silent,
    f.CallLost: _silent,
    f.CallRefused: lambda _, it: f"no more model calls: {safe(it.why)}",
    f.BudgetRanLow: lambda _, it: f"{safe(it.why)}: notified the planner",
    f.ServiceChanged: _service,
    f.GateTried: _gate_tried,
    f.RehearsalNoted: _rehearsal,
    f.ResultScored: lambda _, it: f"{safe(it.subtask)}: the original tests {'pass' if it.passed else 'FAIL'}",
    f.RollbackStarted: lambda _, it: f"ROLLING BACK: {safe(it.why, limit=TEXT)}",
    f.RunEnded: lambda _, it: f"ended: {it.ending} — {safe(it.why, limit=TEXT)}",
    f.RunReopened: lambda _, it: f"reopened by {safe(it.by)}",
    # the plan
    f.PlannerCalled: lambda _, it: "the planner is reading the repository" if it.call == 1 else None,
    f.PlannerFailed: lambda _, it: f"planner failed: {_failure(it.failure)}",
    f.PlanGraded: lambda _, it: "\n".join(note_lines(it.warnings)),
    f.PlanForecast: _silent,  # written only by an early version
    f.PlanRevised: _revision,
    f.PlanApproved: _verdict,
    f.PlanRejected: _verdict,
    # attempts
    f.AttemptStarted: _attempt,
    f.WorkerStarted: _silent,
    f.AttemptCommitted: lambda _, it: (
        f"{safe(it.subtask)} reported done: {counted(len(it.paths), 'file')} changed, checking"
    ),
    f.AttemptUnchanged: lambda _, it: f"{safe(it.subtask)} reported done: no files changed, checking",
    f.AttemptVerified: _verified,
    f.AttemptFailed: _failed,
    f.RemedyChosen: _remedy,
    # landing
    f.BatchFormed: _silent,
    f.BatchTested: _batch,
    f.WorkLost: _lost,
    f.Published: _silent,
    f.PublishFailed: lambda run, it: f"{safe(run.result.branch)} could not be updated: {safe(it.why)}",
    # people
    f.QuestionAsked: lambda run, _: _question(run.latest_question()),
    f.QuestionAnswered: lambda _, it: f"{safe(it.question)} answered by {safe(it.by)}: {safe(it.answer, limit=200)}",
    f.RetryRequested: lambda _, it: f"retry of {safe(it.subtask)} requested by {safe(it.by)}",
    f.InstructionGiven: _told,
    f.InstructionRead: lambda _, it: (
        f"{safe(it.subtask)}: attempt {it.number} received {counted(it.count, 'instruction')}"
    ),
    f.DrainRequested: lambda *_: (
        "draining: running agents finish, no new ones start (press Ctrl-C again to stop immediately)"
    ),
    f.LimitsChanged: _limits,
    f.Paused: lambda _, it: f"paused by {safe(it.by)}",
    f.Unpaused: lambda _, it: f"unpaused by {safe(it.by)}",
    f.CancelRequested: lambda _, it: f"cancelled by {safe(it.by)}",
    # nodes
    f.NodeConnected: _connected,
    f.NodeLost: lambda _, it: f"node {safe(it.node)} is unavailable: {safe(it.why, limit=TEXT)}",
    f.NodeAddRequested: lambda _, it: f"node {safe(it.node)} added by {safe(it.by)}",
    f.NodeDrained: lambda _, it: f"node {safe(it.node)} drained by {safe(it.by)}: it accepts no new work",
    f.NodeUndrained: lambda _, it: f"node {safe(it.node)} undrained by {safe(it.by)}: it accepts work again",
    # reviews
    f.ReviewBatched: _batched,
    f.ReviewUnbatched: lambda _, it: (
        f"{safe(it.subtask)}: requesting reviews one by one: {safe(it.why, limit=PROBLEM)}"
    ),
    f.ReviewVoted: lambda _, it: "\n".join(_vote(it, vote) for vote in it.votes),
    f.FindingsSettled: lambda _, it: "\n".join(map(_settled, it.settled)),
}
"""The text of each kind of fact, given the run after it. Empty for facts that would only be noise."""


# ---- transcript ------------------------------------------------------------------------------------------------------
# A conversation as text: messages, tool calls and their results. All of it is untrusted.


LINES = 60  # of one message
PROGRAMS = ("output", "report")  # the output of a worker that is a program, and its report


def transcript_lines(entries: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of the entries of a transcript file."""
    for entry in entries:
        yield from _entry_lines(entry)


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    event, content = safe(entry.get("event", "?")), entry.get("content", entry.get("blocks"))
    if event == "user" and _is_results(content):
        event = "results"
    texts = [text for name in PROGRAMS if isinstance(text := entry.get(name), str) and text]
    shown_elsewhere = {"event", "content", "blocks", "tools", "system", *PROGRAMS}
    if event == "end":
        shown_elsewhere.add("value")  # the call that ended it is right above
    values = {name: _text(value) for name, value in entry.items() if name not in shown_elsewhere}
    details = "  ".join(f"{safe(name)}={safe(value, limit=120)}" for name, value in values.items())
    yield f"── {event}  {details}".rstrip()
    for text in texts:
        yield from _message_lines(text)
    if isinstance(content, str):
        yield from _message_lines(content)
    elif isinstance(content, list):
        for block in content:
            yield from _block_lines(block) if isinstance(block, dict) else _message_lines(str(block))


def _is_results(content: object) -> bool:
    """Whether a message consists only of tool results, which are sent in the user role."""
    if not isinstance(content, list) or not content:
        return False
    return all(isinstance(block, dict) and block.get("type") == "tool_result" for block in content)


def _block_lines(block: Mapping[str, Any]) -> Iterator[str]:
    match block.get("type"):
        case "text":
            yield from _message_lines(str(block.get("text", "")))
        case "tool_use":
            yield f"   → {safe(block.get('name'))}"
            arguments = block.get("input")
            if isinstance(arguments, dict):
                arguments = "\n".join(f"{name}: {_text(value)}" for name, value in arguments.items())
            yield from _message_lines(str(arguments))
        case "tool_result":
            yield f"   ← {'error' if block.get('is_error') else 'result'}"
            result = block.get("content")
            if isinstance(result, list):
                result = "\n".join(
                    str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in result
                )
            yield from _message_lines(str(result or ""))
        case "thinking" if str(block.get("thinking") or "").strip():  # the summary of its thinking
            yield "   thinking"
            yield from _message_lines(str(block["thinking"]))
        case "redacted_thinking":
            yield "   thinking (hidden by the service)"
        case kind:
            yield f"   ({safe(kind)})"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"  # noqa: PLR2004 - three digits
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _message_lines(text: str) -> Iterator[str]:
    yield from (f"     {line}" for line in safe_block(text, lines=LINES).splitlines())


# ---- events ----------------------------------------------------------------------------------------------------------


def events_of(step: Step, number: int) -> list[Event]:
    """The events of a fact, one per line. `number` is that of the first one."""
    fact = step.fact
    about = getattr(fact, "subtask", None) or getattr(fact, "about", None)
    lines = (event_text(step.run, fact) or "").splitlines()
    return [
        Event(
            step.at,
            line,
            _tone(fact, line),
            about,
            f"e{number + place}:{about if step.has_subtask(about) else ''}",
            place > 0 or _is_routine(fact),
            _members(fact),
            0 if place else len(lines) - 1,
        )
        for place, line in enumerate(lines)
    ]


def _members(fact: f.Fact) -> tuple[SubtaskId, ...]:
    """The subtasks that a batch landed or sent back."""
    if not isinstance(fact, f.BatchTested):
        return ()
    return (*(each.subtask for each in fact.landed), *(each.subtask for each in fact.ejected))


def _is_routine(fact: f.Fact) -> bool:
    return isinstance(fact, f.AttemptCommitted) or (isinstance(fact, f.AttemptStarted) and fact.strategy == "first")


def _tone(fact: f.Fact, line: str) -> str:
    match fact:
        case f.AttemptFailed() | f.PlannerFailed() | f.PublishFailed() | f.EngineStopped():
            return "bad"
        case f.BatchTested():
            return "good" if fact.landed and line.startswith("landed") else "bad"
        case f.RunEnded():
            return "good" if fact.ending == "landed" else "bad"
        case f.QuestionAsked():
            return "attention"
        case _:
            return "attention" if line.startswith("QUESTION") else ""
