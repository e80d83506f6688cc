"""Who works here, and what the planner is told of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.minds import open_minds
from agents.registry import WORKERS, describe
from agents.settings import WorkerSettings
from fleet.core.facts import Failure, Report
from fleet.ports import Extras, UsageError, WorkerBrief
from tests.agents.conftest import FolderDesk, Purse, Script, minds_for, says, settings_for, use

pytestmark = pytest.mark.anyio
DONE = says(use("report", {"status": "done", "summary": "there"}))


def test_every_kind_says_what_it_is_for() -> None:
    told = describe({name: WorkerSettings(kind=name) for name in WORKERS})
    assert told.keys() == WORKERS.keys()
    assert all(told.values())


def test_the_planner_is_told_what_a_worker_wants_and_goes_on_with() -> None:
    workers = {
        "deploy": WorkerSettings(kind="command", command=("d", "--v={parameters.version}", "{parameters.where}")),
        "docs": WorkerSettings(kind="retriever", hosts=("docs.example.org",)),
        "senior": WorkerSettings(description="Hard things.", models=("a", "b", "c")),
    }
    told = describe(workers)
    assert told["deploy"].endswith("Its subtasks give it these `parameters`: version, where.")
    assert "(docs.example.org)" in told["docs"]
    assert told["senior"] == "Hard things. Begins with a; after an attempt that failed it goes on with b, c."


async def test_workers_have_the_names_models_and_descriptions_of_the_settings(
    model: Script, tmp_path: Path, brief: WorkerBrief, desk: FolderDesk
) -> None:
    workers = {
        "coder": WorkerSettings(),
        "senior": WorkerSettings(models=("claude-sonnet-5-5",), description="hard things"),
    }
    model.will(DONE)
    async with minds_for(model, tmp_path, workers=workers) as minds:
        assert minds.descriptions["senior"] == "hard things"
        assert [minds.workers[name].model for name in workers] == ["claude-haiku-5-5", "claude-sonnet-5-5"]
        assert isinstance(await minds.workers["senior"].run(brief, desk, Purse()), Report)
        assert isinstance(await minds.workers["senior"].run(replace(brief, model="opus"), desk, Purse()), Report)
    assert [call["model"] for call in model.asked] == ["claude-sonnet-5-5", "opus"]


async def test_a_kind_that_is_none_is_told_with_the_nearest_one(model: Script, tmp_path: Path) -> None:
    settings = settings_for(model, tmp_path, workers={"fast": WorkerSettings(kind="codder")})
    with pytest.raises(UsageError, match=r"workers\.fast\.kind.*did you mean 'coder'"):
        async with open_minds(settings):
            pass


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (WorkerSettings(kind="coder", hosts=("x",)), r"workers\.w: hosts means nothing to the kind 'coder'"),
        (WorkerSettings(kind="writer", extras=Extras(network=True)), r"read_only, path, network and environment means"),
        (
            WorkerSettings(kind="coder", tools=("bahs",)),
            r"workers\.w\.tools: there is no tool 'bahs'; did you mean 'bash'",
        ),
    ],
)
async def test_a_setting_that_means_nothing_to_a_kind_is_told(
    model: Script, tmp_path: Path, own: WorkerSettings, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        async with open_minds(settings_for(model, tmp_path, workers={"w": own})):
            pass


@pytest.mark.parametrize(
    ("kind", "tools"),
    [
        ("coder", ["bash", "str_replace_based_edit_tool", "report"]),
        ("writer", ["str_replace_based_edit_tool", "report"]),
        ("processor", ["bash", "report"]),
    ],
)
async def test_a_kind_has_its_tools_and_no_others_unless_it_is_told(
    model: Script, tmp_path: Path, brief: WorkerBrief, desk: FolderDesk, *, kind: str, tools: list[str]
) -> None:
    model.will(DONE)
    async with minds_for(model, tmp_path, workers={"w": WorkerSettings(kind=kind, prompt="Mind the gap.")}) as minds:
        await minds.workers["w"].run(brief, desk, Purse())
    assert [tool["name"] for tool in model.asked[0]["tools"]] == tools
    assert model.asked[0]["system"][0]["text"].endswith("# What you are told besides\n\nMind the gap.\n")


async def test_tools_of_a_worker_take_the_place_of_its_kinds_and_report_stays(
    model: Script, tmp_path: Path, brief: WorkerBrief, desk: FolderDesk
) -> None:
    model.will(DONE)
    async with minds_for(model, tmp_path, workers={"w": WorkerSettings(tools=("bash",))}) as minds:
        await minds.workers["w"].run(brief, desk, Purse())
    assert [tool["name"] for tool in model.asked[0]["tools"]] == ["bash", "report"]


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (WorkerSettings(tokens=200), "used 270 tokens; its worker may use 200"),
        (WorkerSettings(dollars=0.00002), "its worker may cost $2e-05"),
    ],
)
async def test_an_attempt_ends_where_its_own_allowance_does(
    model: Script, tmp_path: Path, brief: WorkerBrief, desk: FolderDesk, *, own: WorkerSettings, said: str
) -> None:
    model.will(says(use("bash", {"command": "true"})), says(use("bash", {"command": "echo"}, id="toolu_2")), DONE)
    async with minds_for(model, tmp_path, workers={"w": own}) as minds:
        failure = await minds.workers["w"].run(brief, desk, Purse())
    assert isinstance(failure, Failure)
    assert (failure.kind, len(model.asked)) == ("budget", 2)
    assert said in failure.summary


@pytest.mark.parametrize("base_url", ["", "nowhere", "http://", "gopher://127.0.0.1", "http://\0"])
async def test_a_base_url_that_is_none_is_told(model: Script, tmp_path: Path, base_url: str) -> None:
    with pytest.raises(UsageError, match=r"models\.base_url"):
        async with open_minds(replace(settings_for(model, tmp_path), base_url=base_url)):
            pass
