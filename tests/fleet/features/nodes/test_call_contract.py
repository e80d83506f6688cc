"""What a worker on a node may rely on for its calls, and what its manager may rely on: both ends, a scripted service.

The same promises hold for a conversation of ours and for an agent in the box.
"""

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from aiohttp import web

from agents.factory import open_agents
from agents.models.answer import Request
from agents.models.prices import Lifetimes
from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import (
    CallRefusedError,
    DrainingError,
    WorkerBrief,
)
from tests.agents.conftest import (
    KEY,
    Body,
    Reply,
    Script,
    events,
    fails,
    model,
    no_environment,
    says,
    sse,
    text,
    use,
    worker_settings,
)
from tests.fleet.core.pretend import subtask
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.call_rig import Rig

__all__ = ["model", "no_environment"]  # fixtures of others

pytestmark = pytest.mark.anyio
STEP = says(use("bash", {"command": "true"}))
DONE = says(use("report", {"status": "done", "summary": "did it"}, id="toolu_9"))
GONE = fails(404, "not_found_error", "model: it is not there")


@pytest.fixture(params=["coder", "claude-code"])
def rig(request: pytest.FixtureRequest, model: Script, tmp_path: Path) -> Rig:
    return Rig(request.param, model, tmp_path)


@pytest.fixture
def conversation(model: Script, tmp_path: Path) -> Rig:
    return Rig("coder", model, tmp_path)


REPORTED = Report(status="done", summary="did it")


# ---- answered


async def test_calls_are_answered_paid_once_and_put_on_record_once(rig: Rig) -> None:
    rig.script.will(STEP, STEP, DONE)
    assert await rig.attempt() == REPORTED
    assert [each.turn for each in rig.meter.uses] == [1, 2, 3]
    assert [each.doing for each in rig.meter.uses] == ["bash true", "bash true", "report"]
    assert [each.usage.total for each in rig.meter.uses] == [135] * 3
    assert all(each.dollars for each in rig.meter.uses)
    assert len(rig.meter.reserved) == 3
    assert rig.meter.released == []
    assert rig.count("answer") == 3
    turns = [line["turn"] for line in rig.transcript if line["event"] == "answer"]
    assert turns == [1, 2, 3]


async def test_a_key_never_gets_to_a_node_and_its_requests_have_ours(rig: Rig) -> None:
    rig.script.will(fails(401, "authentication_error", f"no, {KEY}"), DONE)
    outcome = await rig.attempt()
    assert isinstance(outcome, Failure)
    assert outcome.kind == "configuration"
    assert KEY not in outcome.model_dump_json()
    rig.taps.clear()
    assert await rig.attempt(number=2) == REPORTED
    assert {sent["authorization"] for sent in rig.script.headers} == {f"Bearer {KEY}"}
    assert KEY.encode() not in b"".join(part for tap in rig.taps for part in tap.sent)
    assert KEY not in json.dumps(rig.transcript)


