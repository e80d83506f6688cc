"""The nodes of a run as its engine opens them: what the configuration lacks is said, and what a person adds joins."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.state.state import RunState
from fleet.engine.this_machine import ThisMachine
from fleet.features.nodes.manager_side import Here, open_nodes
from fleet.features.nodes.settings import NodeSettings
from tests.fleet.core.story import WHO, Story, plan_of
from tests.fleet.fakes import wait_until
from tests.fleet.hands import PaperHands
from worktrees.store.packs import open_node_store


class Engine:
    """Satisfies `Recorder`, as far as nodes ask for it."""

    def __init__(self, state: RunState) -> None:
        self.state = state

    def note(self, *facts: f.Fact) -> None:
        for fact in facts:
            self.state = evolve(self.state, fact)


@asynccontextmanager
async def opened(
    state: RunState, config_home: Path, included: tuple[str, ...] = (), **nodes: NodeSettings
) -> AsyncIterator[Engine]:
    """The nodes of a run; its configuration names none unless some are given."""
    config = default_config().model_copy(update={"nodes": nodes})
    wiring = Wiring(config, {"HOME": str(config_home)})
    store = await open_node_store(config_home, "repository", "sha1")
    worktrees = cast("Any", SimpleNamespace(store=store, leases=SimpleNamespace(included_files=included)))
    here = Here(config_home, config_home, 2, cast("Any", None))
    async with open_nodes(wiring, state, worktrees, here) as opened_nodes:
        engine = Engine(state)
        opened_nodes.beside(ThisMachine(PaperHands().lease), cast("Any", engine))
        yield engine
    await store.close()


def out(engine: Engine, name: str) -> Callable[[], bool]:
    return lambda: engine.state.nodes[name].out not in {"", "not connected yet"}


async def test_a_node_that_is_no_longer_configured_is_named(tmp_path: Path) -> None:
    offers = {"": MachineOffer(), "gone": MachineOffer(labels=("gpu",))}
    state = Story(Policy(machines=Machines(offers=offers)), plan_of("a")).state
    async with opened(state, tmp_path) as engine:
        assert engine.state.nodes["gone"].out == "[nodes.gone] was removed from the configuration"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("", "the configuration does not have [nodes.new]"),
        ('[nodes.new]\ncommand = "/no/such/program"', "No such file"),
        ("[nodes.new]\ncolour = 3", "the configuration can't be read"),
    ],
)
async def test_a_node_that_a_person_adds_is_looked_for_in_the_configuration(
    config: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "c.toml").write_text(config, encoding="utf-8")
    state = Story(plan=plan_of("a")).state
    chosen = state.choices.model_copy(update={"config_file": str(tmp_path / "c.toml")})
    state = replace(state, choices=chosen, repository=str(tmp_path), base=Sha("1" * 40))
    async with opened(state, tmp_path) as engine:
        engine.note(f.NodeAddRequested(at=0, node="new", by=WHO))
        await wait_until(out(engine, "new"))
    assert why in engine.state.nodes["new"].out
    assert not engine.state.nodes["new"].added


@pytest.mark.parametrize(
    ("included", "named"), [((), []), ((".env",), [".env"]), (tuple(f"f{at}" for at in range(9)), ["f4 ..."])]
)
async def test_files_that_worktrees_get_here_and_not_on_nodes_are_named(
    tmp_path: Path, included: tuple[str, ...], named: list[str]
) -> None:
    state = replace(Story(Policy(), plan_of("a")).state, base=Sha("0" * 40))
    async with opened(state, tmp_path, included, one=NodeSettings(command="false")) as engine:
        warnings = [text for text in engine.state.warnings if "not sent to nodes" in text]
    assert [each in text for each, text in zip(named, warnings, strict=True)] == [True] * len(named)
    async with opened(state, tmp_path, included) as engine:
        assert engine.state.warnings == ()
