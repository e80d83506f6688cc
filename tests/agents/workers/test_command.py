"""A program as a worker: what it is handed, and what its end means."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.models.transcripts import Transcripts
from agents.workers.command import CommandWorker
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import WorkerBrief
from tests.agents.conftest import FakeMeter, FolderWorkspace, worker_settings

pytestmark = pytest.mark.anyio


async def run(workspace: FolderWorkspace, brief: WorkerBrief, *words: str, **own: Any) -> Report | Failure:
    settings = worker_settings(kind="command", command=words, **own)
    worker = CommandWorker(settings, Transcripts(workspace.folder.parent / "transcripts", secrets=()))
    return await worker.run(brief, workspace, FakeMeter())


async def test_without_a_report_the_exit_code_and_the_output_are_the_report(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    assert await run(workspace, brief, "echo", "{title}:", "made") == Report(status="done", summary="Greet: made")
    assert await run(workspace, brief, "true") == Report(status="done", summary="no output")
    failed = await run(workspace, brief, "sh", "-c", "echo no such region; exit 3")
    assert isinstance(failed, Report)
    assert (failed.status, failed.error_kind) == ("failed", "other")
    assert failed.summary == "the command failed with exit code 3"
    assert failed.error_message == "no such region"


async def test_a_program_that_is_not_there_is_the_environments_fault(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    failed = await run(workspace, brief, "no-such-program-anywhere")
    assert isinstance(failed, Report)
    assert failed.error_kind == "environment"


async def test_it_is_handed_the_subtask_as_a_document_and_in_words(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    second = replace(
        brief,
        guidance="mind the gap",
        failures=((1, Failure(kind="check", summary="red", evidence="E")),),
        results=((SubtaskId("base"), Report(status="done", summary="laid")),),
        notes="be kind",
    )
    copy = 'cp "$FLEET_SUBTASK" got.json; cp "$1" got.md'
    await run(workspace, second, "sh", "-c", copy, "sh", "{prompt}", prompt="You greet.")
    document = json.loads((workspace.folder / "got.json").read_text())
    assert document["subtask"]["goal"] == "Write hello.txt"
    assert document["attempt"]["guidance"] == "mind the gap"
    assert document["attempt"]["failures"][0]["summary"] == "red"
    assert document["results"][0]["subtask"] == "base"
    assert document["notes"] == "be kind"
    words = (workspace.folder / "got.md").read_text()
    assert "be kind" not in words  # it stands in the file that the prompt names
    for part in ("<subtask>", "mind the gap", "background.json", "You greet.", "FLEET_REPORT"):
        assert part in words


async def test_what_it_is_handed_goes_with_it(workspace: FolderWorkspace, brief: WorkerBrief) -> None:
    done = await run(workspace, brief, "echo", "{subtask}")
    assert isinstance(done, Report)
    assert not Path(done.summary).parent.exists()


async def test_done_and_an_exit_code_that_says_otherwise_is_a_failure(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    report = """echo '{"status": "done", "summary": "fine"}' > "$FLEET_REPORT"; exit 2"""
    failure = await run(workspace, brief, "sh", "-c", report)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("tool", "the command reported done but failed with exit code 2")


@pytest.mark.parametrize("code", ["print('x' * 30_000)", "print('{' * 20_000)"])
async def test_a_report_too_long_or_too_deep_is_invalid(
    workspace: FolderWorkspace, brief: WorkerBrief, code: str
) -> None:
    write = f'{sys.executable} -c "$1" > "$FLEET_REPORT"'
    failure = await run(workspace, brief, "sh", "-c", write, "sh", code)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("protocol", "the command's report is invalid")


async def test_a_subtask_without_what_the_command_wants_goes_back_to_the_planner(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    failure = await run(workspace, brief, "deploy", "{parameters.version}")
    assert isinstance(failure, Failure)
    assert failure.kind == "other"
    assert "requires parameters.version" in failure.summary
    assert workspace.commands == []


async def test_a_value_of_the_environment_that_is_printed_is_hidden(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    done = await run(workspace, brief, "sh", "-c", "echo $TOOL_KEY", passed={"TOOL_KEY": "tool-key-0123456789"})
    assert done == Report(status="done", summary="[hidden]")


async def test_its_transcript_has_what_it_printed_and_nothing_of_ours(
    workspace: FolderWorkspace, brief: WorkerBrief
) -> None:
    await run(workspace, brief, "sh", "-c", "echo one; echo two")
    [path] = (workspace.folder.parent / "transcripts").iterdir()
    entry = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    assert (entry["output"], entry["report"]) == ("one\ntwo", "")
