"""A wide epic with planners of its own for two areas, through the command line, also when the manager is killed."""

from pathlib import Path

import pytest

from fleet.core.base.ids import SubtaskId
from fleet.core.state.state import RunState
from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, landed, script, solve, subtask
from tests.fleet.core.pretend import subtask_of
from tests.worktrees.conftest import git


def area(name: str, *parts: str, **more: object) -> Json:
    files = [f"{part}.txt" for part in parts]
    check = " && ".join(f"test -f {file}" for file in files)
    return subtask(name, run=check, touches=files, worker="planner", goal=f"Write {name}.", **more)


def planned(name: str, *parts: Json) -> Json:
    """What the planner of an area does first."""
    return {"when": {"area": name, "start": True}, "revision": {"assessment": f"{name} in parts.", "add": list(parts)}}


WIDE = script(
    area("walls", "north", "south"),
    area("roof", "beam", "tile", depends_on=["walls"]),
    subtask("door", "walls"),
    steps=[
        planned("walls", subtask("north"), subtask("south")),
        planned("roof", subtask("beam"), subtask("tile", "beam")),
    ],
    workers={
        "south": [{"do": "too_complex"}, solve("south")],
        **{name: [solve(name)] for name in ("north", "beam", "tile")},
    },
    pace={"think_s": 0.05},
)


def by_call(state: RunState) -> set[str | None]:
    return {version.area for version in state.versions}


def test_areas_are_planned_by_planners_of_their_own_and_land(stage: Stage, repository: Path, model: Serve) -> None:
    done = stage.fleet("run", "Build it", "--name", "house", "--base-url", model(WIDE), "--yes", at=repository)
    done.ended(0).says("walls started planning", "walls is done: walls: Write north, Write south.", "5 of 5")
    order = landed(repository, "house")
    assert sorted(order) == ["beam", "door", "north", "south", "tile"]
    assert set(order[:2]) == {"north", "south"}
    stage.fleet("audit", "house").ended(0).says("by planner of the area walls", "audit passed: 5 commits")
    state = stage.look("house")
    assert state is not None
    assert by_call(state) == {None, "walls", "roof"}
    assert stage.status("house")["tokens"]["sub_planner"]["calls"] > 0
    assert subtask_of(state, "south").attempts[1].strategy == "alternative"


@pytest.mark.thorough
def test_a_manager_that_is_killed_while_an_area_is_planned_continues_it(
    stage: Stage, repository: Path, model: Serve
) -> None:
    slow = {**WIDE, "planner": {**WIDE["planner"], "pace": {"think_s": 0.6}}}
    url = model(slow)
    run = ("run", "Build it", "--name", stage.run_name, "--base-url", url, "--yes", "--repo", str(repository))
    with stage.going(*run) as going:
        stage.wait(
            stage.run_name, lambda state: state.areas and state.areas[SubtaskId("walls")].open is not None, going
        )
        going.kill()
    stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("LANDED")
    assert sorted(landed(repository, stage.run_name)) == ["beam", "door", "north", "south", "tile"]
    stage.nothing_runs(stage.run_name)
    assert git(repository, "show", f"fleet/{stage.run_name}:tile.txt") == "tile"
