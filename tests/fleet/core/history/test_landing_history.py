"""What git lost and the journal names is taken back, and done again: no human is needed, no attempt used up."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.effects import Publish
from tests.fleet.core.pretend import attempt_at
from tests.fleet.core.story import Story, plan_of


def lost(story: Story, tip: str, **more: object) -> None:
    story.happens(f.WorkLost.model_validate({"at": story.now, "tip": tip, **more}))


def given_two_that_landed() -> Story:
    """`b` is based on `a`, and `c` waits for both."""
    story = Story(Policy(batch=1), plan_of("a", "b needs a", "c needs a b"))
    story.landed("a")
    story.landed("b")
    return story


def test_work_that_is_whole_lands_again_without_a_new_attempt() -> None:
    story = given_two_that_landed()
    assert story.state.commits == 2
    lost(story, "tip-1", commits=("tip-2",), reland=("b",))
    assert (story.state.tip, story.state.commits, story.status("b")) == ("tip-1", 1, "landing")
    assert [member.subtask for probe in story.state.landing.open_batches for member in probe.members] == ["b"]
    story.batch_lands()
    assert (story.status("b"), story.state.commits, len(story.of("b").attempts)) == ("merged", 2, 1)


def test_lost_work_is_repeated_and_uses_up_no_attempt() -> None:
    story = given_two_that_landed()
    lost(story, "tip-1", commits=("c-b", "tip-2"), redo=("b",))
    assert story.of("b").attempts[0].commit is None
    assert (story.of("b").counted, story.state.open_questions()) == (0, [])
    story.time_passes_to_the_next_wake()
    assert attempt_at("b", 2) in story.effects()
    story.landed("b")
    assert [incident.recovered for incident in story.state.incidents] == [True]
    assert story.status("c") == "running"


def test_a_suspicion_on_a_lost_tip_ends() -> None:
    story = Story(Policy(batch=2), plan_of("a", "b", "c"))
    story.work_is_done("a", "b")
    number = story.state.landing.open_batches[0].number
    red = f.CheckRun(criterion="gate", command="make", passed=False, exit_code=1)
    story.happens(f.BatchTested(at=0.0, number=number, tip="", red=True, suspects=("a", "b"), checks=(red,)))
    lost(story, story.state.tip, commits=("c-b",), redo=("b",))
    assert story.state.landing.suspects == ()
    assert [member.subtask for probe in story.state.landing.open_batches for member in probe.members] == ["a"]


def test_a_result_branch_that_is_gone_is_published_again() -> None:
    story = given_two_that_landed()
    assert Publish(story.state.tip) not in story.effects()
    lost(story, story.state.tip, unpublished=True)
    assert Publish(story.state.tip) in story.effects()


def test_lost_unfinished_work_is_not_shown_to_the_next_attempt() -> None:
    story = Story(plan=plan_of("a"))
    failure = f.Failure(kind="check", summary="red")
    story.happens(f.AttemptFailed(at=0.0, subtask="a", number=1, failure=failure, commit="k-a"))
    lost(story, story.state.tip, commits=("k-a",))
    assert (story.of("a").attempts[0].commit, story.of("a").attempts[0].kept) == (None, False)
