"""The worker kinds, their settings, and what the planner reads about them."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agents.conversation.settings import WorkerSettings
from agents.factory import open_agents, workers_lacking
from agents.models.access import Access
from agents.workers.registry import WORKERS, describe, problems_of
from fleet.core.facts.facts import Failure, Report
from fleet.errors import UsageError
from fleet.ports.agents import WorkerBrief
from tests.agents.conftest import (
    FakeMeter,
    FolderWorkspace,
    Script,
    agents_for,
    says,
    settings_for,
    use,
    worker_settings,
)

pytestmark = pytest.mark.anyio
DONE = says(use("report", {"status": "done", "summary": "there"}))


def test_every_kind_says_what_it_is_for() -> None:
    descriptions = describe({name: worker_settings(kind=name) for name in WORKERS})
    assert descriptions.keys() == WORKERS.keys()
    assert all(descriptions.values())


def test_the_description_names_parameters_hosts_and_later_models() -> None:
    workers = {
        "deploy": worker_settings(kind="command", command=("d", "--v={parameters.version}", "{parameters.where}")),
        "docs": worker_settings(kind="retriever", hosts=("docs.example.org",)),
        "senior": worker_settings(description="Hard things.", models=("a", "b", "c")),
    }
    descriptions = describe(workers)
    assert descriptions["deploy"].endswith("Its subtasks must set these `parameters`: version, where.")
    assert "(docs.example.org)" in descriptions["docs"]
    assert descriptions["senior"] == "Hard things. Starts with a. After a failed attempt it continues with b, c."


async def test_workers_have_the_names_models_and_descriptions_of_the_settings(
    model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace
) -> None:
    workers = {
        "coder": worker_settings(),
        "senior": worker_settings(models=("claude-sonnet-5-5",), description="hard things"),
    }
    model.will(DONE)
    async with agents_for(model, tmp_path, workers=workers) as agents:
        assert agents.descriptions["senior"] == "hard things"
        assert [agents.workers[name].model for name in workers] == ["claude-haiku-5-5", "claude-sonnet-5-5"]
        assert isinstance(await agents.workers["senior"].run(brief, workspace, FakeMeter()), Report)
        assert isinstance(
            await agents.workers["senior"].run(replace(brief, model="opus"), workspace, FakeMeter()), Report
        )
    assert [call["model"] for call in model.asked] == ["claude-sonnet-5-5", "opus"]


async def test_an_unknown_kind_is_an_error_with_the_nearest_one(model: Script, tmp_path: Path) -> None:
    settings = settings_for(model, tmp_path, workers={"fast": worker_settings(kind="codder")})
    with pytest.raises(UsageError, match=r"workers\.fast\.kind.*did you mean 'coder'"):
        async with open_agents(settings):
            pass


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (worker_settings(kind="coder", hosts=("x",)), r"workers\.w: the kind 'coder' does not use hosts; remove it"),
        (
            worker_settings(kind="writer", network=True),
            r"does not use network; remove it",
        ),
        (
            worker_settings(kind="coder", tools=("bahs",)),
            r"workers\.w\.tools: unknown tool 'bahs'; did you mean 'bash'",
        ),
    ],
)
async def test_a_setting_without_a_meaning_for_its_kind_is_an_error(
    model: Script, tmp_path: Path, own: WorkerSettings, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        async with open_agents(settings_for(model, tmp_path, workers={"w": own})):
            pass


@pytest.mark.parametrize(
    ("kind", "tools"),
    [
        ("coder", ["bash", "str_replace_based_edit_tool", "background", "report"]),
        ("writer", ["str_replace_based_edit_tool", "background", "report"]),
        ("processor", ["bash", "background", "report"]),
    ],
)
async def test_a_kind_has_its_own_tools_by_default(
    model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace, *, kind: str, tools: list[str]
) -> None:
    model.will(DONE)
    async with agents_for(model, tmp_path, workers={"w": worker_settings(kind=kind, prompt="Mind the gap.")}) as agents:
        await agents.workers["w"].run(brief, workspace, FakeMeter())
    assert [tool["name"] for tool in model.asked[0]["tools"]] == tools
    assert model.asked[0]["system"][0]["text"].endswith("# Additional instructions\n\nMind the gap.\n")


async def test_tools_of_a_worker_take_the_place_of_its_kinds_and_background_and_report_stay(
    model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace
) -> None:
    model.will(DONE)
    async with agents_for(model, tmp_path, workers={"w": worker_settings(tools=("bash",))}) as agents:
        await agents.workers["w"].run(brief, workspace, FakeMeter())
    assert [tool["name"] for tool in model.asked[0]["tools"]] == ["bash", "background", "report"]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (worker_settings(tokens=200), "used 270 tokens (limit of its worker: 200)"),
        (worker_settings(dollars=0.00002), "(limit of its worker: $2e-05)"),
    ],
)
async def test_an_attempt_ends_where_its_own_allowance_does(
    model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace, *, own: WorkerSettings, message: str
) -> None:
    model.will(says(use("bash", {"command": "true"})), says(use("bash", {"command": "echo"}, id="toolu_2")), DONE)
    async with agents_for(model, tmp_path, workers={"w": own}) as agents:
        failure = await agents.workers["w"].run(brief, workspace, FakeMeter())
    assert isinstance(failure, Failure)
    assert (failure.kind, len(model.asked)) == ("budget", 2)
    assert message in failure.summary


@pytest.mark.parametrize(
    "base_url",
    [
        *("", "nowhere", "http://", "gopher://127.0.0.1", "http://\0", "http://[", "http://a\n", "http://a..b"),
        *("http://a:port", "http://a:0", "http://a:99999"),
    ],
)
async def test_a_base_url_that_can_not_be_used_is_refused(model: Script, tmp_path: Path, base_url: str) -> None:
    with pytest.raises(UsageError, match=r"models\.base_url"):
        async with open_agents(replace(settings_for(model, tmp_path), access=Access(base_url, ""))):
            pass


@pytest.mark.parametrize("installed", [True, False])
async def test_an_agent_needs_its_extra_and_on_a_node_a_model_of_ours(
    installed: bool, model: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an agent with an access of its own uses can't be counted from a node."""
    if not installed:
        monkeypatch.setitem(sys.modules, "acp", None)
    workers = {
        "ours": worker_settings(kind="acp", command=("agent",), models=("claude-haiku-5-5",)),
        "own": worker_settings(kind="acp", command=("agent",)),
    }
    settings = settings_for(model, tmp_path, workers=workers)
    assert workers_lacking(settings) == (["own"] if installed else ["ours", "own"])
    assert ("worktree-fleet[acp]" in "".join(problems_of("ours", workers["ours"]))) == (not installed)
