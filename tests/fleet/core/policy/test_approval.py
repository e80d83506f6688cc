"""What of a plan may begin: by a person's word or by the rules, in part, and again when it changes."""

import pytest

from fleet.core import facts as f
from fleet.core.approval import awaits_approval, concerns, may_meet, stopped_by, waiting
from fleet.core.plan import Estimate, Plan
from fleet.core.policy import Policy, Reviewing, ReviewRules
from fleet.core.requests import accept
from fleet.core.views import planner_state, run_word, status
from tests.core.story import WHO, Story, plan_of


def reviewed(*lines: str, by: Reviewing = "auto", rules: ReviewRules | None = None, **risks: str) -> Story:
    plan = plan_of(*lines)
    risky = [spec.model_copy(update={"risk": risks.get(spec.id, "low")}) for spec in plan.subtasks]
    rules = rules or ReviewRules(max_risk="medium")
    policy = Policy(review=by == "human", reviewing=by, rules=rules, answer_wait_s=600)
    return Story(policy, Plan(goal="the epic", subtasks=tuple(risky)))


def says(story: Story, *ids: str) -> None:
    part = ids or None
    request = f.PlanApproved(at=story.now, version=story.state.plan.version, by=WHO, subtasks=part)
    assert accept(story.state, request) is None
    story.happens(request)


def rejects(story: Story, reason: str, *ids: str) -> None:
    request = f.PlanRejected(
        at=story.now, version=story.state.plan.version, by=WHO, reason=reason, subtasks=ids or None
    )
    assert accept(story.state, request) is None
    story.happens(request)


def test_the_rules_let_a_small_subtask_pass_and_a_risky_one_waits_while_the_rest_goes_on() -> None:
    story = reviewed("a", "b", "c needs b", b="high")
    assert story.standings() == {"a": "running", "b": "ready", "c": "waiting"}
    [approval] = story.facts_of(f.PlanApproved)
    assert approval.subtasks == ("a", "c")
    assert approval.automatic
    story.landed("a")
    assert not story.state.ended
    says(story)
    assert story.standing("b") == "running"


def test_nothing_of_a_first_plan_begins_before_a_person_approves_it() -> None:
    story = reviewed("a", "b", by="human")
    story.time_passes(1_000_000)
    assert not story.facts_of(f.AttemptStarted)
    assert not story.state.ended
    says(story)
    assert set(story.standings().values()) == {"running"}


def test_a_part_is_approved_and_the_rest_goes_on_waiting_for_a_person() -> None:
    story = reviewed("a", "b", by="human")
    says(story, "a")
    assert story.standings() == {"a": "running", "b": "ready"}
    assert waiting(story.state) == ("b",)
    story.landed("a")
    assert not story.state.ended
    says(story, "b")
    assert story.standing("b") == "running"


def test_a_change_of_an_approved_plan_is_looked_at_by_the_rules() -> None:
    story = reviewed("a", "b", by="human")
    says(story)
    story.attempt_fails("a")
    risky = plan_of("risky", risk="high").subtasks
    story.planner_answers(add=(*plan_of("small").subtasks, *risky), drop=[{"id": "a", "why": "w"}])
    assert story.standing("small") == "running"
    assert story.standing("risky") == "ready"
    assert waiting(story.state) == ("risky",)


def test_a_subtask_that_was_approved_waits_again_when_it_becomes_riskier() -> None:
    story = reviewed("a", "b needs a")
    story.attempt_fails("a")
    story.planner_answers(revise=[{"id": "a", "risk": "high"}])
    assert waiting(story.state) == ("a",)
    assert story.standing("a") == "ready"


def test_a_rejection_goes_to_the_planner_whose_revision_waits_again() -> None:
    story = reviewed("a", "b", by="human")
    rejects(story, "deploy at two in the morning")
    assert story.state.planning.open is not None
    [question] = planner_state(story.state, 0)["questions"]
    assert "deploy at two in the morning" in question["answer"]
    story.planner_answers(revise=[{"id": "a", "goal": "at two in the morning"}])
    assert not story.facts_of(f.AttemptStarted)
    assert waiting(story.state) == ("a", "b")
    says(story)
    assert set(story.standings().values()) == {"running"}


def test_the_rules_do_not_let_pass_what_a_person_rejected() -> None:
    story = reviewed("a", "b", b="high")
    rejects(story, "too wide", "b")
    story.planner_answers(revise=[{"id": "b", "risk": "medium"}])
    assert story.standing("b") == "running"  # it is another one now, and passes
    story = reviewed("a", "b needs a", by="human")
    says(story, "a")
    story.attempt_fails("a")
    story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
    assert waiting(story.state) == ("b",)  # as it was, when it was left out


