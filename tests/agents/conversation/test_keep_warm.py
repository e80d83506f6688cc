"""While a long command runs, the prompt stays in the cache; on a loop whose clock moves by itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from agents.conversation.guards import Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.models.answer import Answer, CallFault, OnBegin, Request, ToolCall
from agents.models.calls import Caller
from agents.models.service import RetryPolicy
from agents.models.transcripts import Transcripts
from agents.tools.tool import ReportDone, ToolResult
from fleet.core.base.usage import Usage
from tests.agents.conftest import FakeMeter
from tests.agents.timeless import TIMELESS

pytestmark = pytest.mark.anyio
MINUTE = 60.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return TIMELESS


@dataclass
class Patient:
    """A model that runs one command and then reports; when each call came, and what it asked."""

    asked: list[tuple[float, Request]] = field(default_factory=list)
    fault: CallFault | None = None

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        self.asked.append((anyio.current_time(), request))
        usage = Usage(cache_read=5_000, output=request.max_tokens and 10)
        if not request.max_tokens:
            return self.fault or Answer((), "max_tokens", usage, request.model)
        on_begin({})
        name = "run" if len(request.messages) == 1 else "report"
        block = {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": {}}
        call = ToolCall(block["id"], name, {})  # type: ignore[arg-type] # a text
        return Answer((block,), "tool_use", usage, request.model, seconds=0.0, calls=(call,))

    @property
    def touches(self) -> list[tuple[float, Request]]:
        return [(at, request) for at, request in self.asked if not request.max_tokens]


@dataclass
class Run:
    """A command that takes its time."""

    seconds: float
    fails: bool = False
    name: str = "run"
    declaration: dict[str, Any] = field(default_factory=lambda: {"name": "run", "input_schema": {"type": "object"}})

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        del raw
        await anyio.sleep(self.seconds)
        if self.fails:
            raise ZeroDivisionError("a bug")
        return ToolResult("done")


class End:
    name = "report"
    declaration = {"name": "report", "input_schema": {"type": "object"}}  # noqa: RUF012

    async def run(self, raw: Mapping[str, Any]) -> ReportDone[str]:
        del raw
        return ReportDone("reported")


async def hold(
    model: Patient, seconds: float, folder: Path, *, on: str = "claude-sonnet-5-5", fails: bool = False
) -> Any:
    retry = RetryPolicy(3, 0.001, 60, backoff_cap_s=0.002, pause_s=0.001)
    caller, meter = Caller(model, retry, {}, chance=Random(1)), FakeMeter()  # noqa: S311 - jitter is no secret
    guards = Guards(turns=5, seconds=100 * 3600)
    spec: ConversationSpec[str] = ConversationSpec(on, 1000, "Work.", (Run(seconds, fails), End()), "report", guards)
    with Transcripts(folder, secrets=()).open("talk", 1) as transcript:
        result = await Conversation(spec, caller, meter, transcript).hold(["Begin."])
    assert len(meter.uses) == len(model.asked) - (model.fault is not None)
    return result


@pytest.mark.parametrize(("minutes", "touches"), [(4, 0), (6, 1), (10, 2), (15, 3)])
async def test_the_prompt_is_read_again_before_its_five_minutes_are_over(
    tmp_path: Path, minutes: float, touches: int
) -> None:
    model = Patient()
    assert await hold(model, minutes * MINUTE, tmp_path) == "reported"
    assert len(model.touches) == touches
    times = [at for at, _ in model.asked]
    assert all(later - earlier < 5 * MINUTE for earlier, later in pairwise(times))


async def test_it_is_the_same_prompt_again(tmp_path: Path) -> None:
    model = Patient()
    await hold(model, 6 * MINUTE, tmp_path)
    ((_, touch),) = model.touches
    assert replace(touch, max_tokens=1000) == replace(model.asked[0][1], previous=touch.previous)


async def test_it_is_read_no_more_often_than_it_pays(tmp_path: Path) -> None:
    model = Patient()
    assert await hold(model, 24 * 60 * MINUTE, tmp_path) == "reported"
    assert len(model.touches) == 24


async def test_a_model_without_a_known_price_is_not_asked(tmp_path: Path) -> None:
    model = Patient()
    assert await hold(model, 60 * MINUTE, tmp_path, on="llama") == "reported"
    assert model.touches == []


async def test_a_service_that_refuses_it_is_asked_once(tmp_path: Path) -> None:
    model = Patient(fault=CallFault("configuration", "max_tokens: must be at least 1", status=400))
    assert await hold(model, 60 * MINUTE, tmp_path) == "reported"
    assert len(model.touches) == 1


async def test_a_bug_in_a_tool_is_still_that_bug(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        await hold(Patient(), 6 * MINUTE, tmp_path, fails=True)
