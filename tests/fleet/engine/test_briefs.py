"""What agents learn before they start: earlier attempts and the repository's notes; and what a verdict rests on."""

from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.engine.adapters import Adapters
from fleet.engine.briefs import NOTES_LIMIT, WorkerBriefs, layout, planner_notes, worker_notes
from fleet.engine.checks import Gate
from fleet.engine.internal_errors import Advice
from fleet.engine.perform import Performer
from fleet.ports.agents import Planner
from tests.fleet.core.pretend import checks_of, subtask_of
from tests.fleet.eyes import Files
from tests.fleet.fakes import RealClock
from tests.fleet.hands import Book, Clock, PaperHands, queued


class Nobody:
    async def plan(self, *_: object) -> f.Failure | None:
        raise AssertionError("no planner is called here")


def performer(book: Book, hands: PaperHands | None = None) -> Performer:
    hands = hands or PaperHands()
    planner: Planner = Nobody()
    world = Adapters(
        planner=planner,
        workers={},
        descriptions={},
        worktrees=hands,
        commits=hands,
        integrator=hands,
        publish=hands.publish,
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
    shown = await WorkerBriefs(book, PaperHands(), Advice(book, RealClock())).failure_of(
        subtask_of(book.state, "a").attempts[0]
    )
    assert shown is not None
    assert shown.evidence.startswith("both sides")
    assert shown.evidence.endswith("The change of that attempt:\n\nfrom base to base a")
    assert len(shown.evidence) < 6_000


async def test_of_other_failures_only_their_evidence_is_shown() -> None:
    book = failed("check")
    attempt = subtask_of(book.state, "a").attempts[0]
    assert await WorkerBriefs(book, PaperHands(), Advice(book, RealClock())).failure_of(attempt) is attempt.failure


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
    await performer(book, hands)(checks_of("a", 2))
    failure = subtask_of(book.state, "a").attempts[1].failure
    assert failure is not None
    assert (failure.kind, failure.summary) == ("bounds", "changes the tests that its own checks run")
    assert failure.evidence.startswith("tests/test_a.py\n")
    assert hands.ran == []


async def test_a_test_that_the_worker_brings_along_is_its_own() -> None:
    book = finished("src/a.py", "tests/test_a.py")
    await performer(book, PaperHands(files=("src/a.py",)))(checks_of("a", 2))
    assert subtask_of(book.state, "a").attempts[1].verified


async def test_a_flaky_check_of_a_worker_does_not_count_as_a_success() -> None:
    book = finished("src/a.py")
    await performer(book, PaperHands(passes=lambda _, __, time: time > 1))(checks_of("a", 2))
    failure = subtask_of(book.state, "a").attempts[1].failure
    assert failure is not None
    assert failure.kind == "check"
    assert "failed, then passed in a second run: flaky" in failure.evidence


# ---- notes of the repository


async def test_the_planner_reads_agents_and_one_readme_and_a_worker_agents_alone() -> None:
    repository = Files({"README.rst": "hi", "README": "old", "AGENTS.md": "x" * (NOTES_LIMIT + 1)})
    notes = await planner_notes(repository)
    assert list(notes) == ["AGENTS.md", "README.rst"]
    assert notes["AGENTS.md"] == NOTES_LIMIT
    assert len(await worker_notes(repository)) == NOTES_LIMIT


async def test_a_repository_without_words_says_nothing() -> None:
    assert await planner_notes(Files({})) == {}
    assert await worker_notes(Files({})) == ""


def test_a_layout_names_the_files_of_each_folder_the_shallow_ones_first() -> None:
    paths = ["src/deep/er/c.py", "README.md", "src/b.py", "src/a.py"]
    assert layout(paths) == "./: README.md\nsrc/: a.py b.py\nsrc/deep/er/: c.py"


def test_a_layout_of_many_files_stays_short_and_counts_what_it_does_not_name() -> None:
    paths = [f"part{number % 7}/folder{number % 100}/module{number}.py" for number in range(5_000)]
    text = layout(paths, 2_000)
    assert len(text) <= 2_000
    assert text.endswith(" files")
    assert layout([]) == ""
