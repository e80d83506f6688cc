"""What the engine needs of models that review changes: one review now, or several as a batch that may wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleet.core.base.ids import RunId
from fleet.core.base.usage import Cost
from fleet.core.plans.plan import Subtask
from fleet.core.state.facts import AskedVote, Failure, Vote
from fleet.core.verdicts.oddities import Patch
from fleet.ports.agents import Meter, ModelUse


@dataclass(frozen=True, slots=True)
class ReviewBrief:
    """Everything that a reviewer gets: never what the worker says about its work."""

    run: RunId
    subtask: Subtask
    attempt: int
    asked: AskedVote
    patch: Patch
    """The change. Untrusted."""


@dataclass(frozen=True, slots=True)
class BatchResults:
    """What a batch brought. A review that it does not name brought no answer."""

    votes: tuple[Vote, ...]
    uses: tuple[ModelUse, ...]
    """What was paid for, whether or not it was an answer."""


@dataclass(frozen=True, slots=True)
class BatchFound:
    """What was found of a batch of which we don't know whether it was sent."""

    batch: str | None
    is_open: bool = False
    """If none was found: whether one that is still worked on may be it."""


class Reviewer(Protocol):
    def model(self, named: str | None, worker: str | None) -> str:
        """The model that reviews what a worker's model did: another one, if there is any."""
        ...

    def too_large(self, patch: Patch) -> str | None:
        """Why a change can't be reviewed as a whole; None if it can."""
        ...

    async def review(self, brief: ReviewBrief, meter: Meter) -> Vote | Failure:
        """One review, now."""
        ...

    def most(self, briefs: Sequence[ReviewBrief]) -> Cost:
        """The most that these reviews may cost as a batch."""
        ...

    async def send(self, briefs: Sequence[ReviewBrief]) -> str | Failure:
        """Ask for reviews as a batch: its name. A failure without a status may have arrived nevertheless."""
        ...

    async def find(self, asked: Sequence[AskedVote], since: float) -> BatchFound | Failure:
        """Look for the batch of these reviews, if it was sent, which was at this time or later."""
        ...

    async def collect(self, batch: str, briefs: Mapping[str, ReviewBrief]) -> BatchResults | Failure | None:
        """What a batch brought; None while the service still works on it. `briefs` by their ids."""
        ...
