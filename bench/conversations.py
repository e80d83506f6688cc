"""A thousand conversations in one process: turns a second beside bare calls, memory of each, and how late the loop is.

    python -m tests.benchmarks.conversations

Server and caller are processes of their own, fresh ones each turn. Bare: the SDK's client with its default transport,
streamed, each answer's events read to the end, nothing else. Ours: whole conversations: pace, fold, tool, transcript.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import anyio

from tests.benchmarks.side_by_side import HEAD, Figure, say

FASTER, KIB_EACH, LATE_MS = 1.5, 100.0, 25.0
RESULT = "def value():\n    return 1\n" * 20
TICK_S = 0.005
THINK_S = 4.0  # how long a model takes for a turn, where the loop's delay is measured


# ---- what is measured: each in a process of its own ------------------------------------------------------------------


class Delay:
    """How much later than asked for a sleeper wakes up."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.most_bytes = 0

    async def watch(self) -> None:
        while True:
            due = perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late_ms.append((perf_counter() - due) * 1e3)
            if len(self.late_ms) % 40 == 0:
                self.most_bytes = max(self.most_bytes, resident())


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def ours(url: str, conversations: int, turns: int) -> dict[str, float]:
    from agents.conversation import Conversation, Guards, Setting  # noqa: PLC0415 - only this process needs it
    from agents.models.calls import Caller, Patience  # noqa: PLC0415
    from agents.models.claude import Line, open_claude  # noqa: PLC0415
    from agents.tools.tool import Said  # noqa: PLC0415
    from agents.transcripts import Transcripts  # noqa: PLC0415
    from fleet.collector import settle  # noqa: PLC0415
    from tests.benchmarks.meters import Open  # noqa: PLC0415

    class Look:
        """Says the same, whatever it is asked."""

        name = "look"
        declaration = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}  # noqa: RUF012

        def reads_only(self, given: Mapping[str, Any]) -> bool:
            return bool(given)

        async def run(self, given: Mapping[str, Any]) -> Said:
            del given
            return Said(RESULT)

    patience = Patience(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)
    guards = Guards(turns=turns, seconds=3600, repeats=10**6)
    setting: Setting[str] = Setting("claude-haiku-5-5", 1000, "Look.", (Look(),), "report", guards)
    with TemporaryDirectory(prefix="fleet-bench-", dir="/dev/shm") as folder:
        async with open_claude(url, "no-key", Line(60, 600, 1200)) as model:
            caller = Caller(model, patience, {}, chance=Random(1))  # noqa: S311 - jitter is no secret
            transcripts, held = Transcripts(Path(folder), secret=""), list[Conversation[str]]()

            async def hold(number: int) -> None:
                with transcripts.open("talk", number) as transcript:
                    held.append(Conversation(setting, caller, Open(), transcript))
                    await held[-1].hold([f"Begin with file {number}."])

            await hold(10**6)
            held.clear()
            settle()  # as a run does
            before, delay = resident(), Delay()
            began = perf_counter()
            async with anyio.create_task_group() as watch:
                watch.start_soon(delay.watch)
                async with anyio.create_task_group() as group:
                    for number in range(conversations):
                        group.start_soon(hold, number)
                watch.cancel_scope.cancel()
            seconds = perf_counter() - began
            delay.most_bytes = max(delay.most_bytes, resident())
    messages = sum(deep(talk._messages) for talk in held)
    beyond = (delay.most_bytes - before - messages) / conversations / 1024
    return {"seconds": seconds, "late_ms": quantiles(delay.late_ms, n=100)[98], "kib": beyond}


def deep(value: object) -> int:
    """What a value holds, with all in it."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(deep(item) for item in value.values())
    if isinstance(value, list | tuple):
        return size + sum(map(deep, value))
    return size


async def bare(url: str, conversations: int, turns: int) -> dict[str, float]:
    import anthropic  # noqa: PLC0415 - only this process needs it

    tool: Any = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    client = anthropic.AsyncAnthropic(api_key="no-key", base_url=url, max_retries=0, timeout=1200)

    async def hold(number: int) -> None:
        messages: list[Any] = [{"role": "user", "content": f"Begin with file {number}."}]
        for _ in range(turns):
            stream = await client.messages.create(
                model="claude-haiku-5-5", max_tokens=1000, system="Look.", tools=[tool], messages=messages, stream=True
            )
            async for _event in stream:
                pass
            call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"path": "x" * 28, "lines": "1-200"}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": RESULT}
            messages.append({"role": "assistant", "content": [{"type": "text", "text": "x" * 188}, call]})
            messages.append({"role": "user", "content": [result]})

    began = perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(conversations):
            group.start_soon(hold, number)
    return {"seconds": perf_counter() - began}


# ---- who measures ----------------------------------------------------------------------------------------------------


@contextmanager
def lean(think_s: float) -> Iterator[str]:
    command = [sys.executable, "-m", "tests.benchmarks.lean", str(think_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline()))
        finally:
            process.terminate()


def turn(variant: str, conversations: int, turns: int, think_s: float) -> dict[str, float]:
    with lean(think_s) as url:
        command = [sys.executable, "-m", "tests.benchmarks.conversations", variant, url, str(conversations), str(turns)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    said: dict[str, float] = json.loads(done.stdout)
    return said


def conversation_figures(conversations: int, turns: int, rounds: int) -> list[Figure]:
    """Ours beside bare calls, turn beside turn; then ours at the pace of a model."""
    pairs = [
        (turn("bare", conversations, turns, 0.0)["seconds"], turn("ours", conversations, turns, 0.0)["seconds"])
        for _ in range(rounds)
    ]
    paced = turn("ours", conversations, turns, THINK_S)
    where = f"{conversations:,} talks"
    total = conversations * turns
    told = ", ".join(f"{total / mine:,.0f} of {total / other:,.0f} a second" for other, mine in pairs)
    pace = f"{turns} turns of {THINK_S:g} s: {total / paced['seconds']:,.0f} a second"
    faster = median(other / mine for other, mine in pairs)
    return [
        Figure("turns a second over bare calls'", where, faster, wanted=FASTER, at_least=True, note=told),
        Figure("KiB of each beyond its messages", where, paced["kib"], wanted=KIB_EACH, note=pace),
        Figure("the loop is late, ms, p99", where, paced["late_ms"], wanted=LATE_MS, note=pace),
    ]


def main() -> None:
    if len(sys.argv) > 4:
        measured = {"ours": ours, "bare": bare}[sys.argv[1]]
        sys.stdout.write(json.dumps(anyio.run(measured, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
        return
    given = [*map(int, sys.argv[1:]), 1000, 20, 3] if len(sys.argv) == 4 else [1000, 20, 2]
    say(HEAD, *conversation_figures(*given[:3]))


if __name__ == "__main__":
    main()
