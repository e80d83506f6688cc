"""Runs the real Claude Code for one session with a simulated model, on loopback and with a separate home."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_S = 600.0
QUIET = {
    "ANTHROPIC_API_KEY": "simulated",
    "BASH_DEFAULT_TIMEOUT_MS": "400000",
    "BASH_MAX_TIMEOUT_MS": "400000",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "ENABLE_TOOL_SEARCH": "false",
    "MCP_TOOL_TIMEOUT": "400000",
}


@dataclass(frozen=True)
class Session:
    """The lines that a session printed."""

    lines: Sequence[Mapping[str, Any]]

    @property
    def begun(self) -> Mapping[str, Any]:
        """Return the session's tools, servers and skills."""
        return next((line for line in self.lines if line.get("subtype") == "init"), {})

    @property
    def blocks(self) -> list[Mapping[str, Any]]:
        """Return the input of its model after the prompt: tool results and texts."""
        return [block for line in self.lines if line.get("type") == "user" for block in _blocks(line)]

    @property
    def results(self) -> list[Mapping[str, Any]]:
        return [block for block in self.blocks if block.get("type") == "tool_result"]


def play(claude: Path, home: Path, repository: Path, url: str, *options: str, **more: str) -> Session:
    """Run one session to its end. The last option is the prompt."""
    home.mkdir(exist_ok=True)
    command = [str(claude), "--print", "--verbose", "--output-format", "stream-json", "--model", "claude-haiku-5-5"]
    given = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "ANTHROPIC_BASE_URL": url}
    done = subprocess.run(
        [*command, *options],
        cwd=repository,
        env=given | QUIET | more,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        sys.stderr.write((done.stdout + done.stderr)[-3_000:])
    return Session([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])


def _blocks(line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = line.get("message", {}).get("content", ())
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)]
