"""The folder that all of one node is in, where tests and trials look at what it did."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodeFolder:
    """A node with a folder of its own. Who makes it has its processes write their ids to `pids`."""

    name: str
    home: Path

    @property
    def state(self) -> Path:
        return self.home / "state"

    @property
    def gate(self) -> Path:
        """What its workers may wait in."""
        return self.home / "gate"

    @property
    def pids(self) -> list[int]:
        """Every process that it ran as, the first one first."""
        file = self.home / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    @property
    def reports(self) -> list[Path]:
        return list(self.state.glob("node/orders/*/*/*.report"))

    @property
    def worktrees(self) -> list[Path]:
        return [path for path in self.state.glob("node/stores/*/slots/*") if path.is_dir()]
