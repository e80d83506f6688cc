"""The text of events about reviews. What reviewers write is untrusted."""

from typing import assert_never

from dashboards.text.formats import counted, rate
from dashboards.text.safe import safe
from fleet.core.state import facts as f
from fleet.core.views.question_view import ReviewsView

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
