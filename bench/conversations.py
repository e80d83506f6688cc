"""A thousand conversations in one process: turns per second, memory of each, and the delay of the event loop.

    python -m bench.conversations serve THINK_S
    python -m bench.conversations fleet URL CONVERSATIONS TURNS
    python -m bench.conversations bare URL CONVERSATIONS TURNS

`python -m bench conversations` starts these commands. Server and caller are separate processes, started again for each
turn. *bare* is the SDK's client with its default transport, which only reads each streamed response to its end. *fleet*
holds full conversations: rate limiter, stream, tool, transcript.
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
from time import perf_counter
from typing import Any

import anyio
from anyio import to_thread

from bench.side_by_side import Extent
from scripts.frame import Figure, command_line, exit_with, say, temporary_folder

CONVERSATIONS = 1_000
FASTER, KIB_EACH, LATE_MS = 1.5, 100.0, 25.0
RESULT = "def value():\n    return 1\n" * 20
TICK_S = 0.005
THINK_S = 4.0
"""Response time of the model while memory and the loop's delay are measured."""


async def conversation_figures(extent: Extent) -> list[Figure]:
    """Measure fleet's conversations and bare calls in alternation, then fleet's alone at the speed of a model."""
    from bench.service import budget_figures, rule_figures  # noqa: PLC0415 - only the group needs it, not its processes

    figures = await to_thread.run_sync(_figures, CONVERSATIONS, extent.turns, extent.whole_runs)
    return [*figures, *await rule_figures(extent.folder), *await budget_figures(extent.folder)]


def _figures(conversations: int, turns: int, rounds: int) -> list[Figure]:
    pairs = [
        (
            run_caller("bare", conversations, turns, 0.0)["seconds"],
            run_caller("fleet", conversations, turns, 0.0)["seconds"],
        )
        for _ in range(rounds)
    ]
    slow = run_caller("fleet", conversations, turns, THINK_S)
    where, total = f"{conversations:,} talks", conversations * turns
    rates = ", ".join(f"{total / fleet:,.0f} of {total / bare:,.0f} per second" for bare, fleet in pairs)
    slow_rate = f"{turns} turns of {THINK_S:g} s: {total / slow['seconds']:,.0f} per second"
    faster = median(bare / fleet for bare, fleet in pairs)
    return [
        Figure("turns per second, over bare calls", where, faster, wanted=FASTER, at_least=True, note=rates),
        Figure("KiB per conversation beyond its messages", where, slow["kib"], wanted=KIB_EACH, note=slow_rate),
        Figure("delay of the event loop, ms, p99", where, slow["late_ms"], wanted=LATE_MS, note=slow_rate),
    ]


def run_caller(caller: str, conversations: int, turns: int, think_s: float) -> dict[str, float]:
    """Return the measurements of a caller in a separate process with a separate server."""
    with canned_server(think_s) as url:
        command = [sys.executable, "-m", "bench.conversations", caller, url, str(conversations), str(turns)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


@contextmanager
def canned_server(think_s: float) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.conversations", "serve", str(think_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


# ---- callers: each in a process of its own ---------------------------------------------------------------------------


class LoopDelay:
    """Delay of a sleeping task beyond the requested time, and the peak size of the process."""

    def __init__(self) -> None:
        self.late_ms: list[float] = []
        self.peak_bytes = 0

    async def watch(self) -> None:
        while True:
            due = perf_counter() + TICK_S
            await asyncio.sleep(TICK_S)
            self.late_ms.append((perf_counter() - due) * 1e3)
            if len(self.late_ms) % 40 == 0:
                self.peak_bytes = max(self.peak_bytes, resident_bytes())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def call_as_fleet(url: str, conversations: int, turns: int) -> dict[str, float]:
    from agents.conversation.guards import Guards  # noqa: PLC0415 - only this process needs it
    from agents.conversation.loop import Conversation, ConversationSpec  # noqa: PLC0415
    from agents.models.access import Access  # noqa: PLC0415
    from agents.models.calls import Caller  # noqa: PLC0415
    from agents.models.client import open_client  # noqa: PLC0415
    from agents.models.exchange import Timeouts  # noqa: PLC0415
    from agents.models.service import RetryPolicy  # noqa: PLC0415
    from agents.models.transcripts import Transcripts  # noqa: PLC0415
    from agents.tools.tool import ToolResult  # noqa: PLC0415
    from bench.meters import UnlimitedMeter  # noqa: PLC0415
    from fleet.app.capacity import collect_rarely  # noqa: PLC0415

    class Look:
        """A tool that always returns the same text."""

        name = "look"
        declaration = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}  # noqa: RUF012

        async def run(self, given: Mapping[str, Any]) -> ToolResult:
            del given
            return ToolResult(RESULT)

    retry = RetryPolicy(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)
    guards = Guards(turns=turns, seconds=3600, repeats=10**6)
    spec: ConversationSpec[str] = ConversationSpec("claude-haiku-5-5", 1000, "Look.", (Look(),), "report", guards)
    with temporary_folder() as folder:
        async with open_client(Access(url, "no-key"), Timeouts(600, 1200, connect_s=60)) as model:
            caller = Caller(model, retry, {}, chance=Random(1))  # noqa: S311 - jitter is no secret
            transcripts, kept = Transcripts(folder, secrets=()), list[Conversation[str]]()

            async def hold(number: int) -> None:
                with transcripts.open("talk", number) as transcript:
                    kept.append(Conversation(spec, caller, UnlimitedMeter(), transcript))
                    await kept[-1].hold([f"Begin with file {number}."])

            await hold(10**6)
            kept.clear()
            collect_rarely()  # as a run does
            before, delay = resident_bytes(), LoopDelay()
            started = perf_counter()
            async with anyio.create_task_group() as watch:
                watch.start_soon(delay.watch)
                async with anyio.create_task_group() as group:
                    for number in range(conversations):
                        group.start_soon(hold, number)
                watch.cancel_scope.cancel()
            seconds = perf_counter() - started
            peak = max(delay.peak_bytes, resident_bytes())
    messages = sum(deep_size(talk.history.messages) for talk in kept)
    kib = (peak - before - messages) / conversations / 1024
    return {"seconds": seconds, "late_ms": quantiles(delay.late_ms, n=100)[98], "kib": kib}


