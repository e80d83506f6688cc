"""What reviews of changes found in a run, what became of it, and how often they were wrong."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.state.facts import Finding, FindingResult
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt

LATEST = 50  # findings that are listed


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding of a reviewer. Its texts are untrusted."""

    subtask: SubtaskId
    attempt: int
    file: str
    """The file that it is about."""
    line: int
    """The line in that file."""
    problem: str
    """What is wrong there."""
    became: FindingResult | None
    """`mended`: the work passed without the line; `ignored`: with it; `reverted`: with it, and the change of a later
    subtask removed it. Null: the subtask has not passed since."""


@dataclass(frozen=True, slots=True)
class ReviewsView:
    """The reviews of a run."""

    reviews: int
    """How many were made: each vote is one."""
    findings: int
    """Findings that name a line of their change, each once for an attempt."""
    discarded: int
    """Findings that named no line of the change: they count for nothing."""
    mended: int
    """Those whose line was gone when the work passed."""
    ignored: int
    """Those that were never mended; without the reverted ones."""
    reverted: int
    """Those whose line a later subtask removed, after the work had passed with it."""
    false_alarm_rate: float | None
    """The share of `ignored` in all three; null until one of them is known."""
    pending: int
    """Batches of reviews that the models' service works on."""
    latest: tuple[FindingView, ...]
    """The findings about the subtasks that were planned last, fifty at most."""


def reviews_view(state: RunState) -> ReviewsView | None:
    """None if nothing was reviewed."""
    reviewed = [
        (subtask.id, attempt)
        for subtask in state.subtasks.values()
        for attempt in subtask.attempts
        if attempt.votes or attempt.batch is not None
    ]
    if not reviewed:
        return None
    found = [(id_, attempt.number, finding) for id_, attempt in reviewed for finding in _findings(attempt)]
    became = Counter(state.settled.get(key) for key in found)
    settled = became["mended"] + became["ignored"] + became["reverted"]
    return ReviewsView(
        reviews=sum(len(attempt.votes) for _, attempt in reviewed),
        findings=len(found),
        discarded=sum(vote.discarded for _, attempt in reviewed for vote in attempt.votes),
        mended=became["mended"],
        ignored=became["ignored"],
        reverted=became["reverted"],
        false_alarm_rate=round(became["ignored"] / settled, 3) if settled else None,
        pending=len(state.pending_reviews),
        latest=_latest(state, found),
    )


def findings_of(state: RunState, id_: SubtaskId, attempts: Sequence[Attempt]) -> tuple[FindingView, ...]:
    """All findings about these attempts at a subtask."""
    return tuple(_view(state, id_, each.number, finding) for each in attempts for finding in _findings(each))


def _findings(attempt: Attempt) -> Iterable[Finding]:
    """Each once, whoever found it."""
    return dict.fromkeys(finding for vote in attempt.votes for finding in vote.findings)


def _latest(state: RunState, found: Sequence[tuple[SubtaskId, int, Finding]]) -> tuple[FindingView, ...]:
    return tuple(_view(state, *each) for each in found[-LATEST:])


def _view(state: RunState, id_: SubtaskId, number: int, finding: Finding) -> FindingView:
    became = state.settled.get((id_, number, finding))
    return FindingView(id_, number, finding.file, finding.line, finding.problem, became)
