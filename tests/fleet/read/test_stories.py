"""The story of an incident, and rates that come with what they are rates of."""

import json

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Revision
from fleet.read.base_view import dump_view
from fleet.read.incident_view import EVIDENCE, IncidentView, excerpt, incident_counts, incident_view, rate_of
from fleet.read.run import RunSnapshot
from tests.fleet.core.pretend import subtask
from tests.fleet.core.story import Story, plan_of


def planned(*lines: str, policy: Policy | None = None, **fields: object) -> Story:
    story = Story(policy or Policy())
    story.planner_answers(add=plan_of(*lines, **fields).subtasks)
    return story


def view_of(story: Story, number: int = 1) -> IncidentView:
    return incident_view(story.state, story.state.incidents[number - 1], story.now)


def climbed() -> Story:
    """A service that stutters, a wrong solution, and another model that gets it right."""
    story = planned("api")
    story.model_is_called("api", 0.01)
    story.time_passes(4)
    story.attempt_fails("api", "transient")
    story.time_passes_to_the_next_wake()
    story.model_is_called("api", 0.02)
    story.attempt_fails("api", "check")
    story.planner_answers(retry=[{"id": "api", "guidance": "use the other parser", "model": "opus"}])
    story.model_is_called("api", 0.04)
    story.time_passes(3)
    story.landed("api")
    return story


def test_a_story_has_the_failure_each_remedy_with_who_chose_it_and_its_result() -> None:
    story = climbed()
    whole = view_of(story)
    failure = whole.failure
    assert (failure.outcome, failure.class_, failure.evidence) == (
        "failed",
        "transient",
        "red, it says",
    )
    assert whole.failure.seconds == 4
    retry, other = whole.remedies
    assert (retry.remedy, retry.by, retry.plan_version) == ("retry", "policy", None)
    (second,) = retry.attempts
    assert (second.attempt, second.outcome, second.class_, second.dollars) == (2, "failed", "check", 0.02)
    assert (other.remedy, other.by, other.plan_version) == ("alternative", "planner", 2)
    assert other.why == "use the other parser"
    (third,) = other.attempts
    assert (third.outcome, third.commit, third.dollars, third.seconds) == ("landed", "c-api", 0.04, 3)
    assert whole.end == "it landed"


def test_a_story_as_data_is_json_with_its_cost_in_all() -> None:
    view = dump_view(view_of(climbed()))
    assert json.loads(json.dumps(view)) == view
    assert (view["closing"], view["recovered"], view["strategy"]) == ("landed", True, "alternative")
    assert view["dollars"] == 0.07


def test_a_cost_that_is_not_known_makes_the_whole_unknown() -> None:
    story = planned("api", policy=Policy(max_attempts=1))
    story.model_is_called("api", None)
    story.attempt_fails("api")
    assert view_of(story).dollars is None


def test_the_story_of_a_split_has_the_attempts_at_its_parts_and_theirs() -> None:
    story = planned("api")
    story.attempt_fails("api", "too_complex")
    story.planner_answers(split=[{"id": "api", "why": "two things", "into": [subtask("read"), subtask("write")]}])
    story.landed("read")
    story.attempt_fails("write", "too_complex")
    story.planner_answers(split=[{"id": "write", "why": "still two", "into": [subtask("left"), subtask("right")]}])
    assert view_of(story).end == "open: 1 of its 2 parts have not landed"
    story.landed("left", "right")
    (step,) = view_of(story).remedies
    assert (step.remedy, step.why, step.plan_version) == ("split", "two things", 2)
    assert [(one.subtask, one.outcome) for one in step.attempts] == [
        ("read", "landed"),
        ("write", "failed"),
        ("left", "landed"),
        ("right", "landed"),
    ]
    assert view_of(story).end == "all of its parts landed: read, write"


def test_in_an_area_its_own_planner_is_the_one_who_chose() -> None:
    story = Story()
    story.planner_answers(add=plan_of("auth", worker="planner").subtasks)
    first = Revision(assessment="one part", add=plan_of("login").subtasks)
    story.happens(f.PlanRevised(at=0, call=2, by="planner", revision=first, area="auth"))
    story.attempt_fails("login")
    call = story.state.areas[SubtaskId("auth")].open
    again = Revision.model_validate({"assessment": "again", "retry": [{"id": "login", "guidance": "otherwise"}]})
    story.happens(f.PlanRevised(at=1, call=call, by="planner", revision=again, area="auth"))
    (chosen,) = story.state.incidents[0].remedies
    assert (chosen.by, chosen.version, chosen.why) == ("planner of auth", 3, "otherwise")


