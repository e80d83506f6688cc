"""What a person is shown before a yes or a no: all of a first plan, later only what waits and what changed of it."""

from dashboards.text.plan_review import review_lines, waits_line
from fleet.core.plans.limits import Policy, Reviewing
from fleet.core.plans.plan import Estimate
from fleet.core.state import facts as f
from tests.dashboards.hostile import HOSTILE, problems
from tests.fleet.core.story import WHO, Story, plan_of


def story_of(*lines: str, by: Reviewing = "human") -> Story:
    return Story(Policy(review=by == "human", reviewing=by), plan_of(*lines))


def says(story: Story, *ids: str) -> None:
    story.happens(f.PlanApproved(at=0, version=story.state.plan.version, by=WHO, subtasks=ids or None))


def test_a_first_plan_is_shown_whole_with_what_it_may_do_and_what_it_may_cost() -> None:
    size = Estimate(minutes=10, dollars=0.5)
    plan = plan_of("a", "b needs a", touches=("src/**",), estimate=size, worker="writer")
    story = Story(Policy(review=True, reviewing="human"), plan)
    assert review_lines(story.state) == [
        "Plan: the epic  (version 0, 2 subtasks)",
        "  by operator: the plan the run came with",
        "  a                    Build a",
        "                         check: check a",
        "                         risk low, worker writer, may change src/**, 10 min, $0.50",
        "                         goal: Build a.",
        "  b                    Build b  after a",
        "                         check: check b",
        "                         risk low, worker writer, may change src/**, 10 min, $0.50",
        "                         goal: Build b.",
        "Risk: 2 low",
        "Time: 20 minutes of work, 20 on the critical path",
        "Cost: $1.00",
        "Estimate: not enough past runs of this repository to estimate",
        "Waiting for approval: 2 of 2 subtasks; nothing starts until then.",
    ]


def test_in_the_middle_of_a_run_only_what_waits_is_shown_and_how_it_differs_from_what_was_approved() -> None:
    story = story_of("a", "b")
    says(story)
    story.attempt_fails("a")
    story.planner_answers(revise=[{"id": "a", "risk": "high"}], assessment="It is more than it seemed.")
    text = "\n".join(review_lines(story.state))
    assert "by planner: It is more than it seemed." in text
    assert "since it was approved: risk: low → high" in text
    assert "needs approval: its risk is high" in text
    assert "Build b" not in text
    assert text.endswith("Waiting for approval: 1 of 2 subtasks; the others keep running.")
    assert waits_line(story.state) == (
        "WAITING for your approval: a (its risk is high)  →  fleet approve r, or fleet reject r -m WHY"
    )


def test_what_was_rejected_is_shown_with_the_reason_until_it_is_another_one() -> None:
    story = story_of("a", "b")
    story.happens(f.PlanRejected(at=0, version=0, by=WHO, reason="too wide", subtasks=("a",)))
    assert f"needs approval: was rejected in this form by {WHO}: too wide" in "\n".join(review_lines(story.state))
    story.planner_answers(revise=[{"id": "a", "goal": "Less."}])
    text = "\n".join(review_lines(story.state))
    assert "since it was rejected: goal: Build a. → Less." in text
    assert "in this form" not in text


def test_a_part_is_shown_alone_and_what_undoes_the_plan_is_shown_with_it() -> None:
    plan = plan_of("a", "b").model_copy(update={"rollback_plan": "back"})
    story = Story(Policy(review=True, reviewing="human"), plan, rollback=plan_of("undo"))
    lines = review_lines(story.state, ["b"])
    assert not any("Build a" in line for line in lines)
    assert lines[-4:] == [
        "Rollback: back",
        "  undo                 Build undo",
        "Estimate: not enough past runs of this repository to estimate",
        "Selected: 1 of 2 pending subtasks; the others stay pending.",
    ]


def test_a_run_without_pending_subtasks_says_so() -> None:
    assert review_lines(story_of("a", by="none").state)[-1] == "Nothing is waiting for approval."


def test_hostile_text_steers_no_terminal() -> None:
    plan = plan_of("a", "b", title=HOSTILE, goal=HOSTILE, touches=(HOSTILE,))
    story = Story(Policy(review=True, reviewing="human"), plan)
    story.happens(f.PlanRejected(at=0, version=0, by=HOSTILE, reason=HOSTILE))
    story.planner_answers(revise=[{"id": "a", "goal": f"other {HOSTILE}"}], assessment=HOSTILE)
    assert problems([*review_lines(story.state), waits_line(story.state)]) == []
