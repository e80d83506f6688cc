"""The event loop is never held for long: not by conversations, however many, and the detector would see it."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agents.conversation.guards import Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.models.calls import Caller
from agents.models.transcripts import Transcripts
from agents.tools.tool import ReportDone, ToolResult
from fleet.app.capacity import collect_rarely
from tests.agents.conftest import SEEDED, FakeMeter, Script, client_for, says, settings_for, text, use
from tests.agents.held import Held, held_loop

pytestmark = pytest.mark.anyio
TURNS, LONGEST, ROUNDS = 10, 80.0, 8


class Look:
    """Answers with a page."""

    name = "look"
    declaration = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}  # noqa: RUF012

    async def run(self, raw: Mapping[str, Any]) -> ToolResult | ReportDone[str]:
        return ToolResult(f"{raw}\n" * 200)


@pytest.fixture
def settled() -> Iterator[Callable[[], None]]:
    """As a run does before it begins; undone for the tests after this one."""
    before = gc.get_threshold()
    yield collect_rarely
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.parametrize("many", [20, pytest.param(100, marks=pytest.mark.thorough)])
async def test_conversations_hold_it_no_longer_than_a_few_pieces_of_work(
    model: Script, tmp_path: Path, settled: Callable[[], None], many: int
) -> None:
    model.will(says(text("I look."), use("look", {"path": "x" * 200})))
    spec: ConversationSpec[str] = ConversationSpec(
        "claude-haiku-5-5", 1000, "Look.", (Look(),), "report", Guards(turns=TURNS, seconds=600, repeats=10**6)
    )
    async with client_for(model, silence_s=60, call_s=120) as claude:
        caller = Caller(claude, settings_for(model, tmp_path).retry, {}, chance=SEEDED)
        transcripts = Transcripts(tmp_path / "talks", secrets=())

        async def talk(number: int) -> None:
            with transcripts.open("talk", number) as transcript:
                await Conversation(spec, caller, FakeMeter(), transcript).hold([f"Begin with {number}."])

        await talk(many)
        rounds = list[Held]()
        while not any(held.longest < LONGEST for held in rounds):  # what is too long is so in every round
            assert len(rounds) < ROUNDS, [(held.longest, held.by) for held in rounds]
            settled()
            with held_loop() as held:
                async with anyio.create_task_group() as talks:
                    for number in range(many):
                        talks.start_soon(talk, number)
            rounds.append(held)
            assert held.callbacks > many * TURNS


async def test_work_that_takes_long_would_be_seen() -> None:
    with held_loop() as held:
        await anyio.lowlevel.checkpoint()
        until = time.thread_time() + held.piece_s * LONGEST * 2
        while time.thread_time() < until:
            pass
        await anyio.lowlevel.checkpoint()
    assert held.longest > LONGEST