async def test_an_answer_arrives_as_the_service_streams_it(rig: Rig) -> None:
    asked = anyio.Event()
    words = "more than ASCII: ∞ \U0001f41a"
    slow = sse(events([text(words), use("report", {"status": "done", "summary": "did it"})]))

    async def reply(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await slow(request)

    rig.script.will(reply)
    assert await rig.attempt() == REPORTED
    [said] = [each.said for each in rig.meter.uses]
    assert said == words
    [answer] = [line for line in rig.transcript if line["event"] == "answer"]
    assert answer["content"][0] == text(words)


async def test_both_kinds_ask_the_service_for_the_model_of_the_order(rig: Rig) -> None:
    rig.script.will(STEP, DONE)
    await rig.attempt(model="claude-haiku-5-5")
    assert {asked["model"] for asked in rig.script.asked} == {"claude-haiku-5-5"}
    assert {each.model for each in rig.meter.uses} == {"claude-haiku-5-5"}


async def test_a_conversation_on_a_node_asks_what_one_here_asks(conversation: Rig) -> None:
    conversation.script.will(STEP, DONE, STEP, DONE)
    await conversation.attempt(effort="high")
    async with conversation.opened() as agents:
        brief = WorkerBrief(run=RunId("r"), subtask=subtask("a"), attempt=1, model=None, effort="high")
        await agents.workers["one"].run(brief, conversation.workspace, conversation.meter)
    there, here = conversation.script.asked[:2], conversation.script.asked[2:]
    assert there == here
    reserved = [each.tokens for each in conversation.meter.reserved]
    assert reserved[:2] == pytest.approx(reserved[2:], rel=0.05)
    assert all(asked["stream"] for asked in there)


# ---- refused


async def test_a_budget_that_is_spent_ends_the_attempt_before_a_call(rig: Rig) -> None:
    rig.meter.calls = 0
    outcome = await rig.attempt()
    assert isinstance(outcome, Failure)
    assert (outcome.kind, rig.script.asked) == ("spent", [])


async def test_the_limit_of_a_worker_holds_there_too(rig: Rig) -> None:
    rig.worker["tokens"] = 200
    rig.script.will(STEP)
    outcome = await rig.attempt()
    assert isinstance(outcome, Failure)
    assert (outcome.kind, len(rig.script.asked)) == ("budget", 2)
    assert "limit of its worker: 200" in outcome.summary


async def test_an_answer_is_shortened_to_what_the_budget_has_room_for(conversation: Rig) -> None:
    conversation.meter.share = 0.0
    conversation.script.will(DONE)
    await conversation.attempt()
    [reserved], [asked] = conversation.meter.reserved, conversation.script.asked
    assert 0 < asked["max_tokens"] <= reserved.tokens < conversation.settings("x").models.max_tokens


async def test_a_rate_limit_is_waited_for_as_here(rig: Rig) -> None:
    rig.script.will(fails(429, "rate_limit_error", headers={"retry-after": "0.3"}), DONE)
    async with rig.opened() as agents:
        assert await rig.attempt(agents) == REPORTED
        gauges = agents.gauges()
    assert (gauges.calls, gauges.answers, gauges.faults, gauges.underway) == (2, 1, {"limit": 1}, 0)
    assert len(rig.meter.uses) == 1
    assert rig.count("fault") == 1


async def test_the_clock_of_a_conversation_stands_still_while_it_waits_for_a_permit(conversation: Rig) -> None:
    conversation.worker["time_s"] = 1.0
    conversation.script.will(fails(429, "rate_limit_error", headers={"retry-after": "1.5"}), DONE)
    assert await conversation.attempt() == REPORTED


async def test_the_clock_of_a_conversation_runs_while_its_answer_comes(conversation: Rig) -> None:
    conversation.worker["time_s"] = 0.5
    conversation.script.will(sse(events([text("on and on")])[:3], then="ping"))
    with anyio.fail_after(20):
        outcome = await conversation.attempt()
    assert isinstance(outcome, Failure)
    assert (outcome.kind, "no report after 0.5 s" in outcome.summary) == ("budget", True)


async def test_what_is_left_of_a_quota_is_known_after_a_call(rig: Rig) -> None:
    quotas = {"anthropic-ratelimit-requests-limit": "100", "anthropic-ratelimit-requests-remaining": "7"}
    rig.script.will(sse(events([use("report", {"status": "done", "summary": "did it"})]), headers=quotas))
    async with rig.opened() as agents:
        await rig.attempt(agents)
        [granted] = agents.gauges().granted
    assert (granted.counted, granted.limit_a_minute) == ("requests", 100)


async def test_an_outage_is_waited_for_and_a_person_is_told(rig: Rig) -> None:
    rig.meter.answered_before = True
    rig.script.will(fails(401, "authentication_error"), DONE)
    async with rig.opened() as agents, anyio.create_task_group() as tasks:
        outcomes: list[Report | Failure] = []

        async def attempt() -> None:
            outcomes.append(await rig.attempt(agents))

        tasks.start_soon(attempt)
        await wait_until(lambda: bool(rig.meter.notices))
        rig.meter.answers += 1  # a person says that it should work now
    assert outcomes == [REPORTED]
    assert [notice.condition for notice in rig.meter.notices] == ["refused", "up"]


async def test_a_draining_run_makes_no_call_that_would_wait(rig: Rig) -> None:
    rig.meter.drained = True
    rig.script.will(fails(429, "rate_limit_error", headers={"retry-after": "3600"}))
    with pytest.raises(DrainingError):
        await rig.attempt()
    assert len(rig.script.asked) == 1


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (fails(529, "overloaded_error"), "transient"),
        (fails(400, "invalid_request_error", "prompt is too long: 3 tokens"), "too_complex"),
        (fails(400, "invalid_request_error", "no such thing"), "configuration"),
        (GONE, "configuration"),
    ],
)
async def test_a_fault_of_a_first_call_is_called_what_it_is_called_here(
    conversation: Rig, reply: Reply, kind: str
) -> None:
    conversation.manager["retries"] = 1
    conversation.script.will(reply)
    there = await conversation.attempt()
    async with conversation.opened() as agents:
        brief = WorkerBrief(run=RunId("r"), subtask=subtask("a"), attempt=1, model=None)
        here = await agents.workers["one"].run(brief, conversation.workspace, conversation.meter)
    assert isinstance(there, Failure)
    assert there == here
    assert there.kind == kind


