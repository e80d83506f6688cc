"""Read-only eyes on a commit that is a dictionary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from fleet.ports.agents import WorkspaceError


@dataclass
class FakeRepository:
    """Read-only eyes."""

    commit: Sha
    files: Mapping[str, str]

    async def list_files(self, pattern: str | None = None) -> Sequence[str]:
        return [path for path in self.files if pattern in {None, path}]

    async def read_file(self, path: str) -> str:
        if path not in self.files:
            raise WorkspaceError(f"{path} does not exist")
        return self.files[path]

    async def search(self, text: str, pattern: str | None = None) -> str:
        return f"{text} {pattern}"

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        return f"{path} {limit}"
