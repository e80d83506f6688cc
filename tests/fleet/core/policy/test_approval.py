"""What of a plan may begin: by a person's word or by the rules, in part, and again when it changes."""

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy, Reviewing, ReviewRules
from fleet.core.plans.plan import Estimate, Plan
from fleet.core.policy.planner_view import planner_state
from fleet.core.policy.requests import (
    fact_of,
    is_being_revised,
    may_overlap,
    objections,
    request_problem,
    rule_objections,
    rules_text,
    waiting_for_approval,
)
from tests.fleet.core.story import WHO, Story, plan_of


def reviewed(*lines: str, by: Reviewing = "auto", rules: ReviewRules | None = None, **risks: str) -> Story:
    plan = plan_of(*lines)
    risky = [spec.model_copy(update={"risk": risks.get(spec.id, "low")}) for spec in plan.subtasks]
    rules = rules or ReviewRules(max_risk="medium")
    policy = Policy(review=by == "human", reviewing=by, rules=rules, answer_wait_s=600)
    return Story(policy, Plan(goal="the epic", subtasks=tuple(risky)))


def says(story: Story, *ids: str) -> None:
    part = ids or None
    request = f.PlanApproved(at=story.now, version=story.state.plan.version, by=WHO, subtasks=part)
    assert request_problem(story.state, request) is None
    story.happens(request)


def rejects(story: Story, reason: str, *ids: str) -> None:
    request = f.PlanRejected(
        at=story.now, version=story.state.plan.version, by=WHO, reason=reason, subtasks=ids or None
    )
    assert request_problem(story.state, request) is None
    story.happens(request)


def test_the_rules_approve_a_small_subtask_and_a_risky_one_waits_while_the_rest_continues() -> None:
    story = reviewed("a", "b", "c needs b", b="high")
    assert story.statuses() == {"a": "running", "b": "ready", "c": "waiting"}
    [approval] = story.facts_of(f.PlanApproved)
    assert approval.subtasks == ("a", "c")
    assert approval.automatic
    story.landed("a")
    assert not story.state.ended
    says(story)
    assert story.status("b") == "running"


def test_nothing_of_a_first_plan_begins_before_a_person_approves_it() -> None:
    story = reviewed("a", "b", by="human")
    story.time_passes(1_000_000)
    assert not story.facts_of(f.AttemptStarted)
    assert not story.state.ended
    says(story)
    assert set(story.statuses().values()) == {"running"}


def test_a_part_is_approved_and_the_rest_keeps_waiting_for_a_person() -> None:
    story = reviewed("a", "b", by="human")
    says(story, "a")
    assert story.statuses() == {"a": "running", "b": "ready"}
    assert waiting_for_approval(story.state) == ("b",)
    story.landed("a")
    assert not story.state.ended
    says(story, "b")
    assert story.status("b") == "running"


def test_a_change_of_an_approved_plan_is_looked_at_by_the_rules() -> None:
    story = reviewed("a", "b", by="human")
    says(story)
    story.attempt_fails("a")
    risky = plan_of("risky", risk="high").subtasks
    story.planner_answers(add=(*plan_of("small").subtasks, *risky), drop=[{"id": "a", "why": "w"}])
    assert story.status("small") == "running"
    assert story.status("risky") == "ready"
    assert waiting_for_approval(story.state) == ("risky",)


def test_a_subtask_that_was_approved_waits_again_when_it_becomes_riskier() -> None:
    story = reviewed("a", "b needs a")
    story.attempt_fails("a")
    story.planner_answers(revise=[{"id": "a", "risk": "high"}])
    assert waiting_for_approval(story.state) == ("a",)
    assert story.status("a") == "ready"


def test_a_rejection_goes_to_the_planner_whose_revision_waits_again() -> None:
    story = reviewed("a", "b", by="human")
    rejects(story, "deploy at two in the morning")
    assert story.state.planning.open is not None
    [question] = planner_state(story.state, 0)["questions"]
    assert "deploy at two in the morning" in str(question["answer"])
    story.planner_answers(revise=[{"id": "a", "goal": "at two in the morning"}])
    assert not story.facts_of(f.AttemptStarted)
    assert waiting_for_approval(story.state) == ("a", "b")
    says(story)
    assert set(story.statuses().values()) == {"running"}