def deep_size(value: object) -> int:
    """The bytes of a value and of everything in it."""
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(deep_size(item) for item in value.values())
    if isinstance(value, list | tuple):
        return size + sum(map(deep_size, value))
    return size


async def call_bare(url: str, conversations: int, turns: int) -> dict[str, float]:
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

    started = perf_counter()
    async with anyio.create_task_group() as group:
        for number in range(conversations):
            group.start_soon(hold, number)
    return {"seconds": perf_counter() - started}


# ---- the server ------------------------------------------------------------------------------------------------------


class CannedServer(asyncio.Protocol):
    """Answers every request with the same streamed tool call. It only counts the bytes of requests, to cost little."""

    def __init__(self, response: bytes, think_s: float, chance: Random) -> None:
        self._response = response
        self._think_s = think_s
        self._chance = chance
        self._transport: Any = None
        self._head = b""
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            head, end, rest = (self._head + data).partition(b"\r\n\r\n")
            if not end:
                self._head = head
                return
            lines = head.lower().split(b"\r\n")
            length = next((line for line in lines if line.startswith(b"content-length:")), b":0")
            self._head, self._missing, data = b"", int(length.partition(b":")[2]), rest
        self._missing -= len(data)
        if self._missing:
            return
        if self._think_s:
            wait = self._think_s * self._chance.uniform(0.5, 1.5)
            asyncio.get_running_loop().call_later(wait, self._transport.write, self._response)
        else:
            self._transport.write(self._response)


def canned_response() -> bytes:
    """One tool call as server-sent events, labelled as the simulated model labels its answers."""
    from agents.simulated.behaviours import BehaviourMessage, Text, ToolUse  # noqa: PLC0415
    from agents.simulated.encoding import (  # noqa: PLC0415
        EncodedAnswer,
        Envelope,
        events,
    )
    from agents.simulated.prompt import PromptTokens  # noqa: PLC0415 - only this process needs it

    text = Text("I look at the next file, and continue from there. " * 4)
    call = ToolUse("toolu_1", "look", {"path": "src/part0/folder1/module2.py", "lines": "1-200"})
    envelope = Envelope("msg_simulated_1", "claude-haiku-5-5", PromptTokens(500, 0, 4000))
    body = b"".join(events(EncodedAnswer(BehaviourMessage((text, call)), 0, 80), envelope))
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-simulated-model: fleet\r\n"
        f"request-id: req_simulated_1\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def serve(think_s: float) -> None:
    chance, response = Random(1), canned_response()  # noqa: S311 - it only varies waits
    server = await asyncio.get_running_loop().create_server(
        lambda: CannedServer(response, think_s, chance), "127.0.0.1", 0, backlog=4096
    )
    host, port = server.sockets[0].getsockname()
    say(f"http://{host}:{port}")
    await server.serve_forever()


def main() -> int:
    parser = command_line("bench.conversations", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve").add_argument("think_s", type=float)
    callers = {"fleet": call_as_fleet, "bare": call_bare}
    for name in callers:
        caller = commands.add_parser(name)
        caller.add_argument("url")
        caller.add_argument("conversations", type=int)
        caller.add_argument("turns", type=int)
    args = parser.parse_args()
    if args.command == "serve":
        asyncio.run(serve(args.think_s))
    else:
        say(json.dumps(anyio.run(callers[args.command], args.url, args.conversations, args.turns)))
    return 0


if __name__ == "__main__":
    exit_with(main)
