"""Landing in the order of the plan: what is done early waits, and what fails holds up what comes after it."""

from fleet.core.plans.limits import Policy
from fleet.core.state import facts as f
from tests.fleet.core.story import Story, failure, plan_of


def story(*names: str) -> Story:
    policy = Policy(in_order=True, publishes=False, backoff_first_s=0.1, max_attempts=9)
    return Story(policy, plan_of(*names, failure_action="retry"))


def members(told: Story) -> list[list[str]]:
    return [[member.subtask for member in batch.members] for batch in told.state.landing.open_batches]


def test_a_subtask_that_is_done_early_waits_for_those_before_it() -> None:
    told = story("a", "b", "c")
    told.work_is_done("c", "b")
    assert (told.state.landing.queue, members(told)) == (("b", "c"), [])
    told.work_is_done("a")
    assert members(told) == [["a", "b", "c"]]


def test_only_what_is_next_in_turn_is_tested() -> None:
    told = story("a", "b", "c")
    told.work_is_done("a", "c")
    assert members(told) == [["a"]]


def test_one_that_is_sent_back_holds_up_the_rest_until_it_comes_again() -> None:
    told = story("a", "b")
    told.work_is_done("b", "a")
    [batch] = told.state.landing.open_batches
    sent_back = f.Ejected(subtask="a", attempt=1, failure=failure("conflict"))
    told.happens(f.BatchTested(at=0, number=batch.number, tip=told.state.tip, ejected=(sent_back,)))
    assert (told.state.landing.queue, members(told)) == (("b",), [])
    told.time_passes(1)
    told.work_is_done("a")
    assert members(told) == [["a", "b"]]


def test_a_run_ends_where_all_that_is_done_waits_for_one_that_can_not_be_done() -> None:
    told = story("a", "b")
    told = Story(told.policy.model_copy(update={"max_attempts": 1, "answer_wait_s": 5.0}), told.state.plan)
    told.work_is_done("b")
    told.attempt_fails("a")
    assert (len(told.questions()), told.state.ending) == (1, None)
    told.time_passes(6)
    assert told.state.ending == "partial"


def test_a_run_without_a_result_branch_ends_as_landed_and_publishes_nothing() -> None:
    told = story("a")
    told.work_is_done("a")
    told.batch_lands()
    assert (told.state.ending, told.state.published, told.effects()) == ("landed", None, ())


def test_elsewhere_the_first_one_that_is_done_lands_first() -> None:
    told = Story(Policy(), plan_of("a", "b"))
    told.work_is_done("b")
    assert members(told) == [["b"]]
