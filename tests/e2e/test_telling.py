"""`fleet tell`: what an operator says reaches a running agent in its box, outlives kills, and stays on record."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.core.state.state import RunState
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, landed, script, solve, subtask, untouched, wait_for
from tests.e2e.test_interruptions import begin
from tests.fleet.core.pretend import subtask_of

NEVER_ENDS = script(
    subtask("one"), workers={"one": [{"do": "shell", "commands": ["sleep 86400", "echo one > one.txt"]}]}
)
SLOW = script(subtask("one"), pace={"think_s": 0.2}, workers={"one": [solve("one", turns=3)]})


def entries(stage: Stage, id_: str) -> list[dict[str, Any]]:
    file = stage.folder(stage.run_name).transcripts / f"{id_}.1.jsonl"
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def told(stage: Stage, id_: str) -> list[list[str]]:
    """What the operator said in each life of an attempt."""
    lives: list[list[str]] = []
    for entry in entries(stage, id_):
        if entry["event"] == "system":
            lives.append([])
        elif entry["event"] == "operator":
            lives[-1] += [block["text"] for block in entry["content"]]
    return lives


def is_asleep(state: RunState, id_: str = "one") -> bool:
    return id_ in state.subtasks and any("sleep" in attempt.doing for attempt in subtask_of(state, id_).attempts)


def test_an_interruption_ends_a_command_that_never_would(stage: Stage, repository: Path, model: Serve) -> None:
    words = "it never ends: write the file <b>now</b>"
    with untouched(repository), stage.going(*begin(stage, repository, model(NEVER_ENDS))) as going:
        stage.wait(stage.run_name, is_asleep, going)
        stage.fleet("tell", "one", "quietly", "--run", stage.run_name).ended(0).says(
            "will see it after its current tool calls"
        )
        tell = stage.fleet("tell", "one", words, "--interrupt", "--run", stage.run_name)
        tell.ended(0).says("instruction sent to one", "attempt 1 will be interrupted and see it immediately")
        going.done().ended(0).says("interrupting instruction to one from")
    assert landed(repository, stage.run_name) == ["one"]
    [life] = told(stage, "one")
    assert ["quietly" in life[0], "it never ends" in life[1], len(life)] == [True, True, 2]
    assert "<b>" not in life[1], "nothing inside closes the block, or opens another"
    shown = stage.fleet("show", "one", "--run", stage.run_name).ended(0)
    shown.says("interrupting, read by attempt 1: it never ends")
    view = stage.fleet("show", "one", "--run", stage.run_name, "--json").ended(0).json
    assert [each["text"] for each in view["instructions"]] == ["quietly", words]
    stage.fleet("logs", "one", "--run", stage.run_name).ended(0).says("── operator", "it never ends", "Stopped by the")
    stage.fleet("audit", stage.run_name).ended(0)
    [commit] = stage.fleet("audit", stage.run_name, "--json").ended(0).json["commits"]
    assert commit["attempts"][0]["instructions"] == ["quietly", words]
    report = stage.fleet("report", stage.run_name, "--json").ended(0).json
    assert report["instructions"]["one"][1]["read_by"] == [1]
    stage.fleet("tell", "one", "late", "--run", stage.run_name).ended(2).says(
        "one has landed, so no attempt would read this instruction"
    )


@pytest.mark.thorough
def test_what_was_told_before_a_kill_and_after_it_reaches_the_next_life(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.working(), going)
        stage.fleet("tell", "one", "before the kill", "--run", stage.run_name).ended(0)
        going.kill()
    dead = stage.fleet("tell", "one", "after the kill", "--run", stage.run_name).ended(0)
    dead.says("attempt 1", "No engine is running. `fleet resume")
    stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("LANDED")
    life = told(stage, "one")[-1]
    assert ["before the kill" in life[0], "after the kill" in life[1], len(life)] == [True, True, 2]
    state = stage.folder(stage.run_name).state()
    assert [len(attempt.instructions) for attempt in subtask_of(state, "one").attempts] == [2]
    wait_for(lambda: not stage.folder(stage.run_name).alive)
