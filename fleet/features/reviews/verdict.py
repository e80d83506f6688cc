"""Reviews of a change: which votes are still wanted, what they decide, and what becomes of findings.

A vote approves if it has no findings: a reviewer can't approve in words. A finding that names no line of the diff was
discarded before. Queries only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.failures import EVIDENCE
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.core.verdicts.oddities import Patch
from fleet.features.reviews.settings import Reviewer

MOST_SHOWN = 20  # findings in the evidence of a failure


def reviews_of(spec: Subtask, settings: Reviewer) -> tuple["Review", ...]:
    """The reviews of a subtask's change: those that its plan asks for, and that of every change."""
    own = [Review.of(c, settings.votes) for c in spec.acceptance if c.review is not None]
    if not (look_for := settings.look_for.strip()):
        return tuple(own)
    return (*own, Review("reviewed", look_for, None, settings.votes, _most(settings.votes)))


@dataclass(frozen=True, slots=True)
class Review:
    """One criterion that reviewers decide."""

    criterion: str
    looks_for: str
    model: str | None
    votes: int
    threshold: int
    """How many votes must approve."""

    @classmethod
    def of(cls, criterion: Criterion, votes: int) -> "Review":
        votes = criterion.votes or max(votes, criterion.threshold or 1)
        threshold = min(criterion.threshold or _most(votes), votes)
        return cls(criterion.criterion, criterion.review or "", criterion.model, votes, threshold)

    def counted(self, attempt: Attempt) -> tuple[f.Vote, ...]:
        """The votes that are there."""
        return tuple(v for v in attempt.votes if (v.criterion, v.looks_for) == (self.criterion, self.looks_for))

    def passes(self, attempt: Attempt) -> bool | None:
        """Whether the votes decide for the change; None if they decide nothing yet."""
        votes = self.counted(attempt)
        approving = sum(not vote.findings for vote in votes)
        if approving >= self.threshold:
            return True
        return False if len(votes) - approving > self.votes - self.threshold else None

    def wanted(self, attempt: Attempt, *, at_once: bool) -> tuple[int, ...]:
        """The numbers of the votes to ask for next: as few as may decide, or all that may be needed."""
        if self.passes(attempt) is not None:
            return ()
        there = {vote.vote for vote in self.counted(attempt)}
        missing = [number for number in range(1, self.votes + 1) if number not in there]
        approving = sum(not vote.findings for vote in self.counted(attempt))
        return tuple(missing if at_once else missing[: self.threshold - approving])


def _most(votes: int) -> int:
    return votes // 2 + 1


def place(finding: f.Finding) -> str:
    return f"{finding.file}:{finding.line}"


def verdict(review: Review, attempt: Attempt) -> f.CheckRun:
    """What the votes say, in the form of a check."""
    votes = review.counted(attempt)
    against = [vote for vote in votes if vote.findings]
    models = ", ".join(dict.fromkeys(vote.model for vote in votes))
    return f.CheckRun(
        criterion=review.criterion,
        command=f"review by {models or 'nobody: nothing was changed'}",
        passed=review.passes(attempt) is not False,
        output="\n".join(_lines(review, votes, against)),
        review=True,
    )


def _lines(review: Review, votes: Sequence[f.Vote], against: Sequence[f.Vote]) -> Iterator[str]:
    if review.votes > 1:
        yield f"{len(votes) - len(against)} of {len(votes)} votes found nothing; {review.threshold} must"
    found = list(dict.fromkeys(finding for vote in against for finding in vote.findings))
    for finding in found[:MOST_SHOWN]:
        yield f"{place(finding)}: {finding.problem}"
    if len(found) > MOST_SHOWN:
        yield f"and {len(found) - MOST_SHOWN} more findings"
    if discarded := sum(vote.discarded for vote in votes):
        yield f"({discarded} discarded: they named no line of the change)"


def review_failure(red: Sequence[f.CheckRun]) -> f.Failure:
    """The failure of a change that reviewers found fault with."""
    share = EVIDENCE // max(1, len(red))
    found = "\n\n".join(f"{check.criterion} ({check.command}):\n{check.output[:share]}" for check in red)
    names = ", ".join(check.criterion for check in red)
    return f.Failure(kind="check", summary=f"reviewers found faults: {names}", evidence=found)


# ---- what becomes of findings ---------------------------------------------------------------------------------------


def settled_by(state: RunState, id_: SubtaskId, patch: Patch) -> Iterator[f.FindingSettled]:
    """What a change that passed says about findings: those about its subtask, and those whose line it removes."""
    for number, finding in findings_of(state.subtasks[id_].attempts):
        now: f.FindingResult = "ignored" if _is_still_there(finding, patch) else "mended"
        if now != state.settled.get((id_, number, finding)):
            yield f.FindingSettled(subtask=id_, attempt=number, finding=finding, result=now)
    for (other, number, finding), before in state.settled.items():
        is_ignored = before == "ignored" and other != id_ and state.subtasks[other].landed is not None
        if is_ignored and finding.sign != "-" and finding.text in patch.lines(finding.file, "-"):
            yield f.FindingSettled(subtask=other, attempt=number, finding=finding, result="reverted")


def findings_of(attempts: Sequence[Attempt]) -> Iterator[tuple[int, f.Finding]]:
    """Every finding about these attempts, once for each attempt, with the attempt's number."""
    for attempt in attempts:
        if attempt.votes:
            for finding in dict.fromkeys(finding for vote in attempt.votes for finding in vote.findings):
                yield attempt.number, finding


def _is_still_there(finding: f.Finding, patch: Patch) -> bool:
    """Whether the change that passed still does what a finding names."""
    if finding.sign == " ":  # a line that the change had left as it was
        return finding.text not in patch.lines(finding.file, "-")
    return finding.text in patch.lines(finding.file, finding.sign)