def test_where_nobody_is_expected_a_run_that_only_waits_ends_and_can_go_on() -> None:
    story = reviewed("a", "b", b="high")
    story.landed("a")
    for _ in range(3):  # the first wakes are for news that settles
        story.time_passes_to_the_next_wake()
        if story.state.ended:
            break
    assert story.state.ending == "partial"
    assert story.state.ending_why == "nobody approved b"
    story.happens(f.RunReopened(at=story.now, by=WHO))
    assert not story.state.ended
    says(story, "b")
    assert story.standing("b") == "running"


def test_without_review_nothing_waits() -> None:
    assert reviewed("a", by="none", a="high").standing("a") == "running"


@pytest.mark.parametrize(
    ("update", "rules", "said"),
    [
        ({"risk": "medium"}, {}, ()),
        ({"risk": "medium"}, {"max_risk": "low"}, ("its risk is medium",)),
        ({"touches": ("src/db/schema.py",)}, {"paths": ("src/db/**",)}, ("it may change src/db/**",)),
        ({"touches": ("src/**",)}, {"paths": ("src/db/schema.py",)}, ("it may change src/db/schema.py",)),
        ({"touches": ("docs/**",)}, {"paths": ("src/db/**",)}, ()),
        ({"touches": ()}, {"paths": ("src/db/**",)}, ("it names no paths, so it may change any",)),
        ({"worker": "deployer"}, {"workers": ("deployer",)}, ("its worker is deployer",)),
        ({"estimate": Estimate(dollars=3)}, {"max_dollars": 2}, ("it may cost $3.00",)),
        ({"estimate": Estimate(dollars=1)}, {"max_dollars": 2}, ()),
        ({}, {"max_dollars": 2}, ("nobody estimated what it costs",)),
    ],
)
def test_each_rule_says_why_it_stops_a_subtask(
    update: dict[str, object], rules: dict[str, object], said: tuple[str, ...]
) -> None:
    spec = plan_of("a").subtasks[0].model_copy(update=update)
    assert concerns(spec, Policy(rules=ReviewRules.model_validate(rules))) == said


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
    assert may_meet(one, other) is may
    assert may_meet(other, one) is may


def test_what_was_said_of_a_plan_is_about_the_version_that_was_seen_and_about_what_waits() -> None:
    story = reviewed("a", "b", b="high")

    def problem(**given: object) -> str | None:
        kind = f.PlanRejected if "reason" in given else f.PlanApproved
        return accept(story.state, kind.model_validate({"at": 0, "version": 0, "by": WHO, **given}))

    assert problem(version=7) == "the plan is at version 0 now, not 7; look at it again"
    assert problem(subtasks=("a",)) == "a does not wait for approval; there wait b"
    assert problem(reason=" ") == "say why: the planner revises by the reason"
    assert problem(automatic=True) == "that approves nothing; name what may begin"
    says(story)
    nothing = "nothing waits for approval; a subtask that may begin already is dropped by editing the plan"
    assert problem(reason="no") == problem() == nothing


def test_a_plan_is_as_risky_as_it_says_of_itself() -> None:
    told = reviewed("a", "b").state
    story = Story(told.policy, told.plan.model_copy(update={"risk_level": "high"}))
    assert waiting(story.state) == ("a", "b")
    assert stopped_by(story.state, "a") == ("the risk_level of its plan is high",)


def test_what_undoes_a_plan_waits_for_nobody() -> None:
    """It was there to be looked at with the plan, and an emergency is no time to look for somebody."""
    told = reviewed("a", by="human", rules=ReviewRules(max_risk="low", workers=("coder",))).state
    story = Story(told.policy, told.plan, rollback=plan_of("undo", risk="high"))
    says(story)
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1))
    story.attempt_fails("a")
    assert story.state.undoing is not None
    assert story.standing("undo") == "running"


def test_a_word_that_comes_late_counts_when_the_run_goes_on() -> None:
    story = reviewed("a", "b", b="high")
    story.happens(f.RunEnded(at=0, ending="partial", why="nobody approved b"))
    says(story, "b")
    assert waiting(story.state) == ()
    story = reviewed("a", "b", b="high")
    story.happens(f.RunEnded(at=0, ending="cancelled", why="no"))
    late = f.PlanApproved(at=0, version=0, by=WHO)
    assert accept(story.state, late) == "r has ended already (cancelled)"


def test_who_approved_what_when_and_in_which_version_is_told() -> None:
    story = reviewed("a", "b", b="high")
    story.now = 5.0
    says(story, "b")
    told = status(story.state, 5.0, alive=True)["reviews"]
    assert [(one["by"], one["subtasks"], one["version"], one["automatic"]) for one in told] == [
        ("the review rules", ["a"], 0, True),
        (WHO, ["b"], 0, False),
    ]


def test_a_run_that_does_something_is_not_said_to_await_approval() -> None:
    story = reviewed("a", "b", b="high")
    assert run_word(story.state, 0, alive=True) == "running"
    story.landed("a")
    assert awaits_approval(story.state)
    assert run_word(story.state, 0, alive=True) == "awaiting approval"
