"""The demo's only way to `fleet`: its command line, in child processes with a clean environment.

The content of the demo is not known here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.simulated import asked

KEY_NAME = "TEXTKIT_DEMO_KEY"
STRIPPED = ("ANTHROPIC_", "CLAUDE_", "FLEET_")
STATUS_S, STOP_S = 60, 10
ANNOUNCED = "listening on "


class DemoError(Exception):
    """The demo can't continue. The message explains why."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the run to a human."""

    id: str
    about: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Fleet:
    """`fleet` with its state in one folder and without the user's configuration."""

    state: Path
    config: Path

    @property
    def environment(self) -> dict[str, str]:
        proxies = {"http_proxy", "https_proxy", "all_proxy", "no_proxy"}
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(STRIPPED) and name.lower() not in proxies
        }
        return kept | {
            "FLEET_STATE_DIR": str(self.state),
            "FLEET_MODELS_API_KEY_ENV": KEY_NAME,
            KEY_NAME: "no-key-is-needed",
            "XDG_CONFIG_HOME": str(self.state / "no-user-configuration"),
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "fleet", *arguments]

    @contextmanager
    def simulated_model(self, script: Path) -> Iterator[str]:
        """The base URL of a simulated model that plays `script`, for as long as the block lasts.

        Raises `DemoError` at the end if a request broke a rule of the real service.
        """
        command = self.command("simulate", str(script), "--port", "0")
        # a session of its own: a Ctrl-C is for the run, which still needs its model while it drains
        with subprocess.Popen(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                url = _announced_url(process)
                yield url
                so_far = asked(url)
                print(f"  {so_far.line}", flush=True)
                if so_far.complaint:
                    raise DemoError(so_far.complaint)
            finally:
                _stop(process)

    @contextmanager
    def run(self, epic: Path, repository: Path, more: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """The run itself, in our terminal."""
        command = self.command(
            "run", str(epic), "--repo", str(repository), "--config", str(self.config), "--yes", "--no-tui", *more
        )
        with subprocess.Popen(command, env=self.environment) as process:
            try:
                yield process
            finally:
                _stop(process)

    def status(self, run: str | None = None) -> Mapping[str, Any] | None:
        """Return the output of `fleet status --json` for a run or the latest one, or None if there is no run."""
        done = self._ask("status", *([run] if run else []), "--json")
        if done.returncode not in {0, 1, 4} or not done.stdout.strip():
            return None
        try:
            status = json.loads(done.stdout)
        except ValueError:
            return None
        return status if isinstance(status, dict) else None

    def answer(self, question: Question, text: str, run: str) -> bool:
        return self._ask("answer", question.id, text, "--run", run).returncode == 0

    def _ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STATUS_S,
            start_new_session=True,
            check=False,
        )


def open_questions(status: Mapping[str, Any]) -> list[Question]:
    """The questions of a status without an answer."""
    questions = status.get("questions")
    if not isinstance(questions, list):
        return []
    return [
        Question(str(item["id"]), item.get("about"), str(item.get("question") or item.get("text") or ""))
        for item in questions
        if isinstance(item, dict) and item.get("answer") is None and "id" in item
    ]


def _announced_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None  # noqa: S101 - it was asked for
    for line in process.stdout:
        if ANNOUNCED in line:
            return line.rsplit(ANNOUNCED, 1)[1].strip()
    raise DemoError("the simulated model did not start; see its output above")


def _stop(process: subprocess.Popen[Any]) -> None:
    """Terminate it, then kill it, unless it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
