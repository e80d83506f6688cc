"""What went wrong and what waits for a person, as lines of text: incidents, failed checks, questions, reviews."""

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
"""The name of each strategy, wherever a person reads it."""


def rates_lines(rates: IncidentCounts) -> Iterator[str]:
    """Recovery rates, each with its denominator: in all, by class of failure, by remedy."""
    open_ = f", {rates.open} open" if rates.open else ""
    yield f"  recovered  {rate(rates.recovered, rates.closed)}{open_}"
    yield from _rows("by class", ((kind, row.opened, row) for kind, row in rates.by_class.items()))
    yield from _rows("by remedy", ((STRATEGIES[name], 0, row) for name, row in rates.by_strategy.items()))


def _rows(title: str, rows: Iterable[tuple[str, int, RateCounts]]) -> Iterator[str]:
    for place, (name, opened, row) in enumerate(rows):
        share = rate(row.recovered, row.closed) if row.closed else f"none of {opened} closed yet"
        yield f"  {title if not place else '':<9}  {name:<22} {share}"


def story_lines(story: IncidentView, *, evidence: int = FULL) -> Iterator[str]:
    """One incident from its failure to its end."""
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
    """How an incident ended, in a word or two."""
    if recovered is None or strategy is None:
        return "open" if recovered is None else "given up"
    if recovered:
        return STRATEGIES[strategy]
    return "human asked" if strategy == "human" else "given up"


def headline(recovered: bool | None, strategy: Strategy | None, seconds: float | None) -> str:
    """How an incident ended, and how long it took."""
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
# Why a set-up command or a gate failed, as a person needs it: how it ended, the lines that matter, what to do next.


LINE = 200


def check_lines(check: CheckRun, *, log: str = "", note: str = "") -> Iterator[str]:
    """A command with its result; if it failed, with the lines of its output that matter."""
    after = f"{how(check)} after {duration(check.seconds)}" if not check.passed else duration(check.seconds)
    tests = f", {check.tests} tests passed" if check.tests is not None else ""
    yield f"{'ok    ' if check.passed else 'FAILED'}  {safe(check.command, limit=LINE)}  ({after}{tests}{note})"
    if not check.passed:
        yield from cause_lines(check.causes)
        if log:
            yield f"        whole output: {safe(log)}"


def cause_lines(causes: Iterable[str]) -> Iterator[str]:
    """The lines that matter, under the command that printed them."""
    yield from (f"        | {safe(line, limit=LINE)}" for line in causes)


def advice_lines(causes: tuple[str, ...]) -> Iterator[str]:
    yield from (f"  → {safe(line, limit=500)}" for line in advice(causes))


def base_lines(view: BaseView, *, logs: str = "") -> Iterator[str]:
    """Set-up and gate on the base of a run, and what to do about a failure. `logs` is the folder above the logs."""
    if view.setup is not None:
        note = ", with the network" if view.setup.network else ""
        yield from check_lines(view.setup.check, log=_log(view.setup.check, logs), note=note)
    for check in view.gate:
        yield from check_lines(check, log=_log(check, logs))
    if view.failure is not None and (view.setup is None or view.setup.check.passed):
        yield f"FAILED  {safe(view.failure.summary, limit=LINE)}"
        yield from cause_lines(view.causes)
    yield from advice_lines(view.causes)


def refusal_commands(view: BaseView, run: str) -> list[tuple[str, str]]:
    """What to type where a run was refused, each with its purpose."""
    base = view.setup is not None or view.gate or view.failure is not None
    commands = [("fleet try", "set-up and gate again, without a run")] if base else []
    for name, has_log in (("setup", view.setup is not None), ("gate", bool(view.gate))):
        if has_log:
            commands.append((f"fleet logs {name} --run {run}", "the whole output"))
    commands.append((f"fleet show {run}", "this again; the run is kept"))
    commands.append((f"fleet resume {run}", "start it again with the configuration as it is at that time"))
    return commands


def _log(check: CheckRun, logs: str) -> str:
    return f"{logs}{check.log}" if check.log else ""


# ---- review text -----------------------------------------------------------------------------------------------------
# All reviews of a run. What reviewers write is untrusted.


PROBLEM = 200


def reviews_line(view: ReviewsView) -> str:
    """All reviews of a run in one line."""
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
# What a run needs from a person, in words: short for a list, and with all that an answer takes.


NEEDS: Mapping[NeedKind, str] = {
    "resume": "resume",
    "approve": "approval",
    "answer": "answer",
    "budget": "budget",
    "unpause": "unpause",
}
TRIED = 6  # attempts that are listed; the first ones are left out
QUESTION = 200
EVIDENCE = 24  # lines


def needs_text(needs: Sequence[NeedKind]) -> str:
    return ", ".join(NEEDS[need] for need in needs)


def ends_text(ends_in_s: float | None) -> str:
    """When the run ends without an answer; empty if it does not."""
    return f"the run ends as partial in {duration(ends_in_s)}" if ends_in_s is not None else ""


def consequence(question: QuestionView) -> str:
    """What waits for the answer, and until when."""
    parts = [f"{counted(question.waiting, 'subtask')} wait{'s' * (question.waiting == 1)} for it"]
    return "; ".join([*parts * bool(question.waiting), *filter(None, [ends_text(question.ends_in_s)])])


def tried_lines(question: QuestionView) -> Iterator[str]:
    """The attempts so far, one line each."""
    left_out = len(question.tried) - TRIED
    if left_out > 0:
        yield f"… {counted(left_out, 'attempt')} before"
    yield from map(_tried, question.tried[-TRIED:])


def _tried(tried: TriedView) -> str:
    worker = f"{safe(tried.worker, limit=40)}{f', {safe(tried.model, limit=40)}' if tried.model else ''}"
    failed = f"{tried.failure}: {safe(tried.summary, limit=QUESTION)}" if tried.failure else "finished"
    return f"attempt {tried.attempt} ({STRATEGIES[tried.strategy]}; {worker})  {failed}"


def question_lines(question: QuestionView, *, evidence: int = EVIDENCE) -> Iterator[str]:
    """Everything beside the question itself."""
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
