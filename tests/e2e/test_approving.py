"""Subtasks that need approval do not run, the others do: seen by a worker that leaves a trace.

Off a terminal; what is asked and typed on one is `test_review.py`'s part.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fleet.core.state.status import progress
from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, landed, script, solve, subtask, wait_for
from tests.e2e.terminal import at_a_terminal

RUN = "r"
NO_SERVICE = "http://127.0.0.1:9"
WORKER = """
[workers.step]
kind = "command"
command = '''python3 -c "import sys, urllib.request as u; u.urlopen(sys.argv[1] + sys.argv[2])" {url}/ {{id}}'''
network = true
"""


@pytest.fixture
def trace() -> Iterator[tuple[str, list[str]]]:
    """An address, and the steps that called there: what a worker did outside of its box."""
    seen: list[str] = []

    class Visit(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path.strip("/"))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in the library
            """Discards the output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Visit) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", seen
        server.shutdown()


@pytest.fixture
def order(stage: Stage, repository: Path, trace: tuple[str, list[str]]) -> tuple[str, ...]:
    """A plan of three steps that leave a trace each; the second is risky, the third builds on the first."""
    config, plan = stage.room / "fleet.toml", stage.room / "plan.json"
    config.write_text(WORKER.format(url=trace[0]), encoding="utf-8")
    steps = [
        {"id": "one", "action": "one", "worker": "step"},
        {"id": "two", "action": "two", "worker": "step", "risk": "high"},
        {"id": "three", "action": "three", "worker": "step", "depends_on": ["one"]},
    ]
    plan.write_text(json.dumps({"goal": "Leave traces", "steps": steps}), encoding="utf-8")
    given = ("--plan", str(plan), "--config", str(config), "--base-url", NO_SERVICE, "--repo", str(repository))
    return ("run", "--name", RUN, *given)


def awaiting(stage: Stage, *ids: str) -> bool:
    return tuple(stage.status(RUN)["waiting_for_approval"]) == ids


def test_by_the_rules_a_risky_step_waits_while_the_rest_continues(
    stage: Stage, order: tuple[str, ...], trace: tuple[str, list[str]]
) -> None:
    with stage.going(*order) as going:
        stage.wait(RUN, lambda state: progress(state).done == 2, going)
        assert trace[1] == ["one", "three"]
        stage.fleet("status", RUN).ended(0).says("needed for two (its risk is high)", f"fleet approve {RUN}")
        assert stage.status(RUN)["state"] == "awaiting approval"
        stage.fleet("approve", RUN).ended(0).says("needs approval: its risk is high", "plan version 1 approved")
        done = going.done().ended(0).says("approved by the review rules (one, three)", "approved by")
        done.says(f"WAITING for your approval: two (its risk is high)  →  fleet approve {RUN}")
    assert trace[1] == ["one", "three", "two"]


def test_nothing_runs_before_a_person_says_so_and_of_a_part_only_that_part(
    stage: Stage, order: tuple[str, ...], trace: tuple[str, list[str]]
) -> None:
    with stage.going(*order, "--review", "human") as going:
        wait_for(lambda: "WAITING for your approval: the plan" in going.output, going)
        stage.wait(RUN, lambda _: awaiting(stage, "one", "two", "three"), going)
        shown = stage.fleet("approve", RUN, "--dry-run", "--json").ended(0).json
        assert (shown["done"], shown["subtasks"]) == (False, ["one", "two", "three"])
        stage.fleet("approve", RUN, "--only", "four").ended(2).says("four is not waiting for approval")
        assert (awaiting(stage, "one", "two", "three"), trace[1]) == (True, [])
        part = stage.fleet("approve", RUN, "--only", "two", "--json").ended(0).json
        assert (part["done"], part["subtasks"], part["waiting"]) == (True, ["two"], {"one": [], "three": []})
        stage.wait(RUN, lambda state: progress(state).done == 1, going)
        assert (awaiting(stage, "one", "three"), trace[1]) == (True, ["two"])
        stage.fleet("approve", RUN, "--yes").ended(0)
        going.done().ended(0).says("WAITING for your approval: the plan", "LANDED")
    assert trace[1] == ["two", "one", "three"]
    stage.fleet("approve", RUN).ended(2).says("has already ended (landed)")


def test_without_a_review_nothing_waits(stage: Stage, order: tuple[str, ...], trace: tuple[str, list[str]]) -> None:
    stage.fleet(*order, "--review", "none").ended(0).says("LANDED")
    assert sorted(trace[1]) == ["one", "three", "two"]


@pytest.mark.thorough
def test_a_plan_that_was_not_approved_in_time_can_be_approved_later(
    stage: Stage, order: tuple[str, ...], trace: tuple[str, list[str]]
) -> None:
    brief = stage.with_(FLEET_LIMITS_ANSWER_WAIT_MINUTES="0.01")
    brief.fleet(*order).ended(1).says("PARTIAL", "no one approved two", f"fleet approve {RUN}")
    assert trace[1] == ["one", "three"]
    brief.fleet("report", RUN).ended(0).says(f"fleet approve {RUN}", "its risk is high")
    brief.fleet("approve", RUN).ended(0).says(f"fleet resume {RUN}")
    going = brief.fleet("resume", RUN).ended(0).says("LANDED")
    assert "WAITING for your" not in going.output
    assert trace[1] == ["one", "three", "two"]


