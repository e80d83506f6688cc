"""The ladder as people see it: what a plan says of failures is done, and at each cap a human is asked."""

from pathlib import Path

from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Json, Stage, landed, script, solve, subtask
from tests.fleet.core.pretend import subtask_of

NOT_YET = {"do": "fail", "message": "no idea"}
HURRIED = {"FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.001"}


def order(repository: Path, url: str) -> tuple[str, ...]:
    return ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")


def run(stage: Stage, repository: Path, url: str, *more: str) -> Done:
    return stage.fleet(*order(repository, url), *more)


def story(stage: Stage, number: int = 1) -> Json:
    view: Json = stage.fleet("show", "r", "--incident", str(number), "--json").ended(0).json
    return view


def facts(stage: Stage) -> list[f.Fact]:
    with Journal(stage.folder("r").journal) as journal:
        return [fact for _, fact in journal.facts()]


def test_a_plan_may_say_that_a_failure_is_skipped_or_tried_again(stage: Stage, repository: Path, model: Serve) -> None:
    """Neither asks the planner. What waited for the skipped one continues, and the run says what is missing."""
    planned = (
        subtask("lint", failure_action="skip"),
        subtask("after", "lint"),
        subtask("again", failure_action="retry"),
    )
    url = model(script(*planned, workers={"lint": [NOT_YET], "again": [NOT_YET, solve("again")]}))
    run(stage, repository, url).ended(1).says('lint skipped (failure_action = "skip")', "again retries in", "PARTIAL")
    assert sorted(landed(repository, "r")) == ["after", "again"]
    assert {called.why for called in facts(stage) if isinstance(called, f.PlannerCalled)} <= {
        "start",
        "reports",
        "conclude",
    }
    ends = {one["subtask"]: (one["closing"], one["recovered"]) for one in (story(stage, 1), story(stage, 2))}
    assert ends == {"lint": ("skipped", False), "again": ("landed", True)}
    rates = stage.status("r")["incidents"]
    assert rates["by_strategy"] == {"retry": {"closed": 1, "recovered": 1, "unrecovered": 0, "rate": 1.0}}


def test_a_plan_may_say_that_a_failure_ends_the_run(stage: Stage, repository: Path, model: Serve) -> None:
    endless = {"do": "hang", "seconds": 600, "then": solve("long")}
    planned = (subtask("vital", failure_action="abort"), subtask("long"))
    url = model(script(*planned, workers={"vital": [NOT_YET], "long": [endless]}))
    run(stage, repository, url).ended(1).says("ended: aborted", "vital failed: ", "ABORTED")
    assert story(stage)["end"].startswith("the run ended: aborted, vital failed")
    assert stage.folder("r").state().commits == 0
    stage.fleet("resume", "r", "--base-url", url, "--plain").says("reopened by")


def test_past_its_attempts_a_human_is_asked_the_rest_continues_and_an_answer_is_enough(
    stage: Stage, repository: Path, model: Serve
) -> None:
    worker = {"do": "until", "guided": "the very word", "meanwhile": NOT_YET, "then": solve("hard")}
    names = ("one", "two", "three")
    rest = [subtask(name, *names[max(0, place - 1) : place]) for place, name in enumerate(names)]
    url = model(script(subtask("hard"), *rest, workers={"hard": [worker]}, pace={"think_s": 0.1}))
    two = stage.with_(FLEET_LIMITS_ATTEMPTS="2")
    with two.going(*order(repository, url)) as going:
        two.wait("r", lambda state: state.open_questions() and state.commits == len(names), going)
        (question,) = two.status("r")["questions"]
        assert (question["about"], question["options"]) == ("hard", ["retry", "drop it"])
        assert "hard failed 2 times; last: " in question["question"]
        two.fleet("answer", "q1", "write the very word", "--run", "r").ended(0)
        going.done().ended(0).says("LANDED")
    assert sorted(landed(repository, "r")) == sorted(("hard", *names))
    shown = story(two)
    assert (shown["closing"], shown["recovered"], shown["question"]) == ("asked", False, "q1")
    assert [step["by"] for step in shown["remedies"]] == ["planner"]
    assert "write the very word (landed since)" in shown["end"]


def test_past_the_planners_calls_what_is_open_goes_to_a_human(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("hard"), subtask("easy"), workers={"hard": [NOT_YET]}))
    once = stage.with_(FLEET_PLANNER_MAX_CALLS="1", **HURRIED)
    run(once, repository, url).ended(1).says("QUESTION q1 about hard", "no one answered q1", "fleet answer q1 TEXT")
    assert landed(repository, "r") == ["easy"]
    assert once.status("r")["subtasks"] == {"escalated": 1, "merged": 1}
    assert story(once)["end"].endswith("no answer yet")


def test_a_split_deeper_than_allowed_is_refused_and_ends_with_a_human(
    stage: Stage, repository: Path, model: Serve
) -> None:
    """A planner that insists on it gets no further: a person is asked, and what can land does."""
    splits = [
        {
            "when": {"failed": whole, "kind": "too_complex"},
            "revision": {
                "assessment": "Smaller.",
                "split": [{"id": whole, "why": "too much", "into": [subtask(part, touches=[])]}],
            },
        }
        for whole, part in (("whole", "half"), ("half", "quarter"))
    ]
    heavy = {name: [{"do": "too_complex"}] for name in ("whole", "half")}
    url = model(script(subtask("whole"), subtask("easy"), steps=splits, workers=heavy))
    shallow = stage.with_(FLEET_LIMITS_DEPTH="1", FLEET_PLANNER_MAX_FAILURES="2", FLEET_PLANNER_REPAIRS="1", **HURRIED)
    run(shallow, repository, url).ended(1).says("QUESTION q1: The planner failed 2 times in a row", "PARTIAL")
    state = shallow.folder("r").state()
    assert landed(repository, "r") == ["easy"]
    assert (subtask_of(state, "whole").parts, set(state.subtasks)) == (("half",), {"whole", "half", "easy"})
    assert story(shallow)["end"].startswith("the run ended: partial")


def test_a_budget_that_runs_low_is_reported_to_the_planner(stage: Stage, repository: Path, model: Serve) -> None:
    """At the soft limit, once, with what is left; what is planned still lands."""
    url = model(script(subtask("one"), subtask("two", "one"), subtask("three", "two")))
    soft = stage.with_(FLEET_RUN_BUDGET_SOFT="0.0001")
    run(soft, repository, url, "--budget", "20").ended(0).says("of the budget of $20 is used: notified the planner")
    called = [fact for fact in facts(soft) if isinstance(fact, f.PlannerCalled)]
    assert [call.why for call in called].count("budget") == 1
    number = next(call.call for call in called if call.why == "budget")
    asked = (soft.folder("r").transcripts / f"planner.{number}.jsonl").read_text(encoding="utf-8")
    assert "finish nearly complete work" in asked