def test_the_rules_do_not_let_pass_what_a_person_rejected() -> None:
    story = reviewed("a", "b", b="high")
    rejects(story, "too wide", "b")
    story.planner_answers(revise=[{"id": "b", "risk": "medium"}])
    assert story.status("b") == "running"  # it is another one now, and passes
    story = reviewed("a", "b needs a", by="human")
    says(story, "a")
    story.attempt_fails("a")
    story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
    assert waiting_for_approval(story.state) == ("b",)  # as it was, when it was left out


def test_without_a_reviewer_a_run_that_only_waits_ends_and_can_continue() -> None:
    story = reviewed("a", "b", b="high")
    story.landed("a")
    for _ in range(3):  # the first wakes are for news that settles
        story.time_passes_to_the_next_wake()
        if story.state.ended:
            break
    assert story.state.ending == "partial"
    assert story.state.ending_why == "no one approved b"
    story.happens(f.RunReopened(at=story.now, by=WHO))
    assert not story.state.ended
    says(story, "b")
    assert story.status("b") == "running"


@pytest.mark.parametrize(
    ("update", "rules", "said"),
    [
        ({"risk": "medium"}, {}, ()),
        ({"risk": "medium"}, {"max_risk": "low"}, ("its risk is medium",)),
        ({"touches": ("src/db/schema.py",)}, {"paths": ("src/db/**",)}, ("it may change src/db/**",)),
        ({"touches": ("src/**",)}, {"paths": ("src/db/schema.py",)}, ("it may change src/db/schema.py",)),
        ({"touches": ("docs/**",)}, {"paths": ("src/db/**",)}, ()),
        ({"touches": ()}, {"paths": ("src/db/**",)}, ("it lists no paths, so it may change any file",)),
        ({"worker": "deployer"}, {"workers": ("deployer",)}, ("its worker is deployer",)),
        ({"estimate": Estimate(dollars=3)}, {"max_dollars": 2}, ("it may cost $3.00",)),
        ({"estimate": Estimate(dollars=1)}, {"max_dollars": 2}, ()),
        ({}, {"max_dollars": 2}, ("its cost is not estimated",)),
    ],
)
def test_each_rule_says_why_it_stops_a_subtask(
    update: dict[str, object], rules: dict[str, object], said: tuple[str, ...]
) -> None:
    spec = plan_of("a").subtasks[0].model_copy(update=update)
    assert rule_objections(spec, Policy(rules=ReviewRules.model_validate(rules))) == said


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("a.py", "a.py", True),
        ("a.py", "b.py", False),
        ("src/**", "src/a/b.py", True),
        ("**/*.sql", "src/**", True),
        ("src/a/**", "src/b/**", False),
        ("src/a*", "src/ab/**", True),
        ("migrations/*", "docs/a.md", False),
    ],
)
def test_patterns_that_may_name_the_same_file(one: str, other: str, *, may: bool) -> None:
    assert may_overlap(one, other) is may
    assert may_overlap(other, one) is may


def test_what_was_said_of_a_plan_is_about_the_version_that_was_seen_and_about_what_waits() -> None:
    story = reviewed("a", "b", b="high")

    def problem(**given: object) -> str | None:
        kind = f.PlanRejected if "reason" in given else f.PlanApproved
        return request_problem(story.state, kind.model_validate({"at": 0, "version": 0, "by": WHO, **given}))

    assert problem(version=7) == "the plan is at version 0 now, not 7. Review it again"
    assert problem(subtasks=("a",)) == "a is not waiting for approval; pending: b"
    assert problem(reason=" ") == "a reason is required, because the planner uses it to revise the plan"
    assert problem(automatic=True) == "the list of subtasks is empty. Name at least one to approve"
    says(story)
    nothing = "no subtask is waiting for approval. To drop an approved subtask, edit the plan"
    assert problem(reason="no") == problem() == nothing


