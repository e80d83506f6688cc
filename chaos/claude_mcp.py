"""The real Claude Code drives fleet through `fleet mcp`. Both call one simulated model.

    make claude-code                                 installs it first
    python -m chaos.claude_mcp --claude .claude-code/node_modules/.bin/claude

It plans an epic, reads the plan, approves it, waits until it has landed, and reads the report.
"""

import json
import sys
from pathlib import Path
from typing import Any

from anyio.from_thread import start_blocking_portal

from chaos.claude_program import Session, play
from fleet.features.serve_mcp.tools import TOOLS
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder
from tests.e2e.conftest import served
from tests.e2e.stage import script, subtask
from tests.worktrees.conftest import make_repository

NAME = "driven"
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
    """Return the script of the simulated model for fleet and for Claude Code."""
    calls = [{"tool": f"mcp__fleet__{tool}", "input": given} for tool, given in (*CALLS, REFUSED)]
    return {**script(subtask("one"), subtask("two", "one")), "agent": {"calls": calls, "says": "All has landed."}}


def trial(folder: Path, claude: Path, table: Table) -> None:
    repository = make_repository(folder / "work", {"README.md": "hello\n"})
    with start_blocking_portal() as portal, served(portal) as model:
        done = session(folder, repository, claude, model(played()))
    servers = done.begun.get("mcp_servers", ())
    tools = [name for name in done.begun.get("tools", ()) if name.startswith("mcp__fleet__")]
    results = done.results
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


def session(folder: Path, repository: Path, claude: Path, url: str) -> Session:
    """One session that has the tools of the fleet."""
    state = {"FLEET_STATE_DIR": str(folder / "state"), "FLEET_PLANNER_SETTLE_S": "0.1"}
    words = ["-P", "-m", "fleet", "mcp", "-C", str(repository), "--base-url", url, "--budget", "5"]
    server = {"command": sys.executable, "args": words, "env": state}
    servers = folder / "mcp.json"
    servers.write_text(json.dumps({"mcpServers": {"fleet": server}}), encoding="utf-8")
    options = ["--mcp-config", str(servers), "--strict-mcp-config", "--setting-sources", "", "--max-turns", "20"]
    options += ["--allowedTools", "mcp__fleet", "--", "Let the fleet write one and two."]
    return play(claude, folder / "home", repository, url, *options)


def main() -> int:
    parser = command_line("chaos.claude_mcp", __doc__)
    parser.add_argument("--claude", type=Path, required=True)
    args = parser.parse_args()
    table = Table("Claude Code drives the fleet")
    with temporary_folder() as folder:
        trial(folder, args.claude.resolve(), table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
