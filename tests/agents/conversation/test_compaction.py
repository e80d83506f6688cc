"""Long conversations become shorter and stay valid: every call keeps its result, every answer its text."""

from pathlib import Path
from typing import Any

import pytest

from agents.conversation.history import PromptLimits, compact, prompt_limits
from agents.models.answer import Message, size, without_thinking
from agents.models.prices import ModelLimits, Price
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import WorkerBrief
from tests.agents.conftest import FakeMeter, FolderWorkspace, Script, agents_for, fails, says, text, use

pytestmark = pytest.mark.anyio
DONE = says(use("report", {"status": "done", "summary": "greeted"}, id="toolu_9"))
SMALL = ModelLimits(context_tokens=200_000, output_tokens=64_000, cache_minimum_tokens=512)
TOO_LONG = fails(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")


def conversation(turns: int, result: str) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "<subtask>{}</subtask>"}]}]
    for turn in range(turns):
        calls = [use("bash", {"command": f"cat {turn}-{n}"}, id=f"toolu_{turn}_{n}") for n in range(2)]
        messages.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, *calls]})
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": result} for call in calls]
        messages.append({"role": "user", "content": results})
    return messages


def is_valid(messages: list[Message]) -> bool:
    """Sides take turns, it ends with us, and each call has its result in the message after it."""
    sides = [message["role"] for message in messages]
    turns = sides == ["user", "assistant"] * (len(sides) // 2) + ["user"]
    called = [{b["id"] for b in m["content"] if b["type"] == "tool_use"} for m in messages if m["role"] == "assistant"]
    answered = [{b["tool_use_id"] for b in m["content"] if b["type"] == "tool_result"} for m in messages[2::2]]
    return turns and called == answered


@pytest.mark.parametrize("turns", [1, 2, 3, 8, 40])
@pytest.mark.parametrize("share", [0.9, 0.5, 0.1, 0.0])
def test_whatever_is_left_out_the_conversation_stays_valid_and_becomes_shorter(turns: int, share: float) -> None:
    messages = conversation(turns, "x" * 5_000)
    compacted = compact(messages, int(size(messages) * share), before_last=False)
    assert compacted is not None
    assert is_valid(compacted.messages)
    assert size(compacted.messages) < size(messages)
    assert compacted.messages[0]["content"][0] == messages[0]["content"][0]
    answers = [message for message in compacted.messages if message["role"] == "assistant"]
    assert (
        answers
        == [message for message in without_thinking(messages) if message["role"] == "assistant"][-len(answers) :]
    )


def test_old_results_lose_their_middle_first_and_the_last_turns_nothing() -> None:
    messages = conversation(20, "begin" + "x" * 5_000 + "end")
    compacted = compact(messages, int(size(messages) * 0.7), before_last=False)
    assert compacted is not None
    assert len(compacted.messages) == len(messages)
    assert "characters left out" in compacted.messages[2]["content"][0]["content"]
    assert compacted.messages[2]["content"][0]["content"].startswith("begin")
    assert compacted.messages[-16:] == without_thinking(messages)[-16:]


def test_thinking_goes_from_every_turn_because_what_it_is_bound_to_has_changed() -> None:
    messages = conversation(20, "x" * 5_000)
    messages[1]["content"] = [{"type": "redacted_thinking", "data": "…"}]  # an answer of nothing else
    messages[2]["content"] = [{"type": "text", "text": "Go on."}]
    for share in (0.9, 0.1):
        compacted = compact(messages, int(size(messages) * share), before_last=False)
        assert compacted is not None
        kinds = {block["type"] for message in compacted.messages for block in message["content"]}
        assert kinds <= {"text", "tool_use", "tool_result"}
        assert is_valid(compacted.messages)


def test_then_old_turns_become_a_list_of_what_was_done() -> None:
    messages = conversation(20, "exit 1: no such table")
    compacted = compact(messages, int(size(messages) * 0.6), before_last=False)
    assert compacted is not None
    assert len(compacted.messages) < len(messages)
    summary = compacted.messages[0]["content"][-1]["text"]
    assert "- bash(command=cat 0-1)" in summary
    assert "→ exit 1: no such table" in summary


def test_a_text_that_must_stay_last_stays_last() -> None:
    messages = conversation(20, "x" * 900)
    messages[0]["content"].append({"type": "text", "text": "<state>{}</state>"})
    compacted = compact(messages, 0, before_last=True)
    assert compacted is not None
    assert compacted.messages[0]["content"][-1]["text"] == "<state>{}</state>"


def test_what_can_not_be_shorter_is_left_alone() -> None:
    assert compact(conversation(0, ""), 0, before_last=False) is None
    assert compact(conversation(1, "ok"), 0, before_last=False) is None


def test_a_model_with_a_dearer_band_has_room_up_to_it_and_others_up_to_what_they_take() -> None:
    assert prompt_limits("claude-haiku-5-5", SMALL, 16_000, {}, at=0.5, to=0.25) == PromptLimits(50_000, 25_000)
    assert prompt_limits("claude-sonnet-5-5", SMALL, 16_000, {}, at=0.5, to=0.25) == PromptLimits(92_000, 46_000)
    even = {"claude-haiku-5-5": Price(input=1, output=1)}
    assert prompt_limits("claude-haiku-5-5-20260101", SMALL, 16_000, even, at=0.5, to=0.25).maximum == 92_000
    assert prompt_limits("claude-haiku-5-5", SMALL, 16_000, even, at=0.5, to=0.25).maximum == 92_000


class Talk:
    """A worker's conversation with a scripted model, and its transcript."""

    def __init__(self, model: Script, folder: Path, brief: WorkerBrief, workspace: FolderWorkspace) -> None:
        self.model, self.folder, self.brief, self.workspace = model, folder, brief, workspace

    async def __call__(self, **settings: Any) -> Report | Failure:
        async with agents_for(self.model, self.folder, **settings) as agents:
            return await agents.workers["coder"].run(self.brief, self.workspace, FakeMeter())

    def transcript(self) -> str:
        return (self.folder / "transcripts" / "greet.1.jsonl").read_text()


@pytest.fixture
def talk(model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace) -> Talk:
    return Talk(model, tmp_path, brief, workspace)


def prints(number: int) -> dict[str, Any]:
    return use("bash", {"command": f"head -c 9000 /dev/zero | tr '\\0' {number}"}, id=f"toolu_{number}")


async def test_a_prompt_that_is_refused_as_too_long_is_never_sent_again_as_it_was(talk: Talk) -> None:
    talk.model.will(*(says(prints(number)) for number in range(4)), TOO_LONG, DONE)
    assert isinstance(await talk(), Report)
    refused, again = (size(asked["messages"]) for asked in talk.model.asked[-2:])
    assert again < 0.6 * refused
    assert '"event": "compacted"' in talk.transcript()
    assert "prompt is too long" in talk.transcript()


@pytest.mark.parametrize("status", [400, 413])
async def test_a_prompt_that_stays_too_long_is_too_complex_after_a_few_tries(talk: Talk, status: int) -> None:
    type_ = "invalid_request_error" if status == 400 else "request_too_large"
    talk.model.will(*(says(prints(number)) for number in range(6)), fails(status, type_, "prompt is too long"))
    outcome = await talk()
    assert isinstance(outcome, Failure)
    assert outcome.kind == "too_complex"
    sent = [size(asked["messages"]) for asked in talk.model.asked[6:]]
    assert 2 <= len(sent) <= 3
    assert sent == sorted(set(sent), reverse=True)


async def test_a_full_context_is_compacted_and_the_conversation_continues(talk: Talk) -> None:
    ended = says(text("half a word"), stop="model_context_window_exceeded")
    talk.model.will(*(says(prints(number)) for number in range(4)), ended, DONE)
    assert isinstance(await talk(), Report)
    assert size(talk.model.asked[-1]["messages"]) < size(talk.model.asked[-2]["messages"])
    assert "half a word" not in str(talk.model.asked[-1])


async def test_it_is_made_shorter_before_it_reaches_the_share_that_was_set(talk: Talk) -> None:
    talk.model.will(*(says(prints(number)) for number in range(8)), DONE)
    assert isinstance(await talk(compact_at=0.0015, compact_to=0.001), Report)
    assert '"event": "compacted"' in talk.transcript()
