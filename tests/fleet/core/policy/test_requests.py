"""Requests of people: accepted when they make sense now, refused with the reason when not."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.policy.requests import REQUEST, Request, request_problem
from tests.fleet.core.story import Story, connected, plan_of

WHO = "ada"


@pytest.fixture
def story() -> Story:
    """One subtask landed, one escalated with a question, one running, one waiting."""
    story = Story(
        Policy(max_attempts=1, review=True), plan_of("merged", "escalated", "running", "waiting needs running")
    )
    story.happens(f.PlanApproved(at=0, version=0, by=WHO))
    story.attempt_fails("escalated")
    story.landed("merged")
    return story


def retry(subtask: str) -> f.RetryRequested:
    return f.RetryRequested(at=0, subtask=subtask, guidance="", by=WHO)


def told(subtask: str, text: str = "use UTC") -> f.InstructionGiven:
    return f.InstructionGiven(at=0, subtask=subtask, text=text, by=WHO)


def answer(question: str, text: str = "yes") -> f.QuestionAnswered:
    return f.QuestionAnswered(at=0, question=question, answer=text, by=WHO)


@pytest.mark.parametrize(
    "request_",
    [
        answer("q1"),
        retry("escalated"),
        told("escalated"),
        told("running"),
        told("waiting"),
        f.Paused(at=0, by=WHO),
        f.Unpaused(at=0, by=WHO),
        f.DrainRequested(at=0, by=WHO),
        f.CancelRequested(at=0, by=WHO),
        f.LimitsChanged(at=0, by=WHO, workers=1000, budget_dollars=0.01),
    ],
    ids=lambda request: request.kind,
)
def test_what_makes_sense_is_accepted(story: Story, request_: Request) -> None:
    assert request_problem(story.state, request_) is None
    story.happens(request_)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (answer("q7"), "unknown question 'q7'"),
        (answer("q1", " \n"), "the answer is empty"),
        (retry("escalatd"), "unknown subtask 'escalatd'; did you mean 'escalated'?"),
        (told("runing"), "unknown subtask 'runing'; did you mean 'running'?"),
        (told("running", "\n"), "the instruction is empty"),
        (told("running", "x" * 8_001), "the instruction has 8,001 characters, and the limit is 8,000"),
        (told("merged"), "merged has landed, so no attempt would read this instruction"),
        (retry("merged"), "merged is merged. Only a failed subtask can be retried"),
        (retry("running"), "running is running"),
        (retry("waiting"), "waiting is waiting"),
        (f.PlanApproved(at=0, version=0, by=WHO), "no subtask is waiting for approval"),
        (f.PlanApproved(at=0, version=3, by=WHO), "the plan is at version 0 now, not 3"),
        (f.LimitsChanged(at=0, by=WHO, workers=0), "workers must be between 1 and 1000"),
        (f.LimitsChanged(at=0, by=WHO, workers=1001), "workers must be between 1 and 1000"),
        (f.LimitsChanged(at=0, by=WHO, budget_dollars=0), "a budget must be greater than 0"),
        (f.LimitsChanged(at=0, by=WHO, budget_minutes=-1), "a budget must be greater than 0"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(story: Story, request_: Request, why: str) -> None:
    assert why in (request_problem(story.state, request_) or "accepted")


def test_a_question_is_answered_once(story: Story) -> None:
    story.happens(answer("q1", "use sqlite"))
    assert request_problem(story.state, answer("q1")) == "q1 is already answered: use sqlite"


def test_a_plan_that_is_not_there_yet_can_not_be_approved() -> None:
    story = Story(Policy(review=True))
    assert (
        request_problem(story.state, f.PlanApproved(at=0, version=0, by=WHO))
        == "can't approve the plan before it exists"
    )


@pytest.mark.parametrize("kind", [f.Paused, f.DrainRequested, f.CancelRequested])
def test_an_ended_run_can_not_be_stopped(story: Story, kind: type[f.Paused]) -> None:
    story.happens(f.CancelRequested(at=0, by=WHO))
    assert story.state.ended
    assert request_problem(story.state, kind(at=0, by=WHO)) == "r has already ended (cancelled)"


def test_an_ended_run_has_nothing_to_approve(story: Story) -> None:
    story.happens(f.CancelRequested(at=0, by=WHO))
    assert request_problem(story.state, f.PlanApproved(at=0, version=0, by=WHO)) == "r has already ended (cancelled)"


def test_what_was_skipped_may_be_tried_after_all() -> None:
    story = Story(plan=plan_of("a", "b", failure_action="skip"))
    story.attempt_fails("a")
    assert request_problem(story.state, retry("a")) is None
    story.happens(retry("a"))
    assert story.status("a") == "running"


def test_a_request_survives_the_inbox_as_itself() -> None:
    for request in (answer("q1"), retry("a"), f.LimitsChanged(at=1, by=WHO, workers=3)):
        assert REQUEST.validate_json(request.model_dump_json()) == request


# ---- nodes


@pytest.fixture
def with_nodes() -> Story:
    """One connected, one lost, one banned, and one of the configuration that was not tried yet."""
    offers = {"": MachineOffer(), "well": MachineOffer(), "later": MachineOffer()}
    story = Story(Policy(machines=Machines(offers=offers)), plan_of("a"))
    story.happens(
        connected("well"),
        f.NodeLost(at=0, node="lost", why="no route"),
        f.NodeLost(at=0, node="liar", why="it is not used any more: a pack bomb", banned=True),
        f.NodeDrained(at=0, node="lost", by=WHO),
    )
    return story


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (f.NodeDrained(at=0, node="well", by=WHO), None),
        (f.NodeDrained(at=0, node="later", by=WHO), None),
        (f.NodeDrained(at=0, node="wel", by=WHO), "unknown node 'wel' in r; did you mean 'well'?"),
        (f.NodeDrained(at=0, node="lost", by=WHO), "node lost is already drained"),
        (f.NodeUndrained(at=0, node="lost", by=WHO), None),
        (f.NodeUndrained(at=0, node="well", by=WHO), "node well is not drained"),
        (f.NodeAddRequested(at=0, node="new", by=WHO), None),
        (f.NodeAddRequested(at=0, node="lost", by=WHO), None),
        (f.NodeAddRequested(at=0, node="well", by=WHO), "node well is already in use"),
        (f.NodeAddRequested(at=0, node="liar", by=WHO), "is banned from this run: it is not used any more"),
    ],
)
def test_a_request_about_a_node_has_to_make_sense(with_nodes: Story, request_: Request, why: str | None) -> None:
    problem = request_problem(with_nodes.state, request_)
    assert (problem is None) if why is None else why in (problem or "")
    if why is None:
        with_nodes.happens(request_)


def test_nodes_of_a_run_that_has_ended_are_no_one_s_concern(with_nodes: Story) -> None:
    with_nodes.happens(f.RunEnded(at=0, ending="failed", why="so"))
    problem = request_problem(with_nodes.state, f.NodeDrained(at=0, node="well", by=WHO))
    assert "already ended" in (problem or "")
