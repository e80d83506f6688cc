"""What a worker is told of earlier attempts, and what its verdict rests on."""

from fleet.checking import Gate
from fleet.core import facts as f
from fleet.core.commands import VerifyAttempt
from fleet.core.evolve import evolve
from fleet.perform import Performer
from fleet.ports import Planner
from fleet.world import World
from tests.fleet.hands import Book, Clock, PaperHands, queued


class Nobody:
    async def plan(self, *_: object) -> f.Failure | None:
        raise AssertionError("nobody plans here")


def performer(book: Book, hands: PaperHands | None = None) -> Performer:
    hands = hands or PaperHands()
    planner: Planner = Nobody()
    world = World(
        planner=planner,
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


def finished(*paths: str) -> Book:
    """`a` is to be verified; its check runs one test file."""
    book = queued("a", check="pytest tests/test_a.py")
    retry = f.Failure(kind="transient", summary="once more")
    for fact in (
        f.AttemptFailed(at=1.0, subtask="a", number=1, failure=retry),
        f.RemedyChosen(at=1.0, subtask="a", number=1, remedy="retry"),
        f.AttemptStarted(at=1.0, subtask="a", number=2, worker="coder", model=None, base="base", strategy="retry"),
        f.AttemptCommitted(
            at=1.0,
            subtask="a",
            number=2,
            commit="base a",
            paths=paths,
            report=f.Report(status="done", summary="did it"),
        ),
    ):
        book.state = evolve(book.state, fact)
    return book


async def test_a_change_to_the_tests_that_judge_it_is_refused_before_anything_is_run() -> None:
    book = finished("src/a.py", "tests/test_a.py")
    hands = PaperHands(files=("src/a.py", "tests/test_a.py"))
    await performer(book, hands)(VerifyAttempt("a", 2))
    failure = book.state.subtasks["a"].attempts[1].failure
    assert failure is not None
    assert (failure.kind, failure.summary) == ("bounds", "changes the tests that its own checks run")
    assert failure.evidence.startswith("tests/test_a.py\n")
    assert hands.ran == []


async def test_a_test_that_the_worker_brings_along_is_its_own() -> None:
    book = finished("src/a.py", "tests/test_a.py")
    await performer(book, PaperHands(files=("src/a.py",)))(VerifyAttempt("a", 2))
    assert book.state.subtasks["a"].attempts[1].verified


async def test_a_flaky_check_is_no_success_of_a_workers_own() -> None:
    book = finished("src/a.py")
    await performer(book, PaperHands(passes=lambda _, __, time: time > 1))(VerifyAttempt("a", 2))
    failure = book.state.subtasks["a"].attempts[1].failure
    assert failure is not None
    assert failure.kind == "check"
    assert "failed, then passed when it was run again: flaky" in failure.evidence
