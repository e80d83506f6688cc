"""What a resumed run asks of git, and what follows from the answer for its subtasks."""

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.engine.loop import UNWRITTEN_S, loss, named
from fleet.ports.worktrees import RecoveredCommits
from tests.fleet.core.story import Story, plan_of

WENT_BACK = RecoveredCommits(Sha("l-a"), below=frozenset({Sha("l-a")}), gone=frozenset({Sha("l-b")}))


def halfway() -> Story:
    """`a` and `b` landed one by one, `c` waits for its batch, `d` is being worked on."""
    story = Story(Policy(batch=1), plan_of("a", "b", "c", "d"))
    for id_ in ("a", "b"):
        story.work_is_done(id_)
        [probe] = story.state.landing.open_batches
        landed = (f.Member(subtask=id_, attempt=1, commit=f"l-{id_}", tested=True),)
        story.happens(f.BatchTested(at=0.0, number=probe.number, tip=f"l-{id_}", landed=landed))
    story.is_published()
    story.work_is_done("c")
    return story


def test_all_that_a_run_rests_on_is_named() -> None:
    state = halfway().state
    asked = named(state)
    assert asked.attempts == {("a", 1): "c-a", ("b", 1): "c-b", ("c", 1): "c-c"}
    assert asked.landed == ("l-a", "l-b")
    assert asked.underway == {("c", 1), ("d", 1)}
    assert (asked.tip, asked.published) == ("l-b", "l-b")
    assert asked.written_since == state.last_at - UNWRITTEN_S


def test_an_engine_that_stopped_properly_leaves_no_doubt() -> None:
    story = halfway()
    story.happens(f.EngineStopped(at=1.0, why="drained"))
    assert named(story.state).written_since is None


def test_where_all_is_there_nothing_happened() -> None:
    assert loss(halfway().state, RecoveredCommits(Sha("l-b")), 1.0) is None


def test_a_branch_that_went_back_brings_back_what_stood_above() -> None:
    fact = loss(halfway().state, WENT_BACK, 1.0)
    assert fact is not None
    assert (fact.tip, fact.reland, fact.redo, fact.commits) == ("l-a", ("b",), (), ("l-b",))


def test_work_that_began_on_a_lost_tip_begins_again() -> None:
    story = halfway()
    story.time_passes(1.0)
    started = f.AttemptStarted(at=1.0, subtask="d", number=2, worker="coder", model=None, base="l-b", strategy="retry")
    story.happens(f.AttemptFailed(at=1.0, subtask="d", number=1, failure=f.Failure(kind="transient", summary="")))
    story.happens(started)
    fact = loss(
        story.state, RecoveredCommits(Sha("l-a"), below=frozenset({Sha("l-a")}), gone=frozenset({Sha("l-b")})), 1.0
    )
    assert fact is not None
    assert (fact.reland, fact.redo) == (("b",), ("d",))


def test_lost_work_is_done_again_whether_it_had_landed_or_not() -> None:
    fact = loss(halfway().state, RecoveredCommits(Sha("base"), gone=frozenset(map(Sha, ("l-b", "c-b", "c-c")))), 1.0)
    assert fact is not None
    assert (fact.reland, fact.redo) == (("a",), ("b", "c"))


def test_an_attempt_that_landed_may_be_gone_as_long_as_the_branch_stands() -> None:
    fact = loss(halfway().state, RecoveredCommits(Sha("l-b"), gone=frozenset({Sha("c-a")})), 1.0)
    assert fact is not None
    assert (fact.reland, fact.redo, fact.tip) == ((), (), "l-b")


def test_a_result_branch_that_is_gone_is_noticed() -> None:
    fact = loss(halfway().state, RecoveredCommits(Sha("l-b"), shown=False), 1.0)
    assert fact is not None
    assert fact.unpublished
