"""Servers that behave, and servers that do not: whatever they do, a call has an answer, and nothing of them is left."""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from agents.tools.tool import ToolInputError
from fleet.features.tool_servers.servers import (
    MOST_STARTS,
    McpServer,
    ServerAnswer,
    ServerSettings,
    ServerTool,
    open_servers,
    read_answer,
    read_listing,
    tools_of_servers,
)

SERVER = Path(__file__).parents[3] / "agents" / "mcp_server.py"
SECRET = "token-0123456789"


def settings(way: str, log: Path, **more: Any) -> ServerSettings:
    environment = {"PATH": os.environ["PATH"], "TOKEN": SECRET}
    command = (sys.executable, "-S", str(SERVER), way, str(log))
    return replace(ServerSettings("it", command, environment, secrets=(SECRET,)), **more)


class Room:
    """One server in a run, and what it noticed."""

    def __init__(self, server: McpServer, log: Path) -> None:
        self.server, self.log = server, log

    async def tool(self, name: str = "echo") -> ServerTool:
        return (await self.server.tools()).by_name[name]

    async def call(self, text: str = "hello", name: str = "echo") -> str:
        return (await self.server.call(await self.tool(name), {"text": text})).text

    @property
    def noticed(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    @property
    def processes(self) -> list[int]:
        return [int(line.split()[1]) for line in self.noticed if line.startswith("started")]


async def all_gone(pids: Sequence[int]) -> None:
    """Wait until none of them runs; who was killed may stay in the table until its parent looks."""
    while any(map(_runs, pids)):  # noqa: ASYNC110 - no one else's process can set an event
        await anyio.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_a_tool_is_called_in_a_process_that_all_share_and_that_ends_with_the_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with open_servers({"it": settings("good", log)}) as servers:
        room = Room(servers.by_name["it"], log)
        assert not log.exists(), "it is started when it is needed"
        answers: list[str] = []

        async def call(text: str) -> None:
            answers.append(await room.call(text))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(call, f"text {number}")
        assert sorted(answers) == [f"text {number}" for number in range(5)]
        assert len(room.processes) == 1
        assert "/fleet-mcp-" in room.noticed[0], "a folder of its own, not the repository"
    assert room.noticed[-1] == "ended"
    await all_gone(room.processes)


async def test_it_is_given_its_own_variables_and_a_secret_does_not_come_back(tmp_path: Path) -> None:
    async with open_servers({"it": settings("good", tmp_path / "log")}) as servers:
        room = Room(servers.by_name["it"], tmp_path / "log")
        environment: Mapping[str, str] = json.loads(await room.call(name="environment"))
    assert set(environment) - {"LC_CTYPE"} == {"PATH", "TOKEN"}
    assert environment["TOKEN"] == "[hidden]"


async def test_one_that_ended_is_started_again_but_not_for_ever(tmp_path: Path) -> None:
    async with open_servers({"it": settings("dies", tmp_path / "log")}) as servers:
        room = Room(servers.by_name["it"], tmp_path / "log")
        answers = [await room.call() for _ in range(MOST_STARTS + 1)]
    assert {answer.partition(":")[0] for answer in answers[:MOST_STARTS]} == {"The server it did not answer"}
    assert (
        answers[-1]
        == f"The server it is not available: it was started {MOST_STARTS} times in this run and exited each time"
    )
    assert len(room.processes) == MOST_STARTS


async def test_one_that_hangs_is_started_again(tmp_path: Path) -> None:
    async with open_servers({"it": settings("hangs", tmp_path / "log", timeout_s=0.3)}) as servers:
        room = Room(servers.by_name["it"], tmp_path / "log")
        answers = [await room.call() for _ in range(3)]
    assert set(answers) == {"No answer after 0.3 s. The call may still have taken effect."}
    assert len(room.processes) == 2
    await all_gone(room.processes)


@pytest.mark.parametrize(
    ("way", "why"),
    [("complains", "it exited; stderr: no licence: [hidden]"), ("pages", "its tool list has more than 20 pages")],
)
async def test_one_that_can_not_be_used_offers_nothing_and_says_why(tmp_path: Path, way: str, why: str) -> None:
    async with open_servers({"it": settings(way, tmp_path / "log")}) as servers:
        listing = (await servers.listed(["it"]))["it"]
    assert (listing.tools, listing.problems) == ((), (why,))


async def test_a_program_that_is_not_there_is_a_problem_and_no_error(tmp_path: Path) -> None:
    missing = replace(settings("good", tmp_path / "log"), command=("/no/such/program",))
    async with open_servers({"it": missing}) as servers:
        listing = (await servers.listed(["it", "unknown"]))["it"]
    assert listing.problems == ("/no/such/program could not be started: No such file or directory",)


# ---- tools ----------------------------------------------------------------------------------------------------------


async def test_few_tools_are_declared_each_and_many_are_searched_for(tmp_path: Path) -> None:
    async with open_servers({"it": settings("many", tmp_path / "log")}) as servers:
        tools = (await servers.by_name["it"].tools()).tools
        few, many = tools_of_servers(tools[:20], servers, 1_000), tools_of_servers(tools, servers, 1_000)
        assert [tool.name for tool in few] == [f"mcp__it__thing_{number}" for number in range(20)]
        find, call = many
        assert (find.name, call.name) == ("mcp_find", "mcp_call")
        assert "Servers: it (60)." in find.declaration["description"]
        assert len(json.dumps([tool.declaration for tool in many])) < 2_000
        assert (await find.run({"query": "number 42"})).text.count('"tool"') == 5, "as many as there is room for"
        found = json.loads((await find.run({"query": "thing_42"})).text.splitlines()[0])
        assert (found["tool"], found["arguments"]["required"]) == ("mcp__it__thing_42", ["text"])
        assert (await find.run({"query": ""})).text.startswith("mcp__it__thing_0\n")
        assert (await find.run({"query": "weather"})).text == "No tool matches. Try other words."
        assert (await call.run({"tool": found["tool"], "arguments": {"text": "hi"}})).text == "hi"
        for wrong in ({"tool": "bash"}, {"tool": "thing_42"}, {}):
            with pytest.raises(ToolInputError):
                await call.run(wrong)
        with pytest.raises(ToolInputError, match="longer than 100000"):
            await few[0].run({"text": "x" * 200_000})


def test_names_are_apart_from_ours_and_from_each_other() -> None:
    names = ["bash", "a b", "a_b", "x" * 300, "x" * 299 + "y", "../../etc/passwd", "ü"]
    listing = read_listing("s", [{"name": name, "inputSchema": {"type": "object"}} for name in names], ())
    called = [tool.called for tool in listing.tools]
    assert called[:2] == ["mcp__s__bash", "mcp__s__a_b"]
    assert listing.problems == ("'a_b': another tool has the same name",)
    assert len(set(called)) == len(called) == 6
    assert all(re.fullmatch(r"mcp__[A-Za-z0-9_-]{1,59}", name) for name in called)


def test_only_the_tools_that_the_operator_wants_are_offered() -> None:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in ("search_a", "search_b", "delete")]
    assert [tool.name for tool in read_listing("s", listed, ("search_*",)).tools] == ["search_a", "search_b"]


def test_what_is_not_text_becomes_a_line_about_it() -> None:
    blocks = [
        {"type": "image", "data": "AAAA"},
        {"type": "resource_link", "uri": "file:///x\x1b"},
        {"type": "resource", "resource": {"text": "inside"}},
        {"type": "resource", "resource": {"blob": "AAAA"}},
        {"type": "hologram"},
    ]
    lines = read_answer({"content": blocks}).text.splitlines()
    assert lines == [
        "[image, 4 characters, not shown]",
        "[a resource: file:///x]",
        "inside",
        "[a binary resource, not shown]",
        "[content of an unsupported type, not shown]",
    ]
    assert read_answer({"content": [], "structuredContent": {"n": 1}}).text == '{"n": 1}'
    assert read_answer({"content": [], "isError": True}) == ServerAnswer("(empty result)", is_error=True)
