"""Requests that the service refuses because of one conversation: it is squeezed once, and no run stops."""

from datetime import UTC, datetime

import pytest

from agents.models.exchange import fault_of
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import WorkerBrief
from tests.agents.conftest import (
    Body,
    FakeMeter,
    FolderWorkspace,
    Script,
    agents_for,
    fails,
    says,
    text,
    use,
)

pytestmark = pytest.mark.anyio
BOUND = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
REFUSED = fails(400, "invalid_request_error", BOUND)
THINKING: Body = {"type": "thinking", "thinking": "I look.", "signature": "s1"}
LOOK = says(THINKING, use("bash", {"command": "true"}))
DONE = says(use("report", {"status": "done", "summary": "greeted"}, id="toolu_9"))


def kinds(body: Body) -> set[str]:
    return {block["type"] for message in body["messages"] for block in message["content"]}


async def test_thinking_that_no_longer_fits_is_left_out_and_the_conversation_goes_on(
    model: Script, workspace: FolderWorkspace, meter: FakeMeter, brief: WorkerBrief
) -> None:
    model.will(LOOK, REFUSED, DONE)
    async with agents_for(model, workspace.folder) as agents:
        result = await agents.workers["coder"].run(brief, workspace, meter)
    assert isinstance(result, Report)
    assert "thinking" in kinds(model.asked[1])
    assert "thinking" not in kinds(model.asked[2])
    assert {"tool_use", "tool_result"} <= kinds(model.asked[2])


async def test_a_conversation_that_stays_refused_is_compacted_and_then_fails_alone(
    model: Script, workspace: FolderWorkspace, meter: FakeMeter, brief: WorkerBrief
) -> None:
    model.will(LOOK, REFUSED)
    async with agents_for(model, workspace.folder) as agents:
        result = await agents.workers["coder"].run(brief, workspace, meter)
    assert isinstance(result, Failure)
    assert result.kind == "protocol"
    assert "bound to a different conversation" in result.summary
    assert 3 <= len(model.asked) <= 4


async def test_whatever_is_refused_after_a_first_answer_is_a_matter_of_the_conversation(
    model: Script, workspace: FolderWorkspace, meter: FakeMeter, brief: WorkerBrief
) -> None:
    model.will(LOOK, fails(400, "invalid_request_error", "something is wrong with this request"), DONE)
    async with agents_for(model, workspace.folder) as agents:
        assert isinstance(await agents.workers["coder"].run(brief, workspace, meter), Report)


async def test_a_setting_that_is_refused_at_once_is_still_a_misconfiguration(
    model: Script, workspace: FolderWorkspace, meter: FakeMeter, brief: WorkerBrief
) -> None:
    model.will(fails(400, "invalid_request_error", "max_tokens: 999 > 64"))
    async with agents_for(model, workspace.folder) as agents:
        result = await agents.workers["coder"].run(brief, workspace, meter)
    assert isinstance(result, Failure)
    assert result.kind == "configuration"


async def test_an_unasked_compaction_is_answered_like_a_pause(
    model: Script, workspace: FolderWorkspace, meter: FakeMeter, brief: WorkerBrief
) -> None:
    model.will(says(text("…"), stop="compaction"), DONE)
    async with agents_for(model, workspace.folder) as agents:
        assert isinstance(await agents.workers["coder"].run(brief, workspace, meter), Report)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (BOUND, "conversation"),
        ("messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: a", "conversation"),
        ("messages: roles must alternate", "conversation"),
        ("prompt is too long: 210000 tokens > 200000 maximum", "too_long"),
        ("max_tokens: 200000 > 128000", "configuration"),
        ("thinking.type: not supported", "configuration"),
    ],
)
def test_a_refusal_is_a_matter_of_the_conversation_if_it_names_its_messages(message: str, kind: str) -> None:
    document = {"error": {"type": "invalid_request_error", "message": message}}
    assert fault_of(400, document, {}, default="", now=datetime.now(UTC)).kind == kind
