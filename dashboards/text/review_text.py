"""The text of events about reviews. What reviewers write is untrusted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from dashboards.text.formats import counted, duration, rate
from dashboards.text.incident_text import STRATEGIES
from dashboards.text.safe import safe, safe_block
from fleet.core.facts import facts as f
from fleet.read.question_view import NeedKind, QuestionView, ReviewsView, TriedView

TEXT = PROBLEM = 200
SHOWN = 5  # findings of one vote


def review_text(fact: f.ReviewFact) -> str | None:
    """The lines of a fact; None for one that would only be noise."""
    match fact:
        case f.ReviewBatched():
            if not fact.batch:
                return None
            many = counted(len(fact.asked), "review")
            return f"{safe(fact.subtask)}: {many} asked for as batch {safe(fact.batch, limit=TEXT)}, at half the price"
        case f.ReviewUnbatched():
            return f"{safe(fact.subtask)}: reviews are asked for one by one: {safe(fact.why, limit=TEXT)}"
        case f.ReviewVoted():
            return "\n".join(_vote(fact, vote) for vote in fact.votes) or None
        case f.FindingsSettled():
            return "\n".join(map(_settled, fact.settled)) or None
        case _:
            assert_never(fact)


def _vote(fact: f.ReviewVoted, vote: f.Vote) -> str:
    title = f"{safe(fact.subtask)}: reviewed by {safe(vote.model)} ({safe(vote.criterion, limit=TEXT)})"
    dropped = f", {vote.discarded} discarded" if vote.discarded else ""
    if not vote.findings:
        return f"{title}: no finding{dropped}"
    lines = [f"{title}: {counted(len(vote.findings), 'finding')}{dropped}"]
    lines += [f"  {place_text(finding)}: {safe(finding.problem, limit=TEXT)}" for finding in vote.findings[:SHOWN]]
    if len(vote.findings) > SHOWN:
        lines.append(f"  and {len(vote.findings) - SHOWN} more")
    return "\n".join(lines)


def _settled(settled: f.FindingSettled) -> str:
    return f"{safe(settled.subtask)}: the finding at {place_text(settled.finding)} was {settled.result}"


def reviews_line(view: ReviewsView) -> str:
    """All reviews of a run in one line."""
    parts = [f"{view.reviews}, {counted(view.findings, 'finding')}"]
    became = (("mended", view.mended), ("ignored", view.ignored), ("reverted later", view.reverted))
    parts += [f"{count} {what}" for what, count in became if count]
    parts += [f"{view.discarded} discarded"] if view.discarded else []
    parts += [f"{counted(view.pending, 'batch')} pending"] if view.pending else []
    if view.false_alarm_rate is not None:
        settled = view.mended + view.ignored + view.reverted
        parts.append(f"false alarms {rate(view.ignored, settled)}")
    return "; ".join((", ".join(parts[:1]), ", ".join(parts[1:]))) if parts[1:] else parts[0]


def place_text(finding: f.Finding) -> str:
    return f"{safe(finding.file, limit=TEXT)}:{finding.line}"


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
