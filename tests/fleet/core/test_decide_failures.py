"""What is decided about failures: the ladder, in stories."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Revision
from fleet.core.policy.remedies import LADDER
from fleet.core.state.status import for_revision
from fleet.read.run_view import run_word
from tests.fleet.core.pretend import KINDS, subtask
from tests.fleet.core.story import Story, failure, plan_of

FREE = tuple(kind for kind in KINDS if not LADDER[kind].counts and kind not in {"configuration", "spent"})
COUNTED = tuple(kind for kind in KINDS if LADDER[kind].counts)


def planned(*lines: str, policy: Policy | None = None, **fields: object) -> Story:
    """A run whose planner made this plan."""
    story = Story(policy or Policy())
    story.planner_answers(add=plan_of(*lines, **fields).subtasks)
    return story


@pytest.mark.parametrize("kind", sorted(set(FREE) - {"internal"}))
def test_what_passes_by_itself_is_tried_again_after_a_while_without_the_planner(kind: f.FailureKind) -> None:
    story = planned("api")
    story.attempt_fails("api", kind)
    assert story.status("api") == "waiting"
    assert story.state.planning.calls == 1
    assert story.of("api").counted == 0
    story.time_passes_to_the_next_wake()
    assert (story.current("api").number, story.current("api").strategy) == (2, "retry")


def test_an_error_of_ours_sets_the_subtask_aside_and_the_rest_goes_on_to_its_end() -> None:
    story = Story(Policy(), plan_of("api", "docs", failure_action="abort"))
    story.attempt_fails("api", "internal")
    assert (story.status("api"), story.of("api").counted, story.state.planning.calls) == ("escalated", 0, 0)
    [question] = story.state.open_questions()
    assert question.aside
    assert question.text == "api is set aside: red. `fleet retry api` retries it."
    story.landed("docs")
    assert (story.state.ending, story.state.ending_why) == (
        "partial",
        "set aside because of an internal error: api",
    )


def test_no_planner_takes_up_what_an_older_fleet_set_aside_before_it_was_started() -> None:
    story = planned("docs", "api needs docs")
    story.happens(f.QuestionAsked(at=story.now, about="api", question="api is set aside", options=(), aside=True))
    assert (story.status("api"), for_revision(story.state).failed) == ("escalated", frozenset())


@pytest.mark.parametrize("how", ["retry", "answer"])
def test_finished_work_that_an_error_of_ours_kept_back_is_taken_up_without_its_worker(how: str) -> None:
    story = Story(Policy(), plan_of("api", "docs"))
    story.work_is_done("api")
    story.happens(f.AttemptFailed(at=story.now, subtask="api", number=1, failure=failure("internal")))
    assert "keeps the finished work" in story.state.open_questions()[0].text
    if how == "retry":
        story.happens(f.RetryRequested(at=story.now, subtask="api", guidance="", by="ada"))
    else:
        story.happens(f.QuestionAnswered(at=story.now, question="q1", answer="Retry", by="ada"))
    assert (story.status("api"), len(story.of("api").attempts)) == ("verifying", 1)
    assert story.state.open_questions() == []
    assert story.state.planning.open is None


def test_with_guidance_it_is_done_anew() -> None:
    story = Story(Policy(), plan_of("api", "docs"))
    story.work_is_done("api")
    story.happens(f.AttemptFailed(at=story.now, subtask="api", number=1, failure=failure("internal")))
    story.happens(f.RetryRequested(at=story.now, subtask="api", guidance="another way", by="ada"))
    assert (story.current("api").number, story.current("api").guidance) == (2, "another way")


@pytest.mark.parametrize("kind", COUNTED)
def test_everything_else_goes_to_the_planner_at_once(kind: f.FailureKind) -> None:
    story = planned("api", "docs")
    story.attempt_fails("api", kind)
    assert story.status("api") == "failed"
    assert (story.state.planning.open, story.state.planning.why) == (2, "failures")
    assert story.state.planning.reading.reports == ("api",)
    assert story.status("docs") == "running"


def test_a_split_recovers_what_it_replaced_when_all_parts_have_landed() -> None:
    story = planned("api", "web needs api")
    story.attempt_fails("api", "too_complex")
    parts = (subtask("read"), subtask("write"))
    story.planner_answers(split=[{"id": "api", "why": "too large", "into": parts}])
    story.landed("read")
    assert story.status("web") == "waiting"
    assert story.state.incidents[0].recovered is None
    story.landed("write")
    assert story.status("web") == "running"
    (incident,) = story.state.incidents
    assert (incident.subtask, incident.recovered, incident.strategy) == ("api", True, "split")


def test_a_worker_that_needs_information_is_blocked_until_the_planner_says_more() -> None:
    story = planned("api")
    report = f.Report(status="blocked", summary="which format?", needs=("the format",))
    story.attempt_fails("api", "ambiguous", report)
    assert story.status("api") == "blocked"
    story.planner_answers(retry=[{"id": "api", "guidance": "JSON"}])
    assert story.status("api") == "running"


def test_past_the_last_attempt_a_human_is_asked_and_the_rest_continues() -> None:
    story = planned("api", "docs", policy=Policy(max_attempts=2))
    story.attempt_fails("api")
    story.planner_answers(retry=[{"id": "api"}])
    story.attempt_fails("api")
    assert story.status("api") == "escalated"
    assert story.questions() == ["api failed 2 times; last: red. How should it continue?"]
    assert story.status("docs") == "running"
    assert not story.state.ended


def _never_gets_through(story: Story) -> None:
    for _ in range(2):
        story.attempt_fails("api", "transient")
        story.time_passes_to_the_next_wake()
    story.attempt_fails("api", "transient")


def test_a_service_that_was_never_there_ends_the_run_instead_of_asking_about_each_subtask() -> None:
    story = planned("api", policy=Policy(max_retries=2))
    _never_gets_through(story)
    assert (story.state.ending, story.questions()) == ("failed", [])


def test_retries_that_cost_nothing_end_with_a_human_too() -> None:
    story = planned("api", policy=Policy(max_retries=2))
    story.model_is_called("api")
    _never_gets_through(story)
    assert story.status("api") == "escalated"
    assert story.of("api").counted == 0


def test_a_humans_answer_gives_the_subtask_its_attempts_back_and_the_planner_reads_it() -> None:
    story = planned("api", policy=Policy(max_attempts=1))
    story.attempt_fails("api")
    story.human_answers("q1", "use sqlite")
    assert story.of("api").counted == 0
    assert (story.state.planning.why, story.state.planning.reading.answers) == ("answers", ("q1",))
    story.planner_answers(retry=[{"id": "api", "guidance": "use sqlite"}])
    assert story.status("api") == "running"


def test_failure_action_retry_tries_again_until_its_attempts_are_spent() -> None:
    story = planned("api", policy=Policy(max_attempts=2), failure_action="retry")
    story.attempt_fails("api")
    assert story.state.planning.calls == 1
    story.time_passes_to_the_next_wake()
    assert story.current("api").strategy == "retry"
    story.attempt_fails("api")
    assert story.status("api") == "escalated"


def test_failure_action_skip_lets_dependents_continue_without_it() -> None:
    story = planned("lint", "api needs lint", failure_action="skip")
    story.attempt_fails("lint")
    assert story.statuses() == {"lint": "dropped", "api": "running"}
    assert story.state.incidents[0].recovered is False


def test_failure_action_abort_ends_the_run() -> None:
    story = planned("api", "docs", failure_action="abort")
    story.attempt_fails("api")
    assert (story.state.ending, story.state.ending_why) == ("aborted", "api failed: red")
    assert story.effects() == ()


def test_failure_action_abort_does_not_end_the_run_for_what_passes_by_itself() -> None:
    story = planned("api", failure_action="abort")
    story.attempt_fails("api", "transient")
    assert not story.state.ended


def test_failure_action_ask_asks_a_human_before_the_planner() -> None:
    story = planned("api", failure_action="ask")
    story.attempt_fails("api")
    assert story.status("api") == "escalated"
    assert story.state.planning.calls == 1


def test_a_human_who_retries_is_the_strategy_that_recovers() -> None:
    story = planned("api", failure_action="ask")
    story.attempt_fails("api")
    story.happens(f.RetryRequested(at=0, subtask="api", guidance="use sqlite", by="ada"))
    assert (story.current("api").strategy, story.current("api").guidance) == ("human", "use sqlite")
    assert story.state.open_questions() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"drop": [{"id": "api", "why": "not worth it"}]},
        {"retry": [{"id": "api", "guidance": "again"}]},
        {"split": [{"id": "api", "why": "w", "into": [subtask("part")]}]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_question_that_the_planner_made_moot_needs_no_answer(fields: dict[str, object]) -> None:
    story = planned("api", "docs", policy=Policy(max_attempts=1))
    story.attempt_fails("api")
    story.landed("docs")
    story.time_passes_to_the_next_wake()
    story.planner_answers(Revision.model_validate({"assessment": "on it", **fields}))
    assert story.questions() == []
    assert story.question("q1").answered_by == "planner"


def test_a_wrong_key_ends_a_run_that_has_not_done_anything_yet() -> None:
    story = Story()
    story.planner_fails("configuration")
    assert (story.state.ending, story.state.ending_why) == ("failed", "red")


def test_a_wrong_key_holds_the_whole_run_until_a_human_fixes_it() -> None:
    story = planned("api", "docs", "web needs docs")
    story.model_is_called("api")
    story.attempt_fails("api", "configuration")
    assert story.questions() == ["No new agents start: red. Fix the cause, then send any answer to continue."]
    story.landed("docs")
    story.time_passes(500)
    assert story.statuses() == {"api": "ready", "docs": "merged", "web": "ready"}
    story.human_answers("q1")
    assert story.statuses()["api"] == story.statuses()["web"] == "running"


def test_a_run_that_continues_with_a_fixed_configuration_needs_no_answer_and_asks_again_if_it_was_not_fixed() -> None:
    story = planned("api", "docs", policy=Policy(answer_wait_s=60))
    story.model_is_called("docs")
    story.attempt_fails("api", "configuration")
    story.attempt_fails("docs", "configuration")
    assert len(story.questions()) == 1
    story.time_passes(60)
    assert story.state.ending == "partial"
    story.happens(f.RunReopened(at=story.now, by="ada"))
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=1, host="h", version="0"))
    assert story.questions() == []
    assert story.statuses() == {"api": "running", "docs": "running"}
    story.now += 1
    story.attempt_fails("api", "configuration")
    assert len(story.questions()) == 1
    story.attempt_fails("docs", "configuration")
    story.human_answers("q2")
    assert (story.questions(), story.status("docs")) == ([], "waiting"), "both were meant"


def test_a_planner_that_fails_is_called_again_after_a_while_with_the_same_news() -> None:
    story = planned("api")
    story.attempt_fails("api")
    story.planner_fails()
    assert (story.state.planning.failures, story.state.planning.calls) == (1, 2)
    story.time_passes_to_the_next_wake()
    assert (story.state.planning.open, tuple(story.state.planning.reading.reports)) == (3, ("api",))


def test_a_planner_that_keeps_failing_becomes_a_question_while_the_rest_continues() -> None:
    story = planned("api", "docs", policy=Policy(max_planner_failures=2))
    story.model_is_called("api")
    story.attempt_fails("api")
    story.planner_fails()
    story.time_passes_to_the_next_wake()
    story.planner_fails()
    assert story.questions()[0].startswith("The planner failed 2 times in a row: red. Planned work continues")
    story.landed("docs")
    assert story.status("docs") == "merged"
    assert run_word(story.state, story.now, alive=True) == "waiting for the planner"
    story.human_answers("q1")
    assert story.state.planning.open == 4


def test_a_planner_that_answers_again_settles_the_question_and_the_run_continues() -> None:
    story = planned("api", policy=Policy(max_planner_failures=1))
    story.model_is_called("api")
    story.attempt_fails("api")
    story.planner_fails()
    story.time_passes_to_the_next_wake()
    assert story.state.planning.open == 3
    story.planner_answers(retry=[{"id": "api", "guidance": "again"}])
    assert story.questions() == []
    assert story.status("api") == "running"


def test_a_planner_that_never_answers_again_ends_the_run_in_time_and_says_why() -> None:
    story = planned("api", policy=Policy(max_planner_failures=1, answer_wait_s=60))
    story.model_is_called("api")
    story.attempt_fails("api")
    while not story.state.ended:
        if story.state.planning.open is not None:
            story.planner_fails()
        else:
            story.time_passes_to_the_next_wake()
    assert (story.state.ending, story.state.ending_why) == ("partial", "the planner does not respond: red")
    assert 60 <= story.now < 70
    assert story.status("api") == "escalated", "what it left lying is a human's now"


def test_a_planner_that_never_answers_again_ends_the_run_in_time_though_a_human_is_asked_about_something_else() -> None:
    story = planned("api", "docs", policy=Policy(max_planner_failures=1, answer_wait_s=60))
    story.model_is_called("api")
    story.attempt_fails("api")
    story.planner_answers(ask=[{"about": "api", "question": "Which one?"}])
    story.attempt_fails("docs")
    while not story.state.ended:
        if story.state.planning.open is not None:
            story.planner_fails()
        else:
            story.time_passes_to_the_next_wake()
    assert 60 <= story.now < 70


def test_a_planner_that_can_not_be_reached_at_all_ends_the_run() -> None:
    story = Story(Policy(max_planner_failures=3))
    for _ in range(2):
        story.planner_fails()
        story.time_passes_to_the_next_wake()
    story.planner_fails()
    assert (story.state.ending, story.state.ending_why) == ("failed", "red")


def test_a_planner_that_leaves_a_failure_lying_hands_it_to_a_human() -> None:
    story = planned("api")
    story.attempt_fails("api")
    story.planner_answers()
    for _ in range(2):
        assert story.state.planning.why == "conclude"
        story.planner_answers()
    assert story.status("api") == "escalated"


def test_a_second_failure_after_a_recovery_by_a_human_is_an_incident_of_its_own() -> None:
    story = planned("api", policy=Policy(max_attempts=1))
    story.attempt_fails("api")
    story.human_answers("q1")
    story.planner_answers(retry=[{"id": "api"}])
    story.happens(f.AttemptFailed(at=story.now, subtask="api", number=2, failure=failure("empty")))
    assert [(incident.recovered, incident.strategy) for incident in story.state.incidents] == [
        (False, "human"),
        (False, "human"),
    ]


def test_what_a_model_refused_twice_goes_to_a_human() -> None:
    story = Story()
    story.planner_plans("api")
    story.attempt_fails("api", "refusal")
    story.planner_answers(retry=[{"id": "api", "guidance": "in other words"}])
    assert not story.state.open_questions()
    story.attempt_fails("api", "refusal")
    [question] = story.state.open_questions()
    assert question.about == "api"
    story.human_answers(question.id, "continue")
    story.planner_answers(retry=[{"id": "api", "guidance": "as a human says"}])
    story.attempt_fails("api", "refusal")
    assert not story.state.open_questions()


def test_without_a_planner_what_is_planned_still_begins_and_lands() -> None:
    story = planned("api", "docs", "web", policy=Policy(max_planner_failures=1, workers=1))
    story.model_is_called("api")
    story.attempt_fails("api")
    story.planner_fails()
    assert len(story.questions()) == 1
    story.landed("docs")
    story.landed("web")
    assert story.statuses() == {"api": "failed", "docs": "merged", "web": "merged"}