async def test_a_refusal_in_the_middle_is_a_matter_of_one_conversation(conversation: Rig) -> None:
    conversation.script.will(STEP, fails(400, "invalid_request_error", "no such thing"))
    outcome = await conversation.attempt()
    assert isinstance(outcome, Failure)
    assert outcome.kind == "protocol"


async def test_a_fault_is_retried_by_the_manager_and_put_on_record_there(rig: Rig) -> None:
    rig.script.will(fails(529, "overloaded_error"), STEP, DONE)
    assert await rig.attempt() == REPORTED
    assert (len(rig.script.asked), len(rig.meter.uses), rig.meter.released) == (3, 2, [False])
    assert (rig.count("fault"), rig.count("answer")) == (1, 2)


async def test_an_answer_that_breaks_off_is_paid_for(rig: Rig) -> None:
    rig.manager["retries"] = 1
    rig.script.will(sse(events([text("hello")])[:3]))
    outcome = await rig.attempt()
    assert isinstance(outcome, Failure)
    assert outcome.kind == "transient"
    assert [each.doing for each in rig.meter.uses] == ["an interrupted answer"]


async def test_an_answer_that_breaks_off_is_asked_for_again(conversation: Rig) -> None:
    conversation.script.will(sse(events([text("hello")])[:3]), STEP, DONE)
    assert await conversation.attempt() == REPORTED
    doing = [each.doing for each in conversation.meter.uses]
    assert doing == ["an interrupted answer", "bash true", "report"]
    assert (conversation.count("fault"), conversation.count("answer")) == (1, 2)


# ---- models


