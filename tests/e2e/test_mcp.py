"""`fleet mcp` with the official client: one session, from an epic to its report."""

import json
import sys
from pathlib import Path
from signal import SIGINT
from subprocess import PIPE, Popen
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import PATIENCE_S, Json, Stage, landed, script, solve, subtask, untouched
from tests.fleet.program import left_run
from tests.mcp_wire import Wire, on_wire
from tests.worktrees.conftest import make_repository

ASKS = {"do": "ask", "needs": ["Which encoding?"]}
EPIC = "epic.md"


class Caller:
    """The tools of one session."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, tool: str, **arguments: Any) -> Json:
        result = await self._called(tool, arguments)
        assert not result.is_error, result.content
        view: Json = result.structured_content
        return view

    async def refused(self, tool: str, **arguments: Any) -> str:
        result = await self._called(tool, arguments)
        assert result.is_error, result.content
        return str(result.structured_content["error"]["message"])

    async def _called(self, tool: str, arguments: Json) -> types.CallToolResult:
        return await self._client.call_tool(tool, arguments)


@pytest.fixture(autouse=True)
def _patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK takes a server that does not start within ten seconds for one of the older protocol."""
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 300.0)


def connected(wire: Wire, stage: Stage, *options: str, mode: Any = "auto") -> Client:
    command = [sys.executable, "-P", "-m", "fleet", "mcp", *options]
    return Client(on_wire(wire, command, cwd=stage.room, env=stage.environment), mode=mode, cache=None)


@pytest.mark.timeout(300)  # a whole run in processes of its own, beside a server and a client
async def test_a_session_from_an_epic_to_its_report(stage: Stage, repository: Path, model: Serve) -> None:
    steps = [subtask("two", risk="high"), subtask("vague")]
    url = model(script(*steps, workers={"vague": [ASKS, solve("vague")]}))
    (stage.room / EPIC).write_text("what no client may read\n", encoding="utf-8")
    wire = Wire()
    options = ("-C", str(repository), "--base-url", url, "--budget", "5")
    with untouched(repository):
        async with connected(wire, stage, *options) as client:
            call = Caller(client)
            assert "no runs in this repository yet" in await call.refused("status")
            assert "exceeds the remaining session budget of 5" in await call.refused("run", epic=EPIC, budget_dollars=6)
            begun = await call("plan", epic=EPIC, budget_dollars=5, name="r")
            assert (begun["run"], begun["goal"], begun["budget"]["dollars"]["limit"]) == ("r", EPIC, 5)
            assert "exceeds the remaining session budget of 0" in await call.refused("run", epic=EPIC, budget_dollars=1)

            planned = await call("wait", run="r", seconds=300)
            assert planned["needs"] == ["approve"]
            shown = await call("show", run="fleet/r")
            assert [each["id"] for each in shown["plan"]["subtasks"]] == ["two", "vague"]
            stale = await call.refused("approve", run="r", version=shown["version"] + 1, subtasks=["vague"])
            assert f"at version {shown['version']}" in stale
            version = {"run": "r", "version": shown["version"]}
            assert "only a person can approve" in await call.refused("approve", **version, subtasks=["vague", "two"])
            assert "no subtask 'tow' in" in await call.refused("approve", **version, subtasks=["tow"])
            approved = await call("approve", **version, subtasks=["vague"])
            assert (approved["done"], approved["subtasks"]) == (True, ["vague"])
            assert approved["by"].endswith(" by mcp")

            stage.wait("r", lambda state: state.open_questions())
            assert (await call("wait", run="r"))["needs"] == ["approve", "answer"]
            assert "unknown question 'q9'" in await call.refused("answer", run="r", question="q9", text="UTF-8")
            answered = await call("answer", run="r", question="Q1", text="UTF-8")
            assert answered["message"] == "q1 answered"
            stage.wait("r", lambda state: state.commits == 1)  # the answer changes the plan
            stage.fleet("approve", "r", "--only", "two").ended(0)
            ended = await call("wait", run="r", seconds=300, until="end")
            assert (ended["state"], ended["landed"]["done"]) == ("landed", 2)

            assert "+two" in (await call("diff", run="r", subtask="two"))["diff"]
            assert (await call("show", subtask="vague"))["status"] == "merged"
            assert len((await call("show", what="incidents"))["incidents"]) == 1
            assert {each["id"] for each in (await call("report"))["landed"]} == {"two", "vague"}
            assert "has already ended" in await call.refused("pause", run="r")
            assert (await call("status"))["run"] == "r"
    assert landed(repository, "r").count("two") == 1
    assert wire.problems() == []
    assert len(wire.messages) > 40


