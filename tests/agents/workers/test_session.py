"""What is said to a session of Claude Code, what counts as read, and which of its lines is its end."""

import json
from typing import Any

import pytest

from agents.models.transcripts import Transcript
from agents.workers.claude_code import LONGEST_LINE, CliSession
from tests.agents.operators import FakeOperator
from tests.agents.workers.dialogues import converse

pytestmark = pytest.mark.anyio
END = json.dumps({"type": "result", "subtype": "success"}, separators=(",", ":"))


def session(operator: FakeOperator | None = None) -> CliSession:
    return CliSession("Do it.", operator or FakeOperator(), Transcript(None), turns=9)


def texts(said: list[dict[str, Any]]) -> list[str]:
    return [each["message"]["content"][0]["text"] for each in said if each["type"] == "user"]


def request(*blocks: str, role: str = "user", kind: str = "text") -> dict[str, Any]:
    name = "text" if kind == "text" else "content"
    return {"messages": [{"role": role, "content": [{"type": kind, name: block} for block in blocks]}]}


async def sent(operator: FakeOperator, *words: str) -> tuple[CliSession, list[str]]:
    """A session that was told these words, and the blocks that it got."""
    each = session(operator)
    for word in words:
        operator.tell(word)
    _, *blocks = texts(await converse(each.hold, "{}", END))
    return each, blocks


async def test_the_prompt_comes_first_and_an_interruption_before_the_words_that_ask_for_it() -> None:
    operator = FakeOperator()
    operator.tell("quietly")
    operator.tell("stop", interrupt=True)
    said = await converse(session(operator).hold, END)
    kinds = [each.get("request", {}).get("subtype", each["type"]) for each in said]
    assert kinds == ["user", "interrupt", "user", "user"]
    assert texts(said)[0] == "Do it."


@pytest.mark.parametrize(
    "line",
    [
        "[" * 9_000 + '"type":"result"',
        '{"type":"assistant","nested":{"type":"result","subtype":"success"}}',
        '{"type":"result"',
        "x" * (LONGEST_LINE + 70_000) + END,
        '"result"',
    ],
)
async def test_what_is_no_end_does_not_end_it(line: str) -> None:
    each = session()
    await converse(each.hold, line)
    assert each.ending == ""
    await converse(each.hold, line, END)
    assert each.ending == END


async def test_only_a_request_that_holds_an_instruction_has_read_it() -> None:
    operator = FakeOperator()
    each, (block,) = await sent(operator, "use UTC")
    await each.note_request(request("Do it."))
    await each.note_request(request(block, kind="tool_result"))
    await each.note_request(request(block, role="assistant"))
    assert operator.was_read == 0, "a command that prints the block has not been told"
    await each.note_request(request(f"The user sent a new message:\n{block}\n", role="system"))
    await each.note_request(request(block))
    assert operator.was_read == 1


async def test_the_same_words_twice_are_two_instructions() -> None:
    operator = FakeOperator()
    each, blocks = await sent(operator, "again", "again")
    await each.note_request(request(blocks[0]))
    assert operator.was_read == 1
    await each.note_request(request(*blocks))
    assert operator.was_read == 2


async def test_no_turn_is_begun_for_which_no_call_is_left() -> None:
    operator = FakeOperator()
    operator.tell("one more thing")
    each = session(operator)
    each.turns = 0
    failed = END.replace("success", "error_during_execution")
    await converse(each.hold, END, failed)
    assert each.ending == END


@pytest.mark.parametrize("messages", [None, 3, ["x"], [{"role": "user", "content": 3}], [{"role": "user"}]])
async def test_an_odd_request_has_read_nothing(messages: object) -> None:
    operator = FakeOperator()
    each, _ = await sent(operator, "use UTC")
    await each.note_request({"messages": messages})
    assert operator.was_read == 0
