"""Who let a plan begin, as a report tells it: what was said of it, by whom, when, and what waits for a word."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.core.approval import awaited, in_words, stopped_by
from fleet.core.ids import SubtaskId
from fleet.core.policy import Reviewing
from fleet.core.state import RunState


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody, or the rules, said of a version of the plan."""

    version: int
    rejected: bool
    by: str
    automatic: bool
    at: float
    """The time of day, not of work: that is what one asks afterwards."""
    subtasks: tuple[SubtaskId, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Reviewed:
    """How the plan was let begin: who was to look at it, by which rules, and what was said."""

    by: Reviewing | None
    """None: a run from before there were rules."""
    rules: Sequence[str]
    words: Sequence[Word]
    waiting: Mapping[SubtaskId, Sequence[str]]
    """What waits for a word, and why the rules don't let it pass."""


def reviewed(state: RunState) -> Reviewed:
    return Reviewed(
        by=state.policy.reviewing,
        rules=in_words(state.policy.rules),
        words=[Word(r.version, r.rejected, r.by, r.automatic, r.at, r.subtasks, r.why) for r in state.reviews],
        waiting={id_: stopped_by(state, id_) for id_ in awaited(state)},
    )
