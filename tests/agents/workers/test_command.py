"""A program as a worker: what it is handed, and what its end means."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.command import CommandWorker
from agents.settings import WorkerSettings
from agents.transcripts import Transcripts
from fleet.core.facts import Failure, Report
from fleet.ports import Extras, WorkerBrief
from tests.agents.conftest import FolderDesk, Purse

pytestmark = pytest.mark.anyio


async def run(desk: FolderDesk, brief: WorkerBrief, *words: str, **own: Any) -> Report | Failure:
    settings = WorkerSettings(kind="command", command=words, **own)
    worker = CommandWorker(settings, Transcripts(desk.folder.parent / "transcripts", secret=""))
    return await worker.run(brief, desk, Purse())


async def test_without_a_report_the_exit_code_and_the_output_are_the_report(
    desk: FolderDesk, brief: WorkerBrief
) -> None:
    assert await run(desk, brief, "echo", "{title}:", "made") == Report(status="done", summary="Greet: made")
    assert await run(desk, brief, "true") == Report(status="done", summary="it printed nothing")
    failed = await run(desk, brief, "sh", "-c", "echo no such region; exit 3")
    assert isinstance(failed, Report)
    assert (failed.status, failed.error_kind) == ("failed", "other")
    assert failed.summary == "the command ended with exit code 3"
    assert failed.error_message == "no such region"


async def test_a_program_that_is_not_there_is_the_environments_fault(desk: FolderDesk, brief: WorkerBrief) -> None:
    failed = await run(desk, brief, "no-such-program-anywhere")
    assert isinstance(failed, Report)
    assert failed.error_kind == "environment"


async def test_it_is_handed_the_subtask_as_a_document_and_in_words(desk: FolderDesk, brief: WorkerBrief) -> None:
    told = replace(
        brief,
        guidance="mind the gap",
        failures=((1, Failure(kind="check", summary="red", evidence="E")),),
        results=(("base", Report(status="done", summary="laid")),),
        notes="be kind",
    )
    copy = 'cp "$FLEET_SUBTASK" got.json; cp "$1" got.md'
    await run(desk, told, "sh", "-c", copy, "sh", "{prompt}", prompt="You greet.")
    document = json.loads((desk.folder / "got.json").read_text())
    assert document["subtask"]["goal"] == "Write hello.txt"
    assert document["attempt"]["guidance"] == "mind the gap"
    assert document["attempt"]["failures"][0]["summary"] == "red"
    assert document["results"][0]["subtask"] == "base"
    assert document["notes"] == "be kind"
    words = (desk.folder / "got.md").read_text()
    for part in ("<subtask>", "mind the gap", "be kind", "You greet.", "FLEET_REPORT"):
        assert part in words


async def test_what_it_is_handed_goes_with_it(desk: FolderDesk, brief: WorkerBrief) -> None:
    done = await run(desk, brief, "echo", "{subtask}")
    assert isinstance(done, Report)
    assert not Path(done.summary).parent.exists()


async def test_done_and_an_exit_code_that_says_otherwise_is_a_failure(desk: FolderDesk, brief: WorkerBrief) -> None:
    report = """echo '{"status": "done", "summary": "fine"}' > "$FLEET_REPORT"; exit 2"""
    failure = await run(desk, brief, "sh", "-c", report)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("tool", "the command reported done and ended with exit code 2")


@pytest.mark.parametrize("code", ["print('x' * 30_000)", "print('{' * 20_000)"])
async def test_a_report_too_long_or_too_deep_is_none(desk: FolderDesk, brief: WorkerBrief, code: str) -> None:
    write = f'{sys.executable} -c "$1" > "$FLEET_REPORT"'
    failure = await run(desk, brief, "sh", "-c", write, "sh", code)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("protocol", "the command's report is none")


async def test_a_subtask_without_what_the_command_wants_goes_back_to_the_planner(
    desk: FolderDesk, brief: WorkerBrief
) -> None:
    failure = await run(desk, brief, "deploy", "{parameters.version}")
    assert isinstance(failure, Failure)
    assert failure.kind == "other"
    assert "wants parameters.version" in failure.summary
    assert desk.commands == []


async def test_a_value_of_the_environment_that_is_printed_is_hidden(desk: FolderDesk, brief: WorkerBrief) -> None:
    extras = Extras(environment={"TOOL_KEY": "tool-key-0123456789"})
    done = await run(desk, brief, "sh", "-c", "echo $TOOL_KEY", extras=extras, secrets=("tool-key-0123456789",))
    assert done == Report(status="done", summary="[hidden]")