def test_a_story_that_ends_with_a_human_has_the_question_and_the_answer() -> None:
    story = planned("api", policy=Policy(max_attempts=1))
    story.attempt_fails("api")
    assert view_of(story).end == (
        "fleet asked a human (q1: api failed 1 time; last: red. How should it continue?), no answer yet"
    )
    story.human_answers("q1", "use sqlite")
    assert str(view_of(story).end).endswith("ada: use sqlite")
    story.planner_answers(retry=[{"id": "api", "guidance": "sqlite"}])
    story.landed("api")
    assert str(view_of(story).end).endswith("(landed since)")
    assert (view_of(story).recovered, view_of(story).strategy) == (False, "human")


def test_how_else_a_story_can_end() -> None:
    story = planned("lint", failure_action="skip")
    story.attempt_fails("lint")
    assert view_of(story).end == 'skipped (failure_action = "skip")'
    story = planned("api", "docs")
    story.attempt_fails("api")
    assert view_of(story).end == "open: waiting for the planner"
    story.planner_answers(drop=[{"id": "api", "why": "not worth it"}])
    assert view_of(story).end == "dropped: not worth it"
    story = planned("api", "docs", failure_action="abort")
    story.attempt_fails("api")
    assert view_of(story).end == "the run ended: aborted, api failed: red"


def test_a_human_who_helps_unasked_has_helped() -> None:
    """A retry by a person while the planner thinks: what lands then was not recovered without a human."""
    story = planned("api", "docs")
    story.attempt_fails("api")
    story.happens(f.RetryRequested(at=story.now, subtask="api", guidance="use sqlite", by="ada"))
    story.landed("api")
    (incident,) = story.state.incidents
    assert (incident.recovered, incident.strategy, incident.closing) == (False, "human", "helped")


def test_a_split_of_which_a_part_needed_a_human_is_not_a_recovery() -> None:
    story = planned("api")
    story.attempt_fails("api", "too_complex")
    story.planner_answers(split=[{"id": "api", "why": "w", "into": [subtask("read"), subtask("write")]}])
    story.landed("read")
    story.attempt_fails("write")
    story.planner_answers(ask=[{"about": "write", "question": "how?"}])
    story.human_answers("q1")
    story.planner_answers(retry=[{"id": "write"}])
    story.landed("write")
    assert [(one.subtask, one.recovered, one.closing) for one in story.state.incidents] == [
        ("api", False, "helped"),
        ("write", False, "asked"),
    ]


def test_evidence_is_cut_to_its_end_at_a_line() -> None:
    assert excerpt("  short\n") == "short"
    long = "".join(f"line {number}\n" for number in range(1000))
    cut = excerpt(long)
    assert len(cut) <= EVIDENCE + 2
    assert cut.startswith("…\nline ")
    assert cut.endswith("line 999")
    assert len(excerpt("x" * 10**6)) == EVIDENCE + 2


def test_rates_come_with_what_they_are_rates_of() -> None:
    story = climbed()
    story.planner_answers(add=plan_of("docs", "open").subtasks)
    story.attempt_fails("docs")
    story.planner_answers(ask=[{"about": "docs", "question": "which?"}])
    story.attempt_fails("open")
    counts = incident_counts(story.state.incidents)
    assert (counts.opened, counts.open, counts.recovered, counts.closed, counts.rate) == (3, 1, 1, 2, 0.5)
    assert {kind: (row.opened, row.recovered, row.closed) for kind, row in counts.by_class.items()} == {
        "transient": (1, 1, 1),
        "check": (2, 0, 1),
    }
    by_strategy = {name: (row.recovered, row.closed) for name, row in counts.by_strategy.items()}
    assert by_strategy == {"retry": (0, 1), "alternative": (1, 1)}, "the retry was tried and was not what did it"
    assert rate_of(()).rate is None


def test_a_run_is_shown_with_its_rates_and_every_story() -> None:
    story = climbed()
    view = dump_view(RunSnapshot(story.state, story.now, alive=False).story)
    assert json.loads(json.dumps(view)) == view
    assert view["rates"]["by_strategy"]["alternative"] == {"closed": 1, "recovered": 1, "unrecovered": 0, "rate": 1.0}
    assert [one["number"] for one in view["incidents"]] == [1]
