"""What nodes of a configuration may do for a run."""

from pathlib import Path

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.core.plans.limits import HERE, MachineOffer
from fleet.errors import UsageError


def test_a_run_may_use_what_its_nodes_offer() -> None:
    flags: dict[str, object] = {
        "nodes.near.command": "ssh near fleet node",
        "nodes.near.lands": True,
        "nodes.checker.command": "ssh checker fleet node",
        "nodes.checker.workers": 0,
        "nodes.many.ray": "auto",
        "nodes.many.labels": ["gpu"],
    }
    wiring = Wiring(load_config(environ={}, user_file=None, flags=flags).config, {})
    assert {name: most for name, (_, most) in wiring.others.items()} == {"near": 1, "checker": 0, "many": 1000}
    assert wiring.machines.offers == {
        HERE: MachineOffer(lands=True),
        "near": MachineOffer(lands=True),
        "checker": MachineOffer(works=False),
        "many": MachineOffer(labels=("gpu",)),
    }


def test_without_nodes_a_run_has_this_machine_alone() -> None:
    wiring = Wiring(load_config(environ={}, user_file=None).config, {})
    assert (wiring.others, list(wiring.machines.offers)) == ({}, [HERE])


def test_a_repository_may_not_name_nodes(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("[nodes.x]\ncommand = 'evil'\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"nodes\.x\.command can't be set by a repository: it sends your code to other machines"
    ):
        load_config(environ={}, user_file=None, repository=tmp_path)
