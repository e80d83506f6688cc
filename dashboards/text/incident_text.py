"""Incidents, failed checks, questions and reviews as lines of text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dashboards.text.formats import counted, duration, money, rate
from dashboards.text.safe import safe, safe_block
from fleet.core.base.output import advice
from fleet.core.facts.facts import CheckRun, Strategy
from fleet.core.facts.failures import how
from fleet.read.incident_view import IncidentAttempt, IncidentCounts, IncidentView, RateCounts, RemedyView
from fleet.read.question_view import NeedKind, QuestionView, ReviewsView, TriedView
from fleet.read.run_view import BaseView

BRIEF, FULL = 6, 24  # lines of evidence
TEXT = 300
STRATEGIES: Mapping[Strategy, str] = {
    "first": "first try",
    "retry": "retry",
    "resolve": "conflict fix",
    "alternative": "alternative",
    "split": "split",
    "human": "human",
}
"""The display name of each strategy."""


def rates_lines(rates: IncidentCounts) -> Iterator[str]:
    """Recovery rates with their denominators: in total, by class of failure and by remedy."""
    open_ = f", {rates.open} open" if rates.open else ""
    yield f"  recovered  {rate(rates.recovered, rates.closed)}{open_}"
    yield from _rows("by class", ((kind, row.opened, row) for kind, row in rates.by_class.items()))
    yield from _rows("by remedy", ((STRATEGIES[name], 0, row) for name, row in rates.by_strategy.items()))


def _rows(title: str, rows: Iterable[tuple[str, int, RateCounts]]) -> Iterator[str]:
    for place, (name, opened, row) in enumerate(rows):
        share = rate(row.recovered, row.closed) if row.closed else f"none of {opened} closed yet"
        yield f"  {title if not place else '':<9}  {name:<22} {share}"


def story_lines(story: IncidentView, *, evidence: int = FULL) -> Iterator[str]:
    """An incident from its first failure to its end."""
    first = story.failure
    how = headline(story.recovered, story.strategy, story.seconds)
    yield f"Incident {story.number}  {safe(story.subtask)}  {story.class_}: {how}"
    yield f"  attempt {first.attempt}   {_worker(first)}"
    yield from _result_lines(first, evidence)
    for remedy in story.remedies:
        yield from _remedy_lines(remedy, evidence)
    attempts = 1 + sum(len(remedy.attempts) + remedy.attempts_left_out for remedy in story.remedies)
    cost = f"({counted(attempts, 'attempt')}, {money(story.dollars)})"
    yield f"  end         {safe(story.end, limit=2 * TEXT)}  {cost}"


def outcome(recovered: bool | None, strategy: Strategy | None) -> str:
    """The outcome of an incident, in one or two words."""
    if recovered is None or strategy is None:
        return "open" if recovered is None else "given up"
    if recovered:
        return STRATEGIES[strategy]
    return "asked a human" if strategy == "human" else "given up"


def headline(recovered: bool | None, strategy: Strategy | None, seconds: float | None) -> str:
    """The outcome of an incident, with its duration."""
    if seconds is None:
        return "open"
    how = outcome(recovered, strategy)
    return f"recovered after {duration(seconds)}: {how}" if recovered else f"{how} after {duration(seconds)}"


def _remedy_lines(remedy: RemedyView, evidence: int) -> Iterator[str]:
    version = f" (plan version {remedy.plan_version})" if remedy.plan_version is not None else ""
    wait = f", after {remedy.wait_s:.1f} s" if remedy.wait_s else ""
    why = f": {safe(remedy.why, limit=TEXT)}" if remedy.why else ""
    yield f"  chosen      by the {safe(remedy.by, limit=40)}{version}: {STRATEGIES[remedy.remedy]}{wait}{why}"
    for attempt in remedy.attempts:
        part = f"{safe(attempt.subtask)} " if remedy.remedy == "split" else ""
        yield f"  attempt {attempt.attempt}   {part}{_worker(attempt)}"
        yield from _result_lines(attempt, evidence)
    if remedy.attempts_left_out:
        yield f"  … and {remedy.attempts_left_out} more attempts"


def _worker(attempt: IncidentAttempt) -> str:
    model = f" ({safe(attempt.model, limit=60)})" if attempt.model else ""
    return f"{safe(attempt.worker, limit=40)}{model}, {duration(attempt.seconds)}, {money(attempt.dollars)}"


def _result_lines(attempt: IncidentAttempt, evidence: int) -> Iterator[str]:
    commit = f" as {safe(attempt.commit[:7])}" if attempt.commit else ""
    failure = f", {attempt.class_}: {safe(attempt.summary, limit=TEXT)}" if attempt.class_ else ""
    yield f"    {attempt.outcome}{commit}{failure}"
    if evidence:
        yield from (f"    | {line}" for line in safe_block(attempt.evidence, lines=evidence).splitlines())


# ---- cause text ------------------------------------------------------------------------------------------------------
# The failure of a setup command or a gate: how it ended, the relevant lines of its output, and advice.


LINE = 200


def check_lines(check: CheckRun, *, log: str = "", note: str = "") -> Iterator[str]:
    """A command with its result and, if it failed, the relevant lines of its output."""
    after = f"{how(check)} after {duration(check.seconds)}" if not check.passed else duration(check.seconds)
    tests = f", {counted(check.tests, 'test')} passed" if check.tests is not None else ""
    yield f"{'ok    ' if check.passed else 'FAILED'}  {safe(check.command, limit=LINE)}  ({after}{tests}{note})"
    if not check.passed:
        yield from cause_lines(check.causes)
        if log:
            yield f"        full output: {safe(log)}"


def cause_lines(causes: Iterable[str]) -> Iterator[str]:
    """The relevant lines of output, below the command that printed them."""
    yield from (f"        | {safe(line, limit=LINE)}" for line in causes)


def advice_lines(causes: tuple[str, ...]) -> Iterator[str]:
    yield from (f"  → {safe(line, limit=500)}" for line in advice(causes))


def base_lines(view: BaseView, *, logs: str = "") -> Iterator[str]:
    """The setup command and the gate on the base of a run, with advice. `logs` is the path prefix of the logs."""
    if view.setup is not None:
        note = ", with network access" if view.setup.network else ""
        yield from check_lines(view.setup.check, log=_log(view.setup.check, logs), note=note)
    for check in view.gate:
        yield from check_lines(check, log=_log(check, logs))
    if view.failure is not None and (view.setup is None or view.setup.check.passed):
        yield f"FAILED  {safe(view.failure.summary, limit=LINE)}"
        yield from cause_lines(view.causes)
    yield from advice_lines(view.causes)


def refusal_commands(view: BaseView, run: str) -> list[tuple[str, str]]:
    """The next commands to run after a run was refused, each with its purpose."""
    base = view.setup is not None or view.gate or view.failure is not None
    commands = [("fleet try", "rerun the setup command and the gate, without a run")] if base else []
    for name, has_log in (("setup", view.setup is not None), ("gate", bool(view.gate))):
        if has_log:
            commands.append((f"fleet logs {name} --run {run}", "the full output"))
    commands.append((f"fleet show {run}", "show this again (the run is kept)"))
    commands.append((f"fleet resume {run}", "start the run again with the current configuration"))
    return commands


def _log(check: CheckRun, logs: str) -> str:
    return f"{logs}{check.log}" if check.log else ""


# ---- review text -----------------------------------------------------------------------------------------------------
# All reviews of a run. The text of reviewers is untrusted.


PROBLEM = 200


def reviews_line(view: ReviewsView) -> str:
    """Summarize all reviews of a run in one line."""
    parts = [f"{view.reviews}, {counted(view.findings, 'finding')}"]
    outcomes = (("fixed", view.fixed), ("ignored", view.ignored), ("reverted later", view.reverted))
    parts += [f"{count} {what}" for what, count in outcomes if count]
    parts += [f"{view.discarded} discarded"] if view.discarded else []
    parts += [f"{counted(view.pending, 'batch')} pending"] if view.pending else []
    if view.false_alarm_rate is not None:
        settled = view.fixed + view.ignored + view.reverted
        parts.append(f"false alarms {rate(view.ignored, settled)}")
    return "; ".join((", ".join(parts[:1]), ", ".join(parts[1:]))) if parts[1:] else parts[0]


# ---- question text ---------------------------------------------------------------------------------------------------
# Pending questions and approvals: short for a list, and with all details for an answer.


NEEDS: Mapping[NeedKind, str] = {
    "resume": "resume",
    "approve": "approval",
    "answer": "answer",
    "budget": "budget",
    "unpause": "unpause",
}
TRIED = 6  # attempts listed, without the earliest ones
QUESTION = 200
EVIDENCE = 24  # lines


def needs_text(needs: Sequence[NeedKind]) -> str:
    return ", ".join(NEEDS[need] for need in needs)


def ends_text(ends_in_s: float | None) -> str:
    """The time until the run ends without an answer. Empty if it does not end."""
    return f"the run ends as partial in {duration(ends_in_s)}" if ends_in_s is not None else ""


def consequence(question: QuestionView) -> str:
    """The number of subtasks that wait for the answer, and the deadline."""
    parts = [f"{counted(question.waiting, 'subtask')} wait{'s' * (question.waiting == 1)} for the answer"]
    return "; ".join([*parts * bool(question.waiting), *filter(None, [ends_text(question.ends_in_s)])])


def tried_lines(question: QuestionView) -> Iterator[str]:
    """The attempts so far, one per line."""
    left_out = len(question.tried) - TRIED
    if left_out > 0:
        yield f"… {counted(left_out, 'earlier attempt')}"
    yield from map(_tried, question.tried[-TRIED:])


def _tried(tried: TriedView) -> str:
    worker = f"{safe(tried.worker, limit=40)}{f', {safe(tried.model, limit=40)}' if tried.model else ''}"
    failed = f"{tried.failure}: {safe(tried.summary, limit=QUESTION)}" if tried.failure else "finished"
    return f"attempt {tried.attempt} ({STRATEGIES[tried.strategy]}; {worker})  {failed}"


def question_lines(question: QuestionView, *, evidence: int = EVIDENCE) -> Iterator[str]:
    """The details of a question: its subtask, earlier attempts, files, consequence and output."""
    if question.about is not None:
        yield f"subtask   {safe(question.about)}{f': {safe(question.title, limit=QUESTION)}' if question.title else ''}"
    for place, line in enumerate(tried_lines(question)):
        yield f"{'tried' if not place else '':<9} {line}"
    if question.paths:
        yield f"files     {', '.join(safe(path, limit=80) for path in question.paths)}"
    if after := consequence(question):
        yield f"then      {after}"
    if question.evidence and evidence:
        yield "output"
        yield from (f"  | {line}" for line in safe_block(question.evidence, lines=evidence).splitlines())