def test_on_a_terminal_approve_shows_the_plan_and_takes_only_a_clear_yes(
    stage: Stage, order: tuple[str, ...], trace: tuple[str, list[str]]
) -> None:
    with stage.going(*order, "--review", "human") as going:
        stage.wait(RUN, lambda _: awaiting(stage, "one", "two", "three"), going)
        with at_a_terminal(stage, "approve", RUN) as terminal:
            terminal.shows("Approve this? [y/N]")
            terminal.types("\n")
            terminal.ended(1)
        assert "risk high, worker step" in terminal.text
        assert "Waiting for approval: 3 of 3 subtasks. No subtask starts before that." in terminal.text
        assert "not approved. The plan is still pending" in terminal.text
        assert (awaiting(stage, "one", "two", "three"), trace[1]) == (True, [])
        with at_a_terminal(stage, "approve", RUN) as terminal:
            terminal.shows("Approve this? [y/N]")
            terminal.types("y\n")
            terminal.ended(0)
        going.done().ended(0)


def test_a_rejected_plan_goes_back_to_the_planner_and_what_it_revised_is_approved_and_lands(
    stage: Stage, repository: Path, model: Serve
) -> None:
    better = {"assessment": "The person is right: {answer}", "revise": [{"id": "two", "title": "Write two, with care"}]}
    url = model(script(subtask("one"), subtask("two"), steps=[{"when": {"rejected": "*care*"}, "revision": better}]))
    asked = ("run", "Write", "--name", RUN, "--base-url", url, "--repo", str(repository), "--review", "human")
    with stage.going(*asked) as going:
        stage.wait(RUN, lambda _: awaiting(stage, "one", "two"), going)
        stage.fleet("reject", RUN).ended(2).says("a reason is required")
        stage.fleet("reject", RUN, "-m", "two needs more care").ended(0).says("rejected. The planner will revise it")
        stage.wait(RUN, lambda state: state.plan.version == 2, going)
        assert stage.look(RUN).attempts == 0  # type: ignore[union-attr]
        shown = stage.fleet("approve", RUN).ended(0)
        shown.says("since it was rejected: title: Write two → Write two, with care", "by planner: The person is right")
        going.done().ended(0).says("rejected by", "two needs more care", "LANDED")
    assert sorted(landed(repository, RUN)) == ["one", "two"]
    for commit in audited(stage):
        approval = commit["approval"]
        assert (approval["version"], approval["automatic"], approval["required"]) == (2, False, True)
        [no] = approval["rejections"]
        assert (no["version"], no["why"], no["by"]) == (1, "two needs more care", approval["by"])
    page = stage.fleet("report", RUN, "--html").ended(0).out
    assert "Approvals" in page
    assert page.index("two needs more care") < page.index(">approved<")


@pytest.mark.thorough
def test_in_the_middle_of_a_run_a_small_revision_flows_and_a_risky_one_waits(
    stage: Stage, repository: Path, model: Serve
) -> None:
    more = {"assessment": "Two more.", "add": [subtask("small", "one"), subtask("risky", "one", risk="high")]}
    workers = {"small": [solve("small")], "risky": [solve("risky")]}
    url = model(script(subtask("one"), steps=[{"when": {"merged": ["one"]}, "revision": more}], workers=workers))
    asked = ("run", "Write", "--name", RUN, "--base-url", url, "--repo", str(repository), "--review", "human")
    with stage.going(*asked) as going:
        stage.wait(RUN, lambda _: awaiting(stage, "one"), going)
        stage.fleet("approve", RUN).ended(0)
        stage.wait(RUN, lambda state: state.published and landed(repository, RUN) == ["one", "small"], going)
        assert awaiting(stage, "risky")
        shown = stage.fleet("approve", RUN).ended(0)
        shown.says("risky", "1 of 3 subtasks. The others keep running")
        assert "small" not in shown.output
        going.done().ended(0).says("WAITING for your approval: risky (its risk is high)", "LANDED")
    assert landed(repository, RUN) == ["one", "small", "risky"]
    [one, small, risky] = [commit["approval"] for commit in audited(stage)]
    assert (small["by"], small["automatic"], small["broken_rules"]) == ("the review rules", True, [])
    assert (risky["automatic"], risky["broken_rules"], risky["version"]) == (False, ["its risk is high"], 2)
    assert (one["automatic"], one["version"], risky["by"]) == (False, 1, one["by"])
    stage.fleet("audit", RUN).says(
        "a person approves the first plan", "(max_risk medium)", "not approved by the rules: its risk is high"
    )


def audited(stage: Stage) -> list[Json]:
    view: Json = stage.fleet("audit", RUN, "--json").ended(0).json
    return list(view["commits"])
