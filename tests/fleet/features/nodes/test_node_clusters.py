"""What the verbs say of the machines of a Ray cluster, by a stand-in for Ray: each is a node with its own name."""

import shlex
import sys
from pathlib import Path

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.features.nodes.kinds import KINDS, kind_of, machines_now, transport_environment
from fleet.features.nodes.node_admin import look_at_nodes, node_findings
from fleet.features.nodes.settings import NodeSettings
from fleet.features.nodes.transport import LinkLostError
from tests.fleet.features.nodes.conftest import STANDIN

ID = "abcdef01" + 48 * "0"


@pytest.fixture
def wiring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wiring:
    monkeypatch.syspath_prepend(str(STANDIN))
    (tmp_path / "hosts").write_text(ID)
    (tmp_path / "node.toml").write_text(f'[state]\ndir = "{tmp_path / "state"}"\n')
    node = [sys.executable, "-P", "-m", "fleet", "node", "--stdio", "--config", str(tmp_path / "node.toml")]
    settings = NodeSettings(ray="auto", command=shlex.join(node), labels=("big",))
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(STANDIN), "RAY_STANDIN": str(tmp_path)}
    return Wiring(default_config().model_copy(update={"nodes": {"cluster": settings}}), environ)


async def test_each_machine_is_listed_and_greeted_and_no_slots_are_asked_for(wiring: Wiring, tmp_path: Path) -> None:
    [view] = await look_at_nodes(wiring)
    assert (view.name, view.ok, view.workers, view.labels) == ("cluster-abcdef01", True, 2, ("big",)), view
    [finding] = [each async for each in node_findings(wiring)]
    assert (finding.what, finding.ok) == ("node cluster-abcdef01", True)
    assert "slots" not in (tmp_path / "asked").read_text()


async def test_a_cluster_that_can_not_be_joined_is_named_with_the_reason(wiring: Wiring) -> None:
    gone = NodeSettings(ray="head:6379")
    given = Wiring(wiring.config.model_copy(update={"nodes": {"cluster": gone}}), wiring.environ)
    [finding] = [each async for each in node_findings(given)]
    assert (finding.what, finding.ok) == ("node cluster", False)
    assert "Could not find a cluster at head:6379" in finding.says


async def test_a_name_that_is_no_machine_of_a_cluster_starts_nothing(wiring: Wiring, tmp_path: Path) -> None:
    async with machines_now(wiring, "builder") as machines:
        assert list(machines) == ["cluster"]
        with pytest.raises(LinkLostError, match="use the name of one of its machines"):
            async with machines["cluster"].reach():
                pass
    assert not (tmp_path / "asked").exists()


def test_a_transport_gets_no_key_and_no_setting_of_ours() -> None:
    models = default_config().models.model_copy(update={"headers": {"x-team": "web", "x-key": "$GATEWAY"}})
    given = {"HOME": "/h", "SSH_AUTH_SOCK": "/s", "GATEWAY": "1", models.api_key_env: "2", "FLEET_RUN_WORKERS": "3"}
    wiring = Wiring(default_config().model_copy(update={"models": models}), given)
    assert transport_environment(wiring) == {"HOME": "/h", "SSH_AUTH_SOCK": "/s"}


def test_every_kind_is_known_by_a_key_of_its_table_and_a_cluster_may_have_a_command_too() -> None:
    assert set(KINDS) <= set(NodeSettings.model_fields)
    assert kind_of(NodeSettings(command="ssh builder fleet node --stdio")) is KINDS["command"]
    assert kind_of(NodeSettings(ray="auto", command="fleet node --stdio")) is KINDS["ray"]
