"""What a person is shown of a part of a plan before a yes or a no, and where nothing waits; tests/corpus has more."""

from dashboards.text.plan_review import review_lines, waits_line
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.plan_views import plan_review
from tests.dashboards.hostile import HOSTILE, problems
from tests.fleet.core.story import WHO, Story, plan_of


def test_what_waits_is_named_with_its_reason_and_what_decides_it() -> None:
    story = Story(Policy(review=True, reviewing="human"), plan_of("a", "b"))
    story.happens(f.PlanApproved(at=0, version=0, by=WHO))
    story.attempt_fails("a")
    story.planner_answers(revise=[{"id": "a", "risk": "high"}])
    assert waits_line(plan_review(story.state)) == (
        "WAITING for your approval: a (its risk is high)  →  fleet approve r, or fleet reject r -m WHY"
    )


def test_a_part_is_shown_alone_and_what_undoes_the_plan_is_shown_with_it() -> None:
    plan = plan_of("a", "b").model_copy(update={"rollback_plan": "back"})
    story = Story(Policy(review=True, reviewing="human"), plan, rollback=plan_of("undo"))
    lines = review_lines(plan_review(story.state), ["b"])
    assert not any("Build a" in line for line in lines)
    assert lines[-4:] == [
        "Rollback: back",
        "  undo                 Build undo",
        "Estimate: too few past runs in this repository for an estimate",
        "Selected: 1 of 2 pending subtasks. The others remain pending.",
    ]


def test_a_run_without_pending_subtasks_says_so() -> None:
    assert review_lines(plan_review(Story(plan=plan_of("a")).state))[-1] == "No subtasks are waiting for approval."


def test_hostile_text_steers_no_terminal() -> None:
    plan = plan_of("a", "b", title=HOSTILE, goal=HOSTILE, touches=(HOSTILE,))
    story = Story(Policy(review=True, reviewing="human"), plan)
    story.happens(f.PlanRejected(at=0, version=0, by=HOSTILE, reason=HOSTILE))
    story.planner_answers(revise=[{"id": "a", "goal": f"other {HOSTILE}"}], assessment=HOSTILE)
    assert problems([*review_lines(plan_review(story.state)), waits_line(plan_review(story.state))]) == []
