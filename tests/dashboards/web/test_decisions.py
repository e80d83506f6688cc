"""What a browser may ask of a run: what the command line can, by the same rules. Who and when is said here."""

from pathlib import Path
from typing import Any

import pytest

from fleet.core.facts import facts as f
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import PATCH, Client, client, site, story, unapproved


async def sent(tmp_path: Path, feed: MemoryFeed, path: str, **given: Any) -> tuple[int, str]:
    async with site(tmp_path, feed) as server, client(server) as someone:
        return await someone.decide(path, **given)


@pytest.mark.parametrize(
    ("kind", "given", "made"),
    [
        ("paused", {}, f.Paused),
        ("unpaused", {}, f.Unpaused),
        ("drain_requested", {}, f.DrainRequested),
        ("cancel_requested", {}, f.CancelRequested),
        ("limits_changed", {"workers": "5", "budget_dollars": "2.5", "budget_tokens": ""}, f.LimitsChanged),
        ("retry_requested", {"subtask": "docs", "guidance": "größer"}, f.RetryRequested),
        ("retry_requested", {"subtask": "docs"}, f.RetryRequested),
        ("question_answered", {"question": "q1", "answer": "19 %"}, f.QuestionAnswered),
        ("instruction_given", {"subtask": "cli", "text": "use argparse", "interrupt": "true"}, f.InstructionGiven),
        ("drop", {"subtask": "site", "why": "not needed"}, f.PlanRevised),
    ],
)
async def test_each_decision_becomes_one_request(
    tmp_path: Path, kind: str, given: dict[str, str], made: type[f.TimedFact]
) -> None:
    feed = MemoryFeed(story().facts)
    assert await sent(tmp_path, feed, f"/runs/r/requests/{kind}", **given) == (
        200, '{"ok": true, "message": "Sent. The run will apply it shortly."}',
    )  # fmt: skip
    (request,) = feed.requests
    assert isinstance(request, made)
    assert request.at == 60.0
    assert getattr(request, "by", "").startswith("ada via web ")


@pytest.mark.parametrize("only", [None, ["two"], "two"])
async def test_a_plan_is_approved_whole_or_in_part(tmp_path: Path, only: object) -> None:
    feed = MemoryFeed(unapproved().facts)
    part = {} if only is None else {"subtasks": only}
    status, text = await sent(tmp_path, feed, "/runs/r/requests/plan_approved", version="0", **part)
    assert (status, text) == (200, text)
    (request,) = feed.requests
    assert isinstance(request, f.PlanApproved)
    assert request.subtasks == (None if only is None else ("two",))


@pytest.mark.parametrize(
    ("path", "given", "problem"),
    [
        ("/runs/r/requests/plan_approved", {"version": 9}, "the plan is at version 0 now"),
        ("/runs/r/requests/plan_rejected", {"version": 0}, "reason"),
        ("/runs/r/requests/plan_rejected", {"version": 0, "reason": "x", "subtasks": ["nope"]}, "is not waiting"),
        ("/runs/r/requests/retry_requested", {"subtask": "one"}, "Only a failed subtask"),
        ("/runs/r/requests/question_answered", {"question": "q9", "answer": "x"}, "unknown question"),
        ("/runs/r/requests/limits_changed", {"workers": "many"}, "workers"),
        ("/runs/r/requests/limits_changed", {"workers": "0"}, "between 1 and 1000"),
        ("/runs/r/requests/drop", {"subtask": "one"}, "a reason is required"),
        ("/runs/r/requests/drop", {"subtask": "nope", "why": "x"}, "not valid"),
        ("/runs/r/requests/plan_revised", {}, "unknown request"),
        ("/runs/r/requests/engine_started", {}, "unknown request"),
        ("/runs/r/requests/resume", {}, "already running"),
        ("/runs/r/requests/plan", {"plan": "[[", "version": 0}, "nowhere"),
        ("/runs/r/requests/plan", {"plan": "", "version": 7}, "has changed since you opened it"),
        ("/runs/r/subtasks/one/comments", {"attempt": 1, "comments": []}, "no attempt 1 of one"),
        ("/runs/r/subtasks/one/comments", {"attempt": 0, "comments": []}, "attempt"),
        ("/runs/r/subtasks/nope/comments", {"attempt": 1, "comments": []}, "no attempt 1 of nope"),
    ],
)
async def test_a_decision_that_is_not_possible_is_explained(
    tmp_path: Path, path: str, given: dict[str, Any], problem: str
) -> None:
    feed = MemoryFeed(unapproved().facts)
    status, text = await sent(tmp_path, feed, path, **given)
    assert status == 409
    assert problem in text or problem == "nowhere"
    assert feed.requests == []


