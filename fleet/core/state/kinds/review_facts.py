"""Facts about reviews of changes by models that did not make them: votes, their findings, what became of these."""

from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.plans.plan import Shape
from fleet.core.state.kinds.fact_parts import Happened

FindingResult = Literal[
    "mended",  # a later attempt at the subtask passed without the line that it names
    "ignored",  # the work passed with that line
    "reverted",  # the work passed with that line, and the change of a later subtask removed it
]


class Finding(Shape):
    """One fault that a reviewer names. Untrusted."""

    file: str
    line: int
    """In the file as the change leaves it, or in the file before it for a line that the change removes."""
    problem: str
    text: str = ""
    """The line of the diff that it names."""
    sign: Literal["+", "-", " "] = "+"
    """Whether the change adds that line, removes it or leaves it."""


class Vote(Shape):
    """One review of a change: it approves if it has no findings."""

    criterion: str
    looks_for: str
    """What the reviewer was asked to look for."""
    vote: int
    """Its number, from 1."""
    model: str
    findings: tuple[Finding, ...] = ()
    """Each names a line of the diff."""
    discarded: int = 0
    """How many findings named no line of the diff, and do not count."""


class AskedVote(Shape):
    """A review that a batch was asked for."""

    id: str
    """Its name in the batch, which no other review of any run has."""
    criterion: str
    looks_for: str
    vote: int
    model: str


class FindingSettled(Shape):
    """What became of one finding."""

    subtask: SubtaskId
    """The subtask whose change it is about."""
    attempt: int
    finding: Finding
    result: FindingResult


class ReviewBatched(Happened):
    """Reviews go to the models' service as a batch: first without its name, before it is sent, and then with it."""

    kind: Literal["review_batched"] = "review_batched"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    asked: tuple[AskedVote, ...]
    """The reviews, each of which is one vote."""
    cost: Cost
    """The most that it may cost."""
    batch: str = ""
    """The service's name for it; empty: it is about to be sent."""


class ReviewUnbatched(Happened):
    """The service took no batch: its reviews are asked for one by one, at the full price."""

    kind: Literal["review_unbatched"] = "review_unbatched"
    subtask: SubtaskId
    number: int
    why: str


class ReviewVoted(Happened):
    """Reviews of a change are there: one, or all that a batch brought, which is over then."""

    kind: Literal["review_voted"] = "review_voted"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    votes: tuple[Vote, ...]
    """What they found."""
    batch: str = ""
    """The batch that they came with."""


class FindingsSettled(Happened):
    """An attempt passed: what became of the findings about its subtask, and about the lines that it removes."""

    kind: Literal["findings_settled"] = "findings_settled"
    subtask: SubtaskId
    number: int
    """The attempt's number."""
    settled: tuple[FindingSettled, ...]
    """Findings whose result is new."""


ReviewFact = ReviewBatched | ReviewUnbatched | ReviewVoted | FindingsSettled
