"""Notifications of a real run: asked, ended, died; sent by a process beside the engine, which outlives it."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, solve, subtask, wait_for
from tests.e2e.test_interruptions import begin

HOOK = "/hooks/b7c1d9e2-secret"
SLOW = script(subtask("one"), pace={"think_s": 0.2}, workers={"one": [solve("one", turns=5)]})
ASKS = script(
    subtask("one"),
    workers={"one": [{"do": "ask", "needs": ["Which <b>port</b>? See https://evil.example"]}, solve("one")]},
)


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A receiver on loopback, and what it was sent."""
    taken: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            taken.append({**json.loads(self.rfile.read(length)), "_key": self.headers["idempotency-key"]})
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{HOOK}", taken
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def told(stage: Stage) -> Iterator[tuple[Stage, list[dict[str, Any]]]]:
    """A stage whose runs notify a receiver."""
    settings = stage.room / "home" / ".config" / "fleet" / "config.toml"
    stage.environment  # noqa: B018 - it makes the home
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[notify.channels.oncall]\nkind = "webhook"\nurl_env = "MY_HOOK"\n')
    with receiver() as (url, taken):
        yield stage.with_(MY_HOOK=url), taken


def events(taken: list[dict[str, Any]]) -> list[str]:
    return [each["event"] for message in taken for each in message["causes"]]


def test_a_question_and_an_end_are_told_with_the_command_that_helps(
    told: tuple[Stage, list[dict[str, Any]]], repository: Path, model: Serve
) -> None:
    stage, taken = told
    patient = stage.with_(FLEET_LIMITS_ANSWER_WAIT_MINUTES="60")
    with patient.going(*begin(patient, repository, model(ASKS))) as going:
        wait_for(lambda: events(taken) == ["question"], going)
        stage.fleet("answer", "q1", "8080", "--run", stage.run_name).ended(0)
        going.done().ended(0)
    wait_for(lambda: events(taken) == ["question", "ended"])
    question = taken[0]["causes"][0]
    assert question["command"].startswith("fleet answer q1 ")
    assert "<b>" not in question["text"]
    assert "https://" not in question["text"]
    listed = stage.fleet("notify", "list", "--json").ended(0).json
    assert {each["state"] for each in listed} == {"sent"}
    for path in stage.state.rglob("*"):
        assert not path.is_file() or HOOK.encode() not in path.read_bytes(), f"{path} holds the address"


@pytest.mark.thorough
def test_a_run_that_died_says_so_once_and_again_after_it_was_resumed_and_ended(
    told: tuple[Stage, list[dict[str, Any]]], repository: Path, model: Serve
) -> None:
    stage, taken = told
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.working(), going)
        wait_for((stage.folder(stage.run_name).path / "notifications.sqlite").exists, going)
        going.kill()
    wait_for(lambda: events(taken) == ["died"])
    stage.fleet("resume", stage.run_name, "--base-url", url).ended(0)
    wait_for(lambda: events(taken) == ["died", "ended"])
    assert stage.fleet("notify", "watch", "--once").ended(0)
    assert events(taken) == ["died", "ended"]


@pytest.mark.thorough
def test_a_notifier_that_died_with_its_engine_is_made_up_for(
    told: tuple[Stage, list[dict[str, Any]]], repository: Path, model: Serve
) -> None:
    stage, taken = told
    with stage.going(*begin(stage, repository, model(SLOW))) as going:
        stage.wait(stage.run_name, lambda state: state.working(), going)
        notifiers = wait_for(lambda: notifiers_of(stage), going)
        going.kill()
        for pid in notifiers:
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not notifiers_of(stage))
    before = events(taken)
    stage.fleet("notify", "watch", "--once").ended(0).says("1 run with notifications")
    assert [*before, "died"][-1:] == events(taken)[-1:] == ["died"]
    assert events(taken).count("died") == 1
    found = stage.fleet("notify", "test").ended(0)
    found.says("oncall", "webhook", "delivered")
    assert HOOK not in found.output


def notifiers_of(stage: Stage) -> list[int]:
    """The processes that send the notifications of the run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"fleet.features.notify.notifier" in line and stage.run_name.encode() in line:
                found.append(int(folder.name))
    return found
