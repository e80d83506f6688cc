"""The examples of docs/guides/workers.md, all in one run, and a session of Claude Code in another."""

import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.contract.conftest import acp_command, stand_in
from tests.e2e.conftest import Serve
from tests.e2e.stage import KEY, Stage, content, landed, script, solve, subtask
from tests.e2e.test_interruptions import begin
from tests.e2e.test_telling import is_asleep
from tests.fleet.core.pretend import subtask_of
from tests.worktrees.conftest import make_repository

DOCUMENT = Path(__file__).parents[2] / "docs" / "guides" / "workers.md"
CHANGELOG = """\
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for flag in ("--version", "--title", "--report"):
    parser.add_argument(flag, required=True)
asked = parser.parse_args()
pathlib.Path("CHANGES.txt").write_text(f"{asked.version}: {asked.title}\\n")
pathlib.Path(asked.report).write_text(json.dumps({"status": "done", "summary": f"written for {asked.version}"}))
"""
AGENT = """#!/bin/sh
[ "$1" = exec ] && [ -n "$OPENAI_API_KEY" ] || exit 9
for last; do :; done
file=${last#Do what }; file=${file% says.}
grep -q '"id":"codex"' "$file" && echo codex > codex.txt
"""


def examples() -> dict[str, str]:
    """Each table of the document that makes a worker, by the worker's name."""
    blocks = re.findall(r"^```toml\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return {name: block for block in blocks for name in tomllib.loads(block)["workers"]}


def furnished(stage: Stage, claude: Path, *, workers: str) -> Stage:
    """The stage of a user who has these workers, the files that they name, and the programs."""
    own = stage.room / "home" / ".config" / "fleet"
    own.mkdir(parents=True)
    (own / "senior.md").write_text("Take your time.\n")
    (own / "config.toml").write_text(f'[box]\nread_only = ["{sys.prefix}"]\n{workers}')
    agent = stage.room / "home" / ".local" / "share" / "codex" / "bin" / "codex"
    agent.parent.mkdir(parents=True)
    agent.write_text(AGENT)
    agent.chmod(0o755)
    program = acp_command(stage.room, {"turns": [[{"shell": "echo opencode > opencode.txt"}, {"say": "Done."}]]})
    opencode = stage.room / "home" / ".opencode" / "bin" / "opencode"
    opencode.parent.mkdir(parents=True)
    shutil.copy(program[2], opencode.parent)
    opencode.write_text(f'#!/bin/sh\nexec {program[0]} -I "${{0%/*}}/agent.py" {shlex.quote(program[3])}\n')
    opencode.chmod(0o755)
    return stage.with_(PATH=f"{claude.parent}:{os.environ['PATH']}", OPENAI_API_KEY="another-key-0123")


@pytest.fixture
def claude(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    real: Path | None = request.config.getoption("--claude-code", default=None)
    return real.absolute() if real else stand_in(tmp_path / "claude-code")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A host on loopback with step file to fetch."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "retriever.txt").write_text("retriever\n")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its own name
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_every_example_of_the_document_works(
    stage: Stage, tmp_path: Path, claude: Path, site: str, model: Serve
) -> None:
    repository = make_repository(tmp_path / "work", {"README.md": "hello\n", "tools/changelog.py": CHANGELOG})
    workers = examples()
    workers["retriever"] = re.sub(r"hosts = .*", f'hosts = ["{site}"]', workers["retriever"])
    furnished_stage = furnished(stage, claude, workers="\n".join(workers.values()))
    written = {"touches": ["CHANGES.txt"], "parameters": {"version": "1.2"}}
    plan = [
        subtask(name, run="grep -q '^1.2: ' CHANGES.txt", worker=name, **written)
        if name == "changelog"
        else subtask(name, worker=name)
        for name in workers
    ]
    fetched = {"do": "fetch", "files": {"retriever.txt": f"http://{site}/retriever.txt"}}
    url = model(script(*plan, workers={"retriever": [fetched]}, api_key=KEY))
    furnished_stage.fleet("run", "Write them", "--name", "r", "--base-url", url, at=repository).ended(0).says("LANDED")
    assert set(landed(repository, "r")) == set(workers)
    assert content(repository, "r", "CHANGES.txt") == "1.2: Write changelog"
    assert furnished_stage.look("r") is not None
    for path in (furnished_stage.state / "runs" / "r").rglob("*.jsonl"):
        assert "another-key-0123" not in path.read_text()


def test_a_run_of_commands_loads_no_client_of_a_model(stage: Stage, repository: Path) -> None:
    config = repository.parent / "config.toml"
    config.write_text("[workers.step]\nkind = 'command'\ncommand = 'sh -c \"echo step > step.txt\"'\n")
    plan = repository.parent / "plan.json"
    plan.write_text(json.dumps({"goal": "Write it", "subtasks": [subtask("step", worker="step")]}))
    verbose = stage.with_(PYTHONPROFILEIMPORTTIME="1")
    nowhere = ("--base-url", "http://127.0.0.1:9")
    done = verbose.fleet("run", "--plan", str(plan), "--config", str(config), *nowhere, at=repository)
    done.ended(0).says("LANDED", "agents.workers.command")
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.err.splitlines()}
    assert loaded & {"anthropic", "httpx2", "aiohttp"} == set()


def test_a_session_of_claude_code_works_and_is_paid_for(
    stage: Stage, repository: Path, claude: Path, model: Serve
) -> None:
    step = subtask("claude", worker="claude", failure_action="retry")
    url = model(
        script(
            step, workers={"claude": [{"do": "wrong", "files": {"claude.txt": "no\n"}}, solve("claude")]}, api_key=KEY
        )
    )
    furnished_stage = furnished(stage, claude, workers=examples()["claude"])
    furnished_stage.fleet("run", "Write it", "--name", "r", "--base-url", url, at=repository).ended(0).says("LANDED")
    state = furnished_stage.look("r")
    assert state is not None
    first, second = subtask_of(state, "claude").attempts
    assert first.failure is not None
    assert first.failure.kind == "check"
    assert [first.model, second.model] == ["claude-sonnet-5-5", "claude-opus-5-5"]
    for attempt in (first, second):
        assert attempt.spend.calls >= 2
        assert attempt.spend.dollars
    transcript = (furnished_stage.state / "runs" / "r" / "transcripts" / "claude.2.jsonl").read_text()
    assert '"StructuredOutput"' in transcript
    assert KEY not in transcript


def test_what_is_told_to_a_session_of_claude_code_reaches_it_while_it_works(
    stage: Stage, repository: Path, claude: Path, model: Serve
) -> None:
    commands = ["sleep 86400", "echo claude > claude.txt"]
    url = model(
        script(
            subtask("claude", worker="claude"), workers={"claude": [{"do": "shell", "commands": commands}]}, api_key=KEY
        )
    )
    own = furnished(stage, claude, workers=examples()["claude"])
    with own.going(*begin(stage, repository, url)) as going:
        own.wait(stage.run_name, partial(is_asleep, id_="claude"), going)
        tell = own.fleet("tell", "claude", "it never ends, leave it out", "--interrupt", "--run", stage.run_name)
        tell.ended(0).says("instruction sent to claude", "attempt 1 will be interrupted and see it immediately")
        going.done().ended(0).says("LANDED")
    shown = own.fleet("show", "claude", "--run", stage.run_name).ended(0)
    shown.says("interrupting, read by attempt 1: it never ends")
    own.fleet("logs", "claude", "--run", stage.run_name).ended(0).says("── operator", "it never ends, leave it out")
