"""`fleet nodes` and `fleet doctor` about nodes: the list, a check of one, what is wrong and what to do, a clean-up."""

import json
import sys
from pathlib import Path

import pytest

from fleet import __version__
from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.errors import FleetError
from fleet.features.nodes.kinds import JoinedMachine, Table, machine_of
from fleet.features.nodes.messages import encode, to_frame
from fleet.features.nodes.node_admin import clean_node, look_at, look_at_nodes, node_findings, probe_finding
from fleet.features.nodes.settings import NodeSettings
from fleet.features.nodes.verbs import node_lines
from tests.fleet.features.nodes.conftest import GREETING
from tests.fleet.program import fleet


def wiring(**commands: str) -> Wiring:
    nodes = {name: NodeSettings(command=command, labels=("gpu",)) for name, command in commands.items()}
    return Wiring(default_config().model_copy(update={"nodes": nodes}), {"PATH": "/usr/bin:/bin"})


def machine(given: Wiring, name: str) -> JoinedMachine:
    return machine_of(Table(name, given.config.named(NodeSettings)[name], given.environ, Path("/nonexistent")))


@pytest.fixture
def node_command(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Behind a pipe, or over SSH where `--ssh` says so."""
    (tmp_path / "node.toml").write_text(f'[state]\ndir = "{tmp_path / "state"}"\n', encoding="utf-8")
    ssh = request.config.getoption("--ssh")
    return f"{ssh} {sys.executable} -m fleet node --stdio --config {tmp_path}/node.toml".lstrip()


async def test_a_node_is_checked_with_an_order_and_keeps_nothing_of_it(tmp_path: Path, node_command: str) -> None:
    given = wiring(one=node_command)
    [greeted] = [each async for each in node_findings(given)]
    assert (greeted.what, greeted.ok, greeted.fix) == ("node one", True, "")
    assert "processors" in greeted.says
    found = await probe_finding(given, machine(given, "one"))
    assert found.ok, found
    assert "ran a check in a sandbox" in found.says
    assert list((tmp_path / "state/node/stores").iterdir()) == []
    [view] = await look_at_nodes(given)
    assert (view.ok, view.problem, view.repositories, view.labels) == (True, "", 0, ("gpu",))
    assert view.round_trip_s is not None
    assert (await clean_node(machine(given, "one"))).in_use == 0


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'echo no route >&2; exit 255'", "no route"),
        ("echo Welcome", "did not start `fleet node --stdio`"),
        ("/no/such", "such"),
    ],
)
async def test_a_node_that_does_not_answer_is_listed_with_the_reason(command: str, why: str) -> None:
    view = await look_at(machine(wiring(gone=command), "gone"))
    assert not view.ok
    assert why in view.problem
    assert "nodes.gone" in view.fix
    given = wiring(gone=command)
    [greeted] = [each async for each in node_findings(given)]
    for finding in (greeted, await probe_finding(given, machine(given, "gone"))):
        assert (finding.ok, why in finding.says, "nodes.gone" in finding.fix) == (False, True, finding is greeted)
    with pytest.raises(FleetError, match="node gone"):
        await clean_node(machine(given, "gone"))
    lines = node_lines([view])
    assert lines[1].split()[:2] == ["gone", "FAIL"]
    assert "nodes.gone" in lines[3]


@pytest.mark.parametrize(
    ("changed", "why", "fix"),
    [
        ({}, "the node runs fleet 1", "install fleet"),
        ({"version": __version__, "problems": ("no bubblewrap",)}, "no bubblewrap", "fleet doctor"),
    ],
)
async def test_a_node_of_another_version_or_with_a_problem_is_shown_with_it_and_asked_nothing(
    changed: dict[str, object], why: str, fix: str, tmp_path: Path
) -> None:
    greeting = GREETING.model_copy(update=changed)
    (tmp_path / "greeting").write_bytes(encode(to_frame(greeting)))
    given = wiring(old=f"cat {tmp_path}/greeting")
    view = await look_at(machine(given, "old"))
    assert (view.ok, view.version, view.workers, view.repositories) == (False, greeting.version, 2, None)
    [finding] = [each async for each in node_findings(given)]
    assert (finding.ok, why in finding.says, fix in finding.fix, fix in view.fix) == (False, True, True, True)


# ---- the command line


def config(folder: Path, *tables: str) -> list[str]:
    (folder / "c.toml").write_text("\n".join(tables), encoding="utf-8")
    return ["--config", str(folder / "c.toml")]


GONE = "[nodes.gone]\ncommand = \"sh -c 'echo no route >&2; exit 255'\""


def test_the_list_says_which_node_is_gone_and_ends_with_a_code(tmp_path: Path) -> None:
    done = fleet("nodes", *config(tmp_path, GONE), "--json", cwd=tmp_path)
    assert done.returncode == 3
    [view] = json.loads(done.stdout)
    assert (view["name"], view["ok"], view["in_run"]) == ("gone", False, None)
    assert "no route" in view["problem"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["chek", "gone"], "unknown action: 'chek'\nhint: did you mean 'check'?"),
        (["check"], "`fleet nodes check` requires the name of a node"),
        (["check", "gon"], "unknown node: 'gon'\nhint: did you mean 'gone'?"),
        (["clean", "other"], "unknown node: 'other'\nhint: add [nodes.other]"),
    ],
)
def test_what_can_not_be_meant_is_answered_with_what_can(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = fleet("nodes", *arguments, *config(tmp_path, GONE), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_without_nodes_the_list_says_how_to_add_one(tmp_path: Path) -> None:
    done = fleet("nodes", *config(tmp_path, ""), cwd=tmp_path)
    assert (done.returncode, "[nodes.NAME]" in done.stdout) == (0, True)