def test_a_plan_is_as_risky_as_it_says_of_itself() -> None:
    given = reviewed("a", "b").state
    story = Story(given.policy, given.plan.model_copy(update={"risk_level": "high"}))
    assert waiting_for_approval(story.state) == ("a", "b")
    assert objections(story.state, SubtaskId("a")) == ("the risk_level of its plan is high",)


def test_a_rollback_plan_needs_no_approval() -> None:
    """It was reviewed with the plan, and must not wait in an emergency."""
    given = reviewed("a", by="human", rules=ReviewRules(max_risk="low", workers=("coder",))).state
    story = Story(given.policy, given.plan, rollback=plan_of("undo", risk="high"))
    says(story)
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1))
    story.attempt_fails("a")
    assert story.state.undoing is not None
    assert story.status("undo") == "running"


def test_a_late_verdict_counts_when_the_run_continues() -> None:
    story = reviewed("a", "b", b="high")
    story.happens(f.RunEnded(at=0, ending="partial", why="no one approved b"))
    says(story, "b")
    assert waiting_for_approval(story.state) == ()
    story = reviewed("a", "b", b="high")
    story.happens(f.RunEnded(at=0, ending="cancelled", why="no"))
    late = f.PlanApproved(at=0, version=0, by=WHO)
    assert request_problem(story.state, late) == "r has already ended (cancelled)"


def test_the_fact_of_an_approval_of_all_names_what_it_is_about() -> None:
    story = reviewed("a", "b", "c needs b", by="human")
    everything = f.PlanApproved(at=0, version=0, by=WHO)
    fact = fact_of(story.state, everything)
    assert isinstance(fact, f.PlanApproved)
    assert (fact.subtasks, fact.left_out) == (("a", "b", "c"), ())


def test_the_fact_of_an_approval_of_a_part_names_what_was_left_out() -> None:
    story = reviewed("a", "b", "c needs b", by="human")
    fact = fact_of(story.state, f.PlanApproved(at=0, version=0, by=WHO, subtasks=("b",)))
    assert isinstance(fact, f.PlanApproved)
    assert (fact.subtasks, fact.left_out) == (("b",), ("a", "c"))
    story.happens(fact)
    assert set(story.state.shelved) == {"a", "c"}


def test_the_fact_of_a_rejection_of_all_names_what_it_is_about() -> None:
    story = reviewed("a", "b", b="high")
    fact = fact_of(story.state, f.PlanRejected(at=0, version=0, by=WHO, reason="no"))
    assert isinstance(fact, f.PlanRejected)
    assert fact.subtasks == ("b",)


def test_a_fact_that_names_its_subtasks_means_the_same_whatever_policy_would_say() -> None:
    story = reviewed("a", "b", by="human", b="high")
    named = f.PlanApproved(at=0, version=0, by=WHO, subtasks=("a",), left_out=())
    story.happens(named)
    assert set(story.state.cleared) == {"a"}
    assert story.state.shelved == {}, "what the fact does not name was not left out"


def test_any_other_request_is_its_own_fact() -> None:
    story = reviewed("a", by="human")
    paused = f.Paused(at=0, by=WHO)
    assert fact_of(story.state, paused) is paused


def test_the_rules_are_said_as_the_configuration_has_them() -> None:
    rules = ReviewRules(max_risk="low", paths=("src/db/**", "infra/"), workers=("deployer",), max_dollars=2.5)
    assert rules_text(rules) == (
        "max_risk = low",
        "paths = src/db/**, infra/",
        "workers = deployer",
        "max_dollars = 2.5",
    )
    assert rules_text(ReviewRules()) == ("max_risk = medium",)


def test_while_the_planner_revises_what_was_rejected_no_one_needs_to_be_asked() -> None:
    story = reviewed("a", "b", by="human")
    assert not is_being_revised(story.state)
    rejects(story, "later")
    assert is_being_revised(story.state)
    story.planner_answers(revise=[{"id": "a", "goal": "later"}])
    assert not is_being_revised(story.state)


def test_without_review_nothing_waits() -> None:
    assert reviewed("a", by="none", a="high").status("a") == "running"
