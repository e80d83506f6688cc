"""A cluster whose Ray is a stand-in, which a folder scripts."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.features.nodes.cluster.cluster import RayCluster
from fleet.features.nodes.cluster.cluster_events import ClusterHost
from tests.fleet.features.nodes.conftest import STANDIN

ONE, TWO = "1" * 56, "2" * 56


@dataclass
class Script:
    """What the stand-in does, and what became known of it."""

    folder: Path
    found: list[ClusterHost] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def hosts(self, *ids: str) -> None:
        new = self.folder / "new"
        new.write_text("\n".join(ids))
        new.replace(self.folder / "hosts")

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.syspath_prepend(str(STANDIN))  # where `find_spec` looks
    script = Script(tmp_path)
    script.hosts(ONE)
    return script


@pytest.fixture
def make(script: Script) -> Callable[..., RayCluster]:
    def made(*command: str, address: str = "auto", slots: int = 0) -> RayCluster:
        folder = script.folder / "cluster"
        folder.mkdir(mode=0o700)
        env = {"PATH": os.environ["PATH"], "HOME": str(script.folder), "PYTHONPATH": str(STANDIN)}
        env["RAY_STANDIN"] = str(script.folder)
        env["RAY_AUTH_TOKEN"] = "the cluster's secret"
        return RayCluster(
            "cluster", address, slots, command, folder, env, found=script.found.extend, lost=script.lost.append
        )

    return made
