"""Landing in the order of the plan: what is done early waits, and what fails holds up what comes after it."""

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from tests.fleet.core.story import Story, failure, plan_of


def story(*names: str) -> Story:
    policy = Policy(in_order=True, publishes=False, backoff_first_s=0.1, max_attempts=9)
    return Story(policy, plan_of(*names, failure_action="retry"))


def members(played: Story) -> list[list[str]]:
    return [[member.subtask for member in batch.members] for batch in played.state.landing.open_batches]


def test_a_subtask_that_is_done_early_waits_for_those_before_it() -> None:
    played = story("a", "b", "c")
    played.work_is_done("c", "b")
    assert (played.state.landing.queue, members(played)) == (("b", "c"), [])
    played.work_is_done("a")
    assert members(played) == [["a", "b", "c"]]


def test_only_what_is_next_in_turn_is_tested() -> None:
    played = story("a", "b", "c")
    played.work_is_done("a", "c")
    assert members(played) == [["a"]]


def test_one_that_is_sent_back_holds_up_the_rest_until_it_comes_again() -> None:
    played = story("a", "b")
    played.work_is_done("b", "a")
    [batch] = played.state.landing.open_batches
    sent_back = f.Ejected(subtask="a", attempt=1, failure=failure("conflict"))
    played.happens(f.BatchTested(at=0, number=batch.number, tip=played.state.tip, ejected=(sent_back,)))
    assert (played.state.landing.queue, members(played)) == (("b",), [])
    played.time_passes(1)
    played.work_is_done("a")
    assert members(played) == [["a", "b"]]


def test_a_run_ends_where_all_that_is_done_waits_for_one_that_can_not_be_done() -> None:
    played = story("a", "b")
    played = Story(played.policy.model_copy(update={"max_attempts": 1, "answer_wait_s": 5.0}), played.state.plan)
    played.work_is_done("b")
    played.attempt_fails("a")
    assert (len(played.questions()), played.state.ending) == (1, None)
    played.time_passes(6)
    assert played.state.ending == "partial"


def test_a_run_without_a_result_branch_ends_as_landed_and_publishes_nothing() -> None:
    played = story("a")
    played.work_is_done("a")
    played.batch_lands()
    assert (played.state.ending, played.state.published, played.effects()) == ("landed", None, ())
