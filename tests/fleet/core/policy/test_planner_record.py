"""The record of a run only grows, so that each planner call begins as the last one did."""

from itertools import pairwise

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.policy.planner_view import KNOWN, RECORD_RESULT, SHORT, planner_record, planner_state, subtask_report
from tests.fleet.core.story import Story


def lands(story: Story, id_: str, report: f.Report) -> None:
    """The whole way of a subtask with this report."""
    number = story.current(id_).number
    story.happens(
        f.AttemptCommitted(at=story.now, subtask=id_, number=number, commit=f"c-{id_}", paths=("x",), report=report),
        f.AttemptVerified(at=story.now, subtask=id_, number=number, checks=()),
    )
    story.batch_lands()
    story.is_published()
    story.time_passes(10)


DONE = f.Report(status="done", summary="did it")


def test_what_was_planned_and_what_landed_stands_in_the_order_in_which_it_happened() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.time_passes(10)
    lands(story, "a", DONE)
    record = planner_record(story.state)
    assert [entry.get("planned") for entry in record] == ["a", "b", None]
    assert [entry.get("landed") for entry in record] == [None, None, "a"]


def test_a_later_record_begins_with_the_earlier_one_whatever_happened_meanwhile() -> None:
    story = Story()
    story.planner_plans("a", "b", "c")
    story.time_passes(10)
    records = [planner_record(story.state)]
    for id_ in ("b", "a"):
        lands(story, id_, DONE)
        records.append(planner_record(story.state))
    story.attempt_fails("c")
    records.append(planner_record(story.state))
    story.planner_answers(revise=[{"id": "c", "goal": "Another goal"}], retry=[{"id": "c", "guidance": "again"}])
    records.append(planner_record(story.state))
    for earlier, later in pairwise(records):
        assert later[: len(earlier)] == earlier
    assert [len(record) for record in records] == [3, 4, 5, 5, 6]
    assert records[-1][-1].get("goal") == "Another goal"


def test_texts_of_others_are_cut_and_a_whole_report_can_be_asked_for() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.time_passes(10)
    report = f.Report(status="done", summary="s" * 5_000, recommendations=("r" * 5_000,) * 20)
    lands(story, "a", report)
    entry = planner_record(story.state)[-1]
    assert len(entry.get("result", "")) == RECORD_RESULT
    assert len(str(entry)) < 3_000
    full = subtask_report(story.state, SubtaskId("a"))
    assert full is not None
    assert full["report"] == report.model_dump(mode="json")
    assert subtask_report(story.state, SubtaskId("unheard-of")) is None


def test_what_is_in_the_record_is_not_said_again_in_the_state_once_it_was_read() -> None:
    story = Story()
    story.planner_plans("a", "b")
    story.time_passes(10)
    lands(story, "a", f.Report(status="done", summary="s" * 5_000, recommendations=("more",)))
    news = next(subtask for subtask in planner_state(story.state, story.now)["subtasks"] if subtask["id"] == "a")
    assert (len(news["result"]), news["recommendations"]) == (RECORD_RESULT, ["more"])
    story.planner_answers()
    known = next(subtask for subtask in planner_state(story.state, story.now)["subtasks"] if subtask["id"] == "a")
    assert (known["result"], known["recommendations"]) == ("", [])
    assert any(entry.get("landed") == "a" and entry.get("result") for entry in planner_record(story.state))


def test_a_report_is_news_once_it_has_landed_and_not_while_it_is_only_a_claim() -> None:
    story = Story()
    story.planner_plans("a")
    report = f.Report(status="done", summary="did it", recommendations=("more",))
    story.happens(f.AttemptCommitted(at=story.now, subtask="a", number=1, commit="c-a", paths=("x",), report=report))
    [claimed] = planner_state(story.state, story.now)["subtasks"]
    assert (claimed["status"], claimed["result"], claimed["recommendations"]) == ("verifying", "", [])
    story.happens(f.AttemptVerified(at=story.now, subtask="a", number=1, checks=()))
    story.batch_lands()
    story.is_published()
    [landed] = planner_state(story.state, story.now)["subtasks"]
    assert (landed["status"], landed["result"], landed["recommendations"]) == ("merged", "did it", ["more"])


def test_evidence_is_quoted_while_a_planner_has_to_decide_and_named_after_that() -> None:
    story = Story()
    story.planner_plans("a")
    story.happens(
        f.AttemptFailed(
            at=story.now,
            subtask="a",
            number=1,
            failure=f.Failure(kind="check", summary="red " * 100, evidence="line\n" * 500),
        )
    )
    [undecided] = planner_state(story.state, story.now)["subtasks"]
    assert len(undecided["failures"][0]["evidence"]) > SHORT
    story.planner_answers(retry=[{"id": "a", "guidance": "again"}])
    [retried] = planner_state(story.state, story.now)["subtasks"]
    assert [(each["attempt"], each["class"]) for each in retried["failures"]] == [(1, "check")]
    assert 0 < len(retried["failures"][0]["evidence"]) <= KNOWN


def test_all_evidence_of_a_failure_can_be_asked_for() -> None:
    story = Story()
    story.planner_plans("a")
    story.attempt_fails("a")
    full = subtask_report(story.state, SubtaskId("a"))
    assert full is not None
    assert [(each["attempt"], each["class"]) for each in full["failures"]] == [(1, "check")]
