"""A repository of a few files, for tests that need no git."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.base.paths import matches
from fleet.ports.agents import WorkspaceError


@dataclass
class Files:
    """Satisfies `Repository`."""

    files: Mapping[str, str] = field(default_factory=dict)

    async def list_files(self, pattern: str | None = None) -> Sequence[str]:
        return sorted(path for path in self.files if pattern is None or matches(path, (pattern,)))

    async def read_file(self, path: str) -> str:
        if path not in self.files:
            raise WorkspaceError(f"{path} does not exist")
        return self.files[path]

    async def search(self, text: str, pattern: str | None = None) -> str:
        lines = (
            f"{path}:{number}: {line}"
            for path in await self.list_files(pattern)
            for number, line in enumerate(self.files[path].splitlines(), start=1)
            if text in line
        )
        return "\n".join(lines) or "nothing found"

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        return f"the last {limit} commits of {path or 'everything'}"
