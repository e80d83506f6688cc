"""The recipe for Kubernetes: its command lines reach the pods of its manifest, by a stand-in for kubectl."""

import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.features.nodes.node_admin import node_findings
from fleet.features.nodes.settings import NodeSettings
from fleet.read.base_view import Finding

KUBECTL = """\
#!/bin/sh
# Knows the pods in PODS and one container, and what kubectl exec takes.
fail() {{ echo "error: $1" >&2; exit 1; }}
[ "$1 $2 $3 $5 $6 $7" = "exec --stdin --quiet --container {container} --" ] || fail "$*"
case " {pods} " in *" $4 "*) ;; *) fail "pods \\"${{4#pod/}}\\" not found" ;; esac
shift 7
[ "$*" = "fleet node --stdio" ] || fail "exec: $*: not found in PATH"
exec {python} -m fleet node --stdio --config {folder}/node.toml
"""


@pytest.fixture
def recipe() -> Path:
    return Path(__file__).parents[2] / "examples" / "kubernetes"


@pytest.fixture
def nodes(recipe: Path) -> dict[str, NodeSettings]:
    tables = tomllib.loads((recipe / "nodes.toml").read_text())
    return {name: NodeSettings.model_validate(table) for name, table in tables["nodes"].items()}


def pods_of(manifest: str) -> tuple[list[str], str]:
    """The pods of the stateful set, and the name of their container."""
    set_ = manifest.partition("\n---\n")[0]
    name, replicas, container = (
        re.search(pattern, set_, re.MULTILINE)
        for pattern in (r"^metadata:\n  name: (\S+)$", r"^  replicas: (\d+)$", r"^      containers:\n +- name: (\S+)$")
    )
    assert name is not None
    assert replicas is not None
    assert container is not None
    return [f"pod/{name[1]}-{number}" for number in range(int(replicas[1]))], container[1]


async def found(folder: Path, nodes: dict[str, NodeSettings], manifest: str) -> list[Finding]:
    pods, container = pods_of(manifest)
    (folder / "node.toml").write_text(f'[state]\ndir = "{folder / "state"}"\n')
    kubectl = folder / "kubectl"
    kubectl.write_text(
        KUBECTL.format(pods=" ".join(pods), container=container, python=shlex.quote(sys.executable), folder=folder)
    )
    kubectl.chmod(0o755)
    wiring = Wiring(default_config().model_copy(update={"nodes": nodes}), {"PATH": f"{folder}:/usr/bin:/bin"})
    return [finding async for finding in node_findings(wiring)]


async def test_each_command_line_reaches_its_pod(recipe: Path, nodes: dict[str, NodeSettings], tmp_path: Path) -> None:
    findings = await found(tmp_path, nodes, (recipe / "nodes.yaml").read_text())
    assert [(finding.what, finding.ok) for finding in findings] == [("node pod-0", True), ("node pod-1", True)], (
        findings
    )


async def test_a_pod_that_is_not_there_is_named(recipe: Path, nodes: dict[str, NodeSettings], tmp_path: Path) -> None:
    manifest = (recipe / "nodes.yaml").read_text().replace("replicas: 2", "replicas: 1")
    _, missing = await found(tmp_path, nodes, manifest)
    assert not missing.ok
    assert 'pods "fleet-node-1" not found' in missing.says


def test_pods_get_no_network_and_no_token_and_keep_their_caches(recipe: Path) -> None:
    manifest = (recipe / "nodes.yaml").read_text()
    assert "automountServiceAccountToken: false" in manifest
    assert "policyTypes: [Ingress, Egress]" in manifest
    assert "mountPath: /var/lib/fleet" in manifest
