"""Who works here, and what the planner is told of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.minds import open_minds
from agents.registry import WORKERS, describe
from agents.settings import WorkerSettings
from fleet.core.facts import Report
from fleet.ports import UsageError, WorkerBrief
from tests.agents.conftest import FolderDesk, Purse, Script, minds_for, says, settings_for, use

pytestmark = pytest.mark.anyio
DONE = says(use("report", {"status": "done", "summary": "there"}))


def test_every_kind_says_what_it_is_for() -> None:
    told = describe({name: WorkerSettings(kind=name) for name in WORKERS})
    assert told.keys() == WORKERS.keys()
    assert all(told.values())


async def test_workers_have_the_names_models_and_descriptions_of_the_settings(
    model: Script, tmp_path: Path, brief: WorkerBrief, desk: FolderDesk
) -> None:
    workers = {
        "coder": WorkerSettings(),
        "senior": WorkerSettings(model="claude-sonnet-5-5", description="hard things"),
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


@pytest.mark.parametrize("base_url", ["", "nowhere", "http://", "gopher://127.0.0.1", "http://\0"])
async def test_a_base_url_that_is_none_is_told(model: Script, tmp_path: Path, base_url: str) -> None:
    with pytest.raises(UsageError, match=r"models\.base_url"):
        async with open_minds(replace(settings_for(model, tmp_path), base_url=base_url)):
            pass
