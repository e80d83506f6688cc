"""What goes wrong in a run, and how it gets on: seen from the command line."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Json, Stage, content, landed, script, solve, subtask, untouched, wrong

ASKS = {"do": "ask", "needs": ["Which encoding?"]}


def run(stage: Stage, repository: Path, url: str, *more: str) -> Done:
    return stage.fleet("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes", *more)


def incident(stage: Stage, subtask_: str) -> Json:
    """The only incident of a subtask."""
    (found,) = stage.fleet("show", subtask_, "--run", "r", "--json").ended(0).json["incidents"]
    view: Json = found
    return view


def test_each_kind_of_failure_meets_its_remedy(stage: Stage, repository: Path, model: Serve) -> None:
    """A wrong solution, too large a task, a bad stretch of the service, work out of bounds, nothing done at all."""
    halves = [subtask("half"), subtask("other", "half", run="grep -qx other whole.txt", touches=["whole.txt"])]
    split = {"id": "whole", "why": "it is two things", "into": halves}
    too_complex = {"failed": "whole", "kind": "too_complex"}
    overloaded = {"do": "http", "status": 529, "times": 3, "turn": 1, "retry_after": 0.05, "then": solve("busy")}
    strays = {"do": "stray", "files": {"stray.txt": "stray\n"}, "outside": {"README.md": "mine\n"}}
    url = model(
        script(
            *(subtask(name) for name in ("wrong", "whole", "busy", "stray", "lazy")),
            steps=[{"when": too_complex, "revision": {"assessment": "Two parts are easier.", "split": [split]}}],
            workers={
                "wrong": [wrong("wrong"), solve("wrong")],
                "whole": [{"do": "too_complex"}],
                "half": [solve("half")],
                "other": [{"do": "solve", "files": {"whole.txt": "other\n"}}],
                "busy": [overloaded],
                "stray": [strays, solve("stray")],
                "lazy": [{"do": "claim"}, solve("lazy")],
            },
        )
    )
    with untouched(repository):
        done = run(stage.with_(FLEET_MODELS_RETRIES="2"), repository, url).ended(0)
    done.says("wrong failed, attempt 1: check", "Two parts are easier.", "busy retries in", "1 split")
    assert sorted(landed(repository, "r")) == ["busy", "half", "lazy", "other", "stray", "wrong"]
    assert content(repository, "r", "README.md") == "hello"
    stage.fleet("audit", "r").ended(0).says("split from whole", "audit passed: 6 commits")

    incidents = {name: incident(stage, name) for name in ("wrong", "whole", "busy", "stray", "lazy")}
    assert {name: (one["class"], one["strategy"], one["recovered"]) for name, one in incidents.items()} == {
        "wrong": ("check", "alternative", True),
        "whole": ("too_complex", "split", True),
        "busy": ("transient", "retry", True),
        "stray": ("bounds", "alternative", True),
        "lazy": ("empty", "alternative", True),
    }
    status = stage.status("r")
    rates = status["incidents"]
    assert (rates["rate"], rates["recovered"], rates["closed"]) == (1.0, 5, 5)
    assert {name: (row["recovered"], row["closed"]) for name, row in rates["by_strategy"].items()} == {
        "alternative": (3, 3),
        "split": (1, 1),
        "retry": (1, 1),
    }
    assert rates["by_class"]["check"] == {"opened": 1, "closed": 1, "recovered": 1, "unrecovered": 0, "rate": 1.0}
    assert status["subtasks"] == {"merged": 6, "split": 1}
    shown = stage.fleet("show", "r").ended(0)
    shown.says("recovered  100% (5 of 5)", "by class", ": split: it is two things", "all of its parts landed")
    number = incidents["wrong"]["number"]
    stage.fleet("show", "r", "--incident", str(number)).ended(0).says(
        "by the planner (plan version", ": alternative", "exit code 1", "landed as", "recovered after"
    )
    one = stage.fleet("show", "--run", "r", "--incident", str(number), "--json").ended(0).json
    assert one == {"schema_version": 1, **incidents["wrong"]}
    assert [step["attempts"][0]["outcome"] for step in one["remedies"]] == ["landed"]
    stage.fleet("show", "r", "--incident", "77").ended(2).says("no incident 77 in r", "hint: use a number from 1 to 5")
    _is_shown_by_attempts(stage)


def _is_shown_by_attempts(stage: Stage) -> None:
    stage.fleet("show", "wrong", "--run", "r").ended(0).says("FAILED    grep -qx wrong wrong.txt", "guidance")
    stage.fleet("logs", "wrong", "--run", "r", "--attempt", "1").ended(0).says("something else")
    stage.fleet("logs", "wrong", "--run", "r", "--attempt", "7").ended(2).says("no log of attempt 7 of wrong")
    stage.fleet("diff", "wrong", "--run", "r", "--attempt", "1").ended(0).says("+something else")


def test_a_question_is_answered_while_the_rest_continues(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("clear"), subtask("vague"), workers={"vague": [ASKS, solve("vague")]}))
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
    with stage.going(*asked) as going:
        stage.wait("r", lambda state: state.open_questions() and state.commits, going)
        stage.fleet("status", "r").ended(0).says("QUESTION   q1: ", "Which encoding?", "fleet answer q1 TEXT")
        stage.fleet("answer", "q7", "UTF-8", "--run", "r").ended(2).says("unknown question 'q7'")
        stage.fleet("answer", "q1", " ", "--run", "r").ended(2).says("the answer is empty")
        stage.fleet("answer", "q1", "UTF-8", "--run", "r").ended(0).says("q1 answered")
        going.done().ended(0).says("QUESTION q1 about vague", "q1 answered by", "LANDED")
    assert landed(repository, "r") == ["clear", "vague"]
    (_, second) = stage.fleet("show", "vague", "--run", "r", "--json").ended(0).json["attempts"]
    assert "UTF-8" in second["guidance"]
    assert incident(stage, "vague")["strategy"] == "human"
    stage.fleet("answer", "q1", "Latin-1", "--run", "r").ended(2).says("q1 is already answered: UTF-8")


@pytest.mark.thorough
def test_a_subtask_without_an_answer_is_missing_until_it_has_one(stage: Stage, repository: Path, model: Serve) -> None:
    """The run ends as partial, says what is missing and how to continue; answered and resumed, the rest lands."""
    played = script(
        subtask("clear"), subtask("vague"), subtask("last", "vague"), workers={"vague": [ASKS, solve("vague")]}
    )
    url = model(played)
    with untouched(repository):
        done = run(stage.with_(FLEET_LIMITS_ANSWER_WAIT_MINUTES="0.001"), repository, url)
        done.ended(1).says("PARTIAL", "no one answered q1", "fleet answer q1 TEXT --run r", "fleet resume r")
        assert landed(repository, "r") == ["clear"]
        assert stage.status("r")["subtasks"] == {"escalated": 1, "merged": 1, "waiting": 1}
        stage.fleet("answer", "q1", "UTF-8", "--run", "r").ended(0).says("No engine is running. `fleet resume r`")
        stage.fleet("resume", "r", "--base-url", url).ended(0).says("LANDED")
    assert landed(repository, "r") == ["clear", "vague", "last"]
    stage.nothing_runs("r")


@pytest.mark.thorough
def test_a_human_gives_a_hopeless_subtask_another_try(stage: Stage, repository: Path, model: Serve) -> None:
    hopeless = subtask("hard", failure_action="ask")
    url = model(script(hopeless, workers={"hard": [{"do": "fail", "message": "no idea"}, solve("hard")]}))
    quick = stage.with_(FLEET_LIMITS_ANSWER_WAIT_MINUTES="0")
    run(quick, repository, url).ended(1).says("QUESTION q1 about hard", "How should it continue?")
    stage.fleet("show", "hard", "--run", "r").ended(0).says("escalated", "no idea")
    stage.fleet("retry", "hrad", "--run", "r").ended(2).says("did you mean 'hard'")
    stage.fleet("retry", "hard", "-g", "write the word", "--run", "r").ended(0).says("hard will be retried")
    stage.fleet("resume", "r", "--base-url", url).ended(0)
    assert landed(repository, "r") == ["hard"]
    stage.fleet("retry", "hard", "--run", "r").ended(2).says("hard is merged. Only a failed subtask can be retried")


def test_a_spent_budget_ends_the_run_and_a_higher_one_resumes_it(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), subtask("two", "one")))
    run(stage, repository, url, "--budget", "0.0001").ended(4).says(
        "ended: budget", "does not cover another call", "fleet resume r"
    )
    assert stage.status("r")["state"] == "budget"
    stage.fleet("resume", "r", "--base-url", url, "--budget", "50").ended(0)
    assert landed(repository, "r") == ["one", "two"]


def test_the_gate_of_the_repository_keeps_red_work_off_the_branch(stage: Stage, repository: Path, model: Serve) -> None:
    """Each is right by itself, both together are not: the later one is sent back, and comes again differently."""
    both = [subtask(name, run=f"test -f {name}.txt") for name in ("a", "b")]
    work = {name: [solve(name), {"do": "solve", "files": {f"{name}.txt": "fine\n"}}] for name in ("a", "b")}
    url = model(script(*both, workers=work))
    gated = stage.with_(FLEET_CHECKS_GATE="! { grep -qx a a.txt && grep -qx b b.txt; } 2>/dev/null")
    run(gated, repository, url).ended(0).says("sent back: integration", "(2 of 2)")
    first, second = landed(repository, "r")
    assert {first, second} == {"a", "b"}
    assert content(repository, "r", f"{first}.txt") == first
    assert content(repository, "r", f"{second}.txt") == "fine"
    assert incident(stage, second)["class"] == "integration"
