"""What a worker is told of earlier attempts."""

from fleet.checking import Gate
from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.perform import Performer, World
from fleet.ports import Planner
from tests.fleet.hands import Book, Clock, PaperHands, queued


class Nobody:
    async def plan(self, *_: object) -> f.Failure | None:
        raise AssertionError("nobody plans here")


def performer(book: Book) -> Performer:
    hands, planner = PaperHands(), Nobody()
    plans: Planner = planner
    world = World(
        planner=plans,
        workers={},
        descriptions={},
        worktrees=hands,
        integrator=hands,
        clock=Clock(),
        gate=Gate(),
    )
    return Performer(book, world)


def failed(kind: f.FailureKind) -> Book:
    book = queued("a")
    failure = f.Failure(kind=kind, summary="it failed", evidence="both sides " * 1000)
    book.state = evolve(book.state, f.AttemptFailed(at=1.0, subtask="a", number=1, failure=failure))
    return book


async def test_work_that_did_not_merge_is_shown_beside_what_it_met() -> None:
    book = failed("conflict")
    told = await performer(book)._told(book.state.subtasks["a"].attempts[0])
    assert told is not None
    assert told.evidence.startswith("both sides")
    assert told.evidence.endswith("What that attempt changed:\n\nfrom base to base a")
    assert len(told.evidence) < 6_000


async def test_of_other_failures_only_their_evidence_is_shown() -> None:
    book = failed("check")
    attempt = book.state.subtasks["a"].attempts[0]
    assert await performer(book)._told(attempt) is attempt.failure