async def test_nothing_is_said_that_only_the_server_may_say(tmp_path: Path) -> None:
    feed = MemoryFeed(unapproved().facts)
    more = {"version": 0, "by": "root", "at": 1, "automatic": True, "left_out": ["two"], "kind": "paused"}
    assert (await sent(tmp_path, feed, "/runs/r/requests/plan_approved", **more))[0] == 200
    (request,) = feed.requests
    assert isinstance(request, f.PlanApproved)
    assert (request.by.partition(" ")[0], request.at, request.automatic, request.left_out) == ("ada", 60.0, False, None)


async def test_a_run_without_a_process_is_resumed(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts, alive=False)
    assert (await sent(tmp_path, feed, "/runs/r/requests/resume"))[0] == 200
    assert feed.resume_count == 1


async def test_the_plan_is_edited_as_its_file(tmp_path: Path) -> None:
    feed = MemoryFeed(unapproved().facts)
    async with site(tmp_path, feed) as server, client(server) as someone:
        _, _, page = await someone.get("/runs/r/plan")
        assert "<textarea" in page
        text = await _plan_text(someone)
        assert (await someone.decide("/runs/r/requests/plan", plan=text, version=0))[1].count("unchanged")
        changed = text.replace('"Build one"', '"Baue eins"').replace("\n", "\r\n")
        assert changed.replace("\r\n", "\n") != text
        assert (await someone.decide("/runs/r/requests/plan", plan=changed, version=0))[0] == 200
    (request,) = feed.requests
    assert isinstance(request, f.PlanRevised)
    assert [change.title for change in request.revision.revise] == ["Baue eins"]


async def _plan_text(someone: Client) -> str:
    import html  # noqa: PLC0415 - for this alone

    _, _, page = await someone.get("/runs/r/plan")
    text = page.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
    return html.unescape(text).removeprefix("\n")


async def test_comments_on_what_is_worked_on_reach_its_agent(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts, patch=PATCH)
    line = {"path": "shop/vat.py", "side": "new", "line": 2, "text": "use Decimal"}
    assert (await sent(tmp_path, feed, "/runs/r/subtasks/api/comments", attempt=1, comments=[line]))[0] == 200
    (request,) = feed.requests
    assert isinstance(request, f.InstructionGiven)
    assert request.text.endswith("- shop/vat.py:2 (new side): use Decimal")


async def test_comments_on_lines_become_the_guidance_of_the_next_attempt(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts, patch=PATCH)
    comments = [
        {"path": "shop/vat.py", "side": "new", "line": 2, "text": "use Decimal"},
        {"path": "shop/vat.py", "side": "old", "line": 2, "text": "why gone?"},
    ]
    path = "/runs/r/subtasks/docs/comments"
    assert (await sent(tmp_path, feed, path, attempt=1, comments=comments, text="Nearly."))[0] == 200
    (request,) = feed.requests
    assert isinstance(request, f.RetryRequested)
    assert request.subtask == "docs"
    first, *rest = request.guidance.splitlines()
    assert first.startswith("Review comments on attempt 1")
    assert rest == ["Nearly.", "- shop/vat.py:2 (new side): use Decimal", "- shop/vat.py:2 (old side): why gone?"]
