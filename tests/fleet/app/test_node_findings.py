"""What the doctor says about nodes: each one is greeted, and what is wrong is named with what to do."""

import sys
from pathlib import Path

import pytest

from fleet import __version__
from fleet.app.nodes.care import node_findings
from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.config.schema import NodeSettings
from fleet.core.views.program_view import Finding
from fleet.nodes.messages import encode, to_frame
from tests.fleet.nodes.conftest import GREETING


async def found(command: str) -> Finding:
    config = default_config().model_copy(update={"nodes": {"one": NodeSettings(command=command)}})
    [finding] = [each async for each in node_findings(Wiring(config, {"PATH": "/usr/bin:/bin"}))]
    assert finding.what == "node one"
    return finding


async def test_a_node_that_is_well_is_described(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(f'[state]\ndir = "{tmp_path / "state"}"\n', encoding="utf-8")
    finding = await found(f"{sys.executable} -m fleet node --stdio --config {tmp_path}/node.toml")
    assert finding.ok, finding
    assert "processors" in finding.says
    assert finding.fix == ""


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo no route >&2; exit 255'", "no route"),
        ("echo Welcome to this machine", "what answers is not"),
        ("/no/such/program", "No such file"),
    ],
)
async def test_a_node_that_does_not_answer_is_named_with_the_reason(command: str, why: str) -> None:
    finding = await found(command)
    assert not finding.ok
    assert why in finding.says
    assert "nodes.one" in finding.fix


@pytest.mark.parametrize(
    ("changed", "why", "fix"),
    [
        ({}, "it runs fleet 1", "install fleet"),
        ({"version": __version__, "problems": ("no bubblewrap",)}, "no bubblewrap", "fleet doctor"),
    ],
)
async def test_a_node_of_another_version_or_with_a_problem_can_not_be_used(
    changed: dict[str, object], why: str, fix: str, tmp_path: Path
) -> None:
    (tmp_path / "greeting").write_bytes(encode(to_frame(GREETING.model_copy(update=changed))))
    finding = await found(f"cat {tmp_path}/greeting")
    assert not finding.ok
    assert why in finding.says
    assert fix in finding.fix