async def test_a_model_that_is_gone_is_replaced_and_the_next_attempt_begins_with_the_other(conversation: Rig) -> None:
    name = conversation.settings("x").models.worker
    conversation.manager["fallbacks"] = {name: "claude-other-1"}

    async def reply(request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["model"]
        return await (GONE if asked == name else DONE)(request)

    conversation.script.will(reply)
    async with conversation.opened() as agents:
        assert await conversation.attempt(agents) == REPORTED
        assert await conversation.attempt(agents, number=2) == REPORTED
    assert [asked["model"] for asked in conversation.script.asked] == [name, "claude-other-1", "claude-other-1"]


async def test_what_a_service_refuses_is_left_out_and_a_person_is_told_once(conversation: Rig) -> None:
    async def reply(request: web.Request) -> web.StreamResponse:
        refused = fails(400, "invalid_request_error", "diagnostics: Extra inputs are not permitted")
        return await (refused if "diagnostics" in await request.json() else DONE)(request)

    conversation.script.will(reply)
    async with conversation.opened() as agents:
        assert await conversation.attempt(agents) == REPORTED
        assert await conversation.attempt(agents, number=2) == REPORTED
    assert ["diagnostics" in asked for asked in conversation.script.asked] == [True, False, False]
    assert len(conversation.meter.warnings) == 1


async def test_what_a_service_is_configured_to_lack_is_never_asked_of_it(conversation: Rig) -> None:
    conversation.manager["without"] = ("thinking", "diagnostics", "cache")
    conversation.script.will(DONE)
    await conversation.attempt()
    [asked] = conversation.script.asked
    assert not {"thinking", "diagnostics"} & asked.keys()
    assert "cache_control" not in json.dumps(asked)


# ---- the cache


async def test_a_prompt_that_attempts_share_is_written_to_the_cache_once(conversation: Rig) -> None:
    """The second of two attempts calls once the first one's answer has begun."""
    hold, underway = anyio.Event(), list[int]()

    async def reply(request: web.Request) -> web.StreamResponse:
        underway.append(len(conversation.script.asked))
        await hold.wait()
        return await DONE(request)

    conversation.script.will(reply)
    layout = "a file\n" * 20_000
    async with conversation.opened() as agents, anyio.create_task_group() as tasks:
        for number in (1, 2):
            tasks.start_soon(partial(conversation.attempt, agents, number, layout=layout))
        await wait_until(lambda: bool(underway))
        await anyio.sleep(0.5)
        assert underway == [1]
        hold.set()
    assert len(conversation.script.asked) == 2


async def test_a_prompt_is_kept_in_the_cache_while_a_command_runs(conversation: Rig) -> None:
    kept = {"id": "m", "model": "claude-haiku-5-5", "content": [], "stop_reason": "max_tokens"}
    usage = {"input_tokens": 1, "output_tokens": 0, "cache_read_input_tokens": 50}

    async def reply(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body["max_tokens"]:
            return web.json_response(kept | {"usage": usage})
        return await (says(use("bash", {"command": "sleep 1"})) if len(body["messages"]) == 1 else DONE)(request)

    def prepare(worker: Any) -> Any:
        worker.caller.times = Lifetimes(short_s=0.5, margin_s=0.2)
        return worker

    conversation.prepare = prepare
    conversation.script.will(reply)
    assert await conversation.attempt(model="claude-haiku-5-5") == REPORTED
    touches = [asked for asked in conversation.script.asked if not asked["max_tokens"]]
    assert 1 <= len(touches) <= 3
    doing = [each.doing for each in conversation.meter.uses]
    assert doing[1 : 1 + len(touches)] == ["keeps its prompt in the cache"] * len(touches)
    assert doing[-1] == "report"
    assert [each.turn for each in conversation.meter.uses] == [1, *[1] * len(touches), 2]
    assert conversation.count("answer") == 2, "an answer that says nothing is no part of the conversation"


# ---- links and ends


async def test_a_call_is_made_once_however_often_the_link_breaks(rig: Rig) -> None:
    hold = anyio.Event()

    async def reply(request: web.Request) -> web.StreamResponse:
        await hold.wait()
        return await DONE(request)

    rig.script.will(reply)
    async with rig.opened() as agents, anyio.create_task_group() as tasks:
        outcomes: list[Report | Failure] = []

        async def attempt() -> None:
            outcomes.append(await rig.attempt(agents))

        tasks.start_soon(attempt)
        await wait_until(lambda: bool(rig.script.asked))
        for links in (2, 3):
            rig.link.cancel()
            await wait_until(partial(rig.has_links, links))
        hold.set()
    assert outcomes == [REPORTED]
    assert (len(rig.script.asked), len(rig.meter.uses)) == (1, 1)


async def test_an_attempt_that_is_over_has_no_call_under_way_and_what_it_used_is_charged(rig: Rig) -> None:
    rig.script.will(sse(events([text("on and on")])[:3], then="ping"))
    async with rig.opened() as agents:
        with anyio.move_on_after(20) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(rig.attempt, agents)
                await wait_until(lambda: bool(rig.script.asked))
                await anyio.sleep(0.3)
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        gauges = agents.gauges()
    assert (gauges.underway, gauges.waiting) == (0, 0)
    assert bool(rig.meter.uses) != bool(rig.meter.released), "it is charged, or its reservation lost: once"
    assert rig.meter.released in ([], [True])


# ---- nodes that lie


@dataclass(frozen=True)
class Tampering:
    """Satisfies `Calls`: asks for something else than the conversation does."""

    caller: Any
    change: Body
    times: int = 1
    """How often it sends each request."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.caller, name)

    async def call(self, request: Request, *args: Any, **named: Any) -> Any:
        for _ in range(self.times - 1):
            await self.caller.call(replace(request, **self.change), *args, **named)
        return await self.caller.call(replace(request, **self.change), *args, **named)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "claude-opus-9"}, "requested the model 'claude-opus-9'"),
        ({"effort": "max"}, "requested the effort 'max'"),
        ({"max_tokens": 999_999}, "an answer of 999999 tokens"),
        ({"tools": ({"type": "web_search_20250305", "name": "w"},)}, "a tool that runs on the service"),
    ],
)
async def test_what_its_order_does_not_have_is_a_lie_and_costs_nothing(
    conversation: Rig, change: Body, why: str
) -> None:
    conversation.prepare = lambda worker: replace(worker, caller=Tampering(worker.caller, change))
    conversation.script.will(DONE)
    with pytest.raises(CallRefusedError, match=why):
        await conversation.attempt(effort="low")
    assert (conversation.script.asked, conversation.meter.uses, conversation.meter.reserved) == ([], [], [])


async def test_more_calls_than_turns_are_a_lie_and_the_first_ones_are_all_that_is_paid(conversation: Rig) -> None:
    conversation.worker["turns"] = 2
    conversation.prepare = lambda worker: replace(worker, caller=Tampering(worker.caller, {}, times=9))
    conversation.script.will(STEP)
    with pytest.raises(CallRefusedError, match="more than 2 calls"):
        await conversation.attempt()
    assert (len(conversation.script.asked), len(conversation.meter.uses)) == (2, 2)


async def test_a_conversation_that_asks_again_and_again_pays_within_its_budget(conversation: Rig) -> None:
    conversation.meter.calls = 2
    conversation.prepare = lambda worker: replace(worker, caller=Tampering(worker.caller, {}, times=4))
    conversation.script.will(STEP)
    outcome = await conversation.attempt()
    assert isinstance(outcome, Failure)
    assert (outcome.kind, len(conversation.script.asked)) == ("spent", 2)


@pytest.mark.parametrize("asks", [{"model": "claude-opus-9"}, {"model": ["x"]}])
async def test_an_agent_that_asks_for_another_model_is_refused_and_its_node_is_not_blamed(
    model: Script, tmp_path: Path, asks: Body
) -> None:
    rig = Rig("claude-code", model, tmp_path)
    rig.session.asks = asks
    outcome = await rig.attempt()
    assert isinstance(outcome, Failure)
    assert (rig.session.statuses, model.asked, rig.meter.uses) == ([400], [], [])


async def test_an_order_for_a_program_makes_no_call(model: Script, tmp_path: Path) -> None:
    rig = Rig("coder", model, tmp_path, manager={}, node_worker={})
    async with rig.opened() as agents:
        settings = rig.settings("other", workers={"one": worker_settings(kind="command", command=("true",))})
        async with open_agents(settings) as others:
            with pytest.raises(CallRefusedError, match="its order is a program"):
                await rig.attempt(replace(agents, calls=others.calls))
    assert model.asked == []