def left_of(stage: Stage, repository: Path, name: str) -> None:
    """A run of this repository, as another process left it."""
    with Journal(left_run(stage.room / name).journal) as journal:
        first, *rest = (fact for _, fact in journal.facts())
    with Journal.create(stage.folder(name).journal) as journal:
        journal.append([first.model_copy(update={"run": name, "repository": str(repository)}), *rest])


async def test_a_client_of_the_older_protocol_sees_the_same_tools_and_no_other_repository(
    stage: Stage, repository: Path
) -> None:
    other = make_repository(stage.room / "other", {"README.md": "hello\n"})
    left_of(stage, other, "theirs")
    wire = Wire()
    async with connected(wire, stage, "-C", str(repository), "--read-only", mode="legacy") as client:
        call = Caller(client)
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["status", "show", "diff", "wait", "report"]
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in listed.tools)
        assert "no runs in this repository yet" in await call.refused("status")
        left_of(stage, repository, "ours")
        for name in ("theirs", "fleet/theirs", "../runs/theirs", "../other"):
            assert f"no run '{name.removeprefix('fleet/')}'" in await call.refused("status", run=name)
        assert "invalid arguments for status: repo: Extra inputs" in await call.refused("status", repo=str(other))
        assert "invalid arguments for status: run: " in await call.refused("status", run="--repo=/ x")
        assert "invalid arguments for wait: seconds: " in await call.refused("wait", seconds=1e9)
        seen = await call("wait")
        assert (seen["run"], seen["state"], "\x1b" in seen["goal"]) == ("ours", "interrupted", False)
        with pytest.raises(Exception, match=r"unknown tool 'run' \(available: status, show"):
            await client.call_tool("run", {"epic": "x", "budget_dollars": 1})
    assert wire.problems() == []


# ---- tools for workers ----------------------------------------------------------------------------------------------

SERVER = Path(__file__).parents[1] / "agents" / "mcp_server.py"
SECRET = "tracker-token-0123"
CONFIG = """
[mcp.tracker]
command = "{command}"
pass_environment = ["TRACKER_TOKEN"]
[workers.coder]
mcp = ["tracker"]
"""


def test_a_worker_uses_a_server_that_the_manager_speaks_to(stage: Stage, repository: Path, model: Serve) -> None:
    config, log = stage.room / "fleet.toml", stage.room / "server.log"
    command = f"{sys.executable} -S {SERVER} good {log}"
    config.write_text(CONFIG.format(command=command), encoding="utf-8")
    calls = [
        {"tool": "mcp__tracker__echo", "input": {"text": "ticket 7"}},
        {"tool": "mcp__tracker__environment"},
        {"tool": "bash", "input": {"command": f"env | grep -c TRACKER; cat {log}"}},
    ]
    url = model(script(subtask("one"), subtask("two"), workers={"one": [solve("one", calls=calls)]}))
    given = ("--config", str(config), "--base-url", url, "--repo", str(repository), "--yes")
    refused = stage.fleet("run", "Write", "--name", "r", *given).ended(2)
    refused.says("mcp.tracker.pass_environment: TRACKER_TOKEN is not set")
    stage.with_(TRACKER_TOKEN=SECRET).fleet("run", "Write", "--name", "r", *given).ended(0).says("LANDED")
    entries = [json.loads(line) for line in (stage.folder("r").transcripts / "one.1.jsonl").read_text().splitlines()]
    assert next(each for each in entries if each["event"] == "server")["offers"] == 2
    results = [
        block["content"]
        for each in entries
        if each["event"] == "user"
        for block in each["content"]
        if block["type"] == "tool_result"
    ]
    assert "ticket 7" in results
    assert '"TRACKER_TOKEN": "[hidden]"' in "".join(results)
    assert any(text.startswith("0\n") and "No such file" in text for text in results), "the box knows nothing of it"
    for path in stage.folder("r").path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    lines = log.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("started") for line in lines) == 1, "two workers share it"
    assert lines[-1] == "ended"


def test_ctrl_c_ends_a_server_that_waits_for_its_client(stage: Stage, repository: Path) -> None:
    command = [sys.executable, "-P", "-m", "fleet", "mcp"]
    with Popen(command, cwd=repository, env=stage.environment, stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'}{\n{"jsonrpc": "2.0", "id": 7, "method": "ping"}\n')
        process.stdin.flush()
        lines = iter(process.stdout.readline, b"")
        assert any(b'"id":7' in line for line in lines), "it answers once it has begun, also after what is no message"
        process.send_signal(SIGINT)
        assert process.wait(PATIENCE_S) == -SIGINT
