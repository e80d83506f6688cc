"""What a rehearsal for real says of its commits: who did what, what history's tests say, and what it cost."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.features.rehearse.rehearsal_view import PastTasksView, past_tasks_view
from tests.fleet.core.story import Story, plan_of

TASKS = (
    f.PastTask(subtask="a", commit="a" * 40, parent="0" * 40, tests=("tests/a.py",)),
    f.PastTask(subtask="b", commit="b" * 40, parent="a" * 40, tests=("tests/b.py",)),
    f.PastTask(subtask="c", commit="c" * 40, parent="b" * 40),
)
OUT = f.LeftOut(commit="d" * 40, title="Break it", why="the gate fails on it")
REHEARSAL = f.Rehearsal(for_real=True, head="d" * 40, tasks=TASKS, left_out=(OUT,))


class RealStory(Story):
    """A story of a rehearsal for real."""

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.facts[0]
        assert isinstance(first, f.RunStarted)
        self._state = evolve(None, first.model_copy(update={"rehearsal": REHEARSAL}))
        self.facts = []
        self.happens(f.EngineStarted(at=0.0, epoch=1, pid=1, host="here", version="1"))

    def lands(self, id_: str) -> None:
        """A result lands, in whatever batch it is tested."""
        self.work_is_done(id_)
        while self.state.landing.open_batches:
            self.batch_lands()


@pytest.fixture
def story() -> RealStory:
    return RealStory(plan=plan_of("a", "b", "c"))


def scored(id_: str, *, passed: bool, **more: object) -> f.ResultScored:
    return f.ResultScored.model_validate({"at": 9.0, "subtask": id_, "commit": "e" * 40, "passed": passed, **more})


def view(story: Story) -> PastTasksView:
    return past_tasks_view(story.state, 10.0)


def test_every_attempt_starts_from_the_parent_of_its_commit(story: RealStory) -> None:
    assert [story.current(task.subtask).base for task in TASKS] == [task.parent for task in TASKS]
    story.lands("a")
    story.attempt_fails("b", "transient")
    story.time_passes(100.0)
    assert story.current("b").base == "a" * 40, "whatever has landed meanwhile"


def test_landed_and_passing_are_counted_apart(story: RealStory) -> None:
    for task in TASKS:
        story.lands(task.subtask)
    story.happens(scored("a", passed=True), scored("b", passed=False, lost=("tests/b.py::test_b",)))
    seen = view(story)
    assert (seen.tried, seen.landed, seen.with_tests, seen.passed) == (3, 3, 2, 1)
    assert (seen.by_gate, seen.by_gate_landed) == (1, 1)
    assert [each.passed for each in seen.redone] == [True, False, None]
    assert seen.redone[1].why == "tests are missing: tests/b.py::test_b"
    assert [each.title for each in seen.left_out] == ["Break it"]


def test_what_could_not_be_judged_counts_as_neither(story: RealStory) -> None:
    story.lands("a")
    story.happens(scored("a", passed=False, failure=f.Failure(kind="infrastructure", summary="the disk is full")))
    [first, *_] = view(story).redone
    assert (first.landed, first.passed, first.why) == (True, None, "could not run the original tests: the disk is full")


def test_costs_are_by_the_worker_that_did_it_last_and_unknown_where_one_price_is(story: RealStory) -> None:
    story.model_is_called("a", 0.5)
    story.model_is_called("b", 0.25)
    story.lands("a")
    by_model = {score.model: score for score in view(story).workers}
    assert (by_model["m"].worker, by_model["m"].commits, by_model["m"].landed, by_model["m"].dollars) == (
        "coder",
        2,
        1,
        0.75,
    )
    assert (view(story).dollars, view(story).dollars_each) == (0.75, 0.25)
    story.model_is_called("c", None)
    assert (view(story).dollars, view(story).dollars_each) == (None, None)


def test_a_commit_that_was_not_tried_counts_nowhere() -> None:
    seen = view(RealStory(plan=plan_of("a", "b", "c"), policy=Policy(workers=1)))
    assert (seen.tried, [each.tried for each in seen.redone]) == (1, [True, False, False])
    assert (seen.with_tests, seen.by_gate) == (1, 0)
