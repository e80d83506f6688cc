"""Claude Code, the real program, drives the fleet through `fleet mcp`; both call one simulated model.

    make claude-code                                 installs it first
    python -m chaos.claude_mcp --claude .claude-code/node_modules/.bin/claude

It plans an epic, looks at the plan, approves it, waits until it has landed, and reads the report.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from anyio import CancelScope, create_task_group, run, to_thread
from anyio.abc import TaskStatus

from agents.simulated.script import parse_script
from agents.simulated.server import serve
from fleet.cli.mcp.tools import TOOLS
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder
from tests.e2e.stage import script, subtask
from tests.worktrees.conftest import make_repository

NAME = "driven"
PATIENCE_S = 600.0
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plan", {"epic": "Write one and two", "budget_dollars": 2, "name": NAME}),
    ("wait", {"run": NAME, "seconds": 300}),
    ("show", {"run": NAME}),
    ("approve", {"run": NAME, "version": 1, "subtasks": ["one", "two"]}),
    ("wait", {"run": NAME, "seconds": 300, "until": "end"}),
    ("report", {"run": NAME}),
)
REFUSED = ("run", {"epic": "Write three", "budget_dollars": 50})


def played() -> dict[str, Any]:
    """What the simulated model plays: for the fleet, and for Claude Code."""
    calls = [{"tool": f"mcp__fleet__{tool}", "input": given} for tool, given in (*CALLS, REFUSED)]
    return {**script(subtask("one"), subtask("two", "one")), "agent": {"calls": calls, "says": "All has landed."}}


async def trial(folder: Path, claude: Path, table: Table) -> None:
    repository = make_repository(folder / "work", {"README.md": "hello\n"})
    async with create_task_group() as tasks:

        async def play(*, task_status: TaskStatus[tuple[str, CancelScope]]) -> None:
            with CancelScope() as scope:
                await serve(parse_script(played()), on_ready=lambda url: task_status.started((url, scope)))

        url, scope = await tasks.start(play)
        lines = await to_thread.run_sync(session, folder, repository, claude, url)
        scope.cancel()
    results = [block for line in lines for block in _results(line)]
    connected = [line for line in lines if line.get("subtype") == "init"]
    servers = [server for line in connected for server in line.get("mcp_servers", ())]
    tools = [name for line in connected for name in line.get("tools", ()) if name.startswith("mcp__fleet__")]
    state = RunFolder(folder / "state" / "runs" / NAME).state()
    refused = [bool(each.get("is_error")) for each in results]
    landed = sum(each.landed is not None for each in state.subtasks.values())
    counted = (
        ("servers connected", sum(server.get("status") == "connected" for server in servers), 1),
        ("tools that it sees", len(tools), len(TOOLS)),
        ("calls answered", len(results), len(CALLS) + 1),
        ("subtasks landed", landed, 2),
    )
    table.add(*(Figure(what, "Claude Code", count, wanted=wanted, at_least=True) for what, count, wanted in counted))
    wrong = int(refused != [False] * len(CALLS) + [True])
    table.add(Figure("calls refused, but for the one above the budget", "Claude Code", wrong, wanted=0))


def session(folder: Path, repository: Path, claude: Path, url: str) -> list[dict[str, Any]]:
    """One session of Claude Code, as the lines that it prints."""
    home = folder / "home"
    home.mkdir()
    state = {"FLEET_STATE_DIR": str(folder / "state"), "FLEET_PLANNER_SETTLE_S": "0.1"}
    words = ["-P", "-m", "fleet", "mcp", "-C", str(repository), "--base-url", url, "--budget", "5"]
    server = {"command": sys.executable, "args": words, "env": state}
    servers = folder / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"fleet": server}}), encoding="utf-8")
    command = [str(claude), "--print", "--verbose", "--output-format", "stream-json", "--model", "claude-haiku-5-5"]
    command += ["--mcp-config", str(servers), "--strict-mcp-config", "--setting-sources", "", "--max-turns", "20"]
    command += ["--allowedTools", "mcp__fleet", "--", "Let the fleet write one and two."]
    given = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    ours = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "simulated",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "MCP_TOOL_TIMEOUT": "400000",
    }
    done = subprocess.run(
        command,
        cwd=repository,
        env=given | ours,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        sys.stderr.write((done.stdout + done.stderr)[-3_000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _results(line: dict[str, Any]) -> list[dict[str, Any]]:
    content = line.get("message", {}).get("content", ()) if line.get("type") == "user" else ()
    return [block for block in content if isinstance(block, dict) and block.get("type") == "tool_result"]


def main() -> int:
    parser = command_line("chaos.claude_mcp", __doc__)
    parser.add_argument("--claude", type=Path, required=True)
    args = parser.parse_args()
    table = Table("Claude Code drives the fleet")
    with temporary_folder() as folder:
        run(trial, folder, args.claude.resolve(), table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
