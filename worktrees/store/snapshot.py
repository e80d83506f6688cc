"""One commit for the planner to read: listings, files, a search and the history, from the store alone.

Everything it returns is untrusted text from the repository. There is no worktree, so there is no link to follow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fleet.core.base.ids import Sha
from fleet.core.base.paths import matches, path_problem
from fleet.ports.agents import WorkspaceError
from worktrees.git import reader
from worktrees.git.program import Git, fields, text

READ_CAP = 256 * 1024
SEARCH_CAP = 64 * 1024
SEARCH_LINES = 200
LINE_WIDTH = 300
CHURN_COMMITS = 300
CHURN_CAP = 4 * 1024 * 1024
CHURN_PATHS = 15


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One commit of the store."""

    git: Git
    commit: Sha

    async def list_files(self, pattern: str | None = None) -> Sequence[str]:
        names = fields(await self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit))
        return [name for name in names if _is_wanted(name, pattern)]

    async def read_file(self, path: str) -> str:
        """Raises `WorkspaceError` where there is no such file."""
        name = path.removeprefix("./")
        problem = path_problem(name)
        if problem:
            raise WorkspaceError(problem)
        question = partial(reader.file_at, commit=self.commit, path=name, most=READ_CAP)
        entry = await reader.read(self.git, question)
        if not isinstance(entry, tuple):
            raise WorkspaceError(f"{path} is a folder" if entry == "tree" else f"{path} does not exist")
        content, size = entry
        return text(content) + (f"\n[... {size - len(content)} bytes left out]\n" if size > len(content) else "")

    async def search(self, text: str, pattern: str | None = None) -> str:
        """Lines that contain `text`, as `path:line: content`."""
        if not text.strip() or "\0" in text:
            raise WorkspaceError("the text to search for is empty")
        query = ("grep", "-n", "-I", "-z", "--no-color", "--fixed-strings", "-e", text, self.commit)
        raw = await self.git(*query, also_ok=(1,), cap=64 * SEARCH_CAP)
        hits = [hit for hit in map(self._hit, raw.split(b"\n")) if hit]
        lines = [f"{path}:{number}: {content}" for path, number, content in hits if _is_wanted(path, pattern)]
        more = [f"... and {len(lines) - SEARCH_LINES} more"] if len(lines) > SEARCH_LINES else []
        return "\n".join((*lines[:SEARCH_LINES], *more))[:SEARCH_CAP] or "nothing found"

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        if path is not None and (problem := path_problem(path)):
            raise WorkspaceError(problem)
        question = partial(reader.history, commit=self.commit, path=path, limit=max(1, min(limit, 200)))
        commits = await reader.read(self.git, question)
        return commits if path is not None else f"{commits}\n\n{await self._churn()}"

    async def _churn(self) -> str:
        """The paths that most of the latest commits changed: where tasks are likely to meet."""
        query = ("log", "-z", "--format=", "--name-only", "--no-renames", f"-{CHURN_COMMITS}", self.commit)
        changed = Counter(name for name in fields(await self.git(*query, cap=CHURN_CAP)) if name.strip())
        lines = [f"{count:5} {name}" for name, count in changed.most_common(CHURN_PATHS)]
        return "\n".join((f"changed most often in the last {CHURN_COMMITS} commits:", *lines))

    def _hit(self, raw: bytes) -> tuple[str, str, str] | None:
        place, _, rest = raw.partition(b"\0")
        number, _, content = rest.partition(b"\0")
        name = text(place).removeprefix(f"{self.commit}:")
        return (name, text(number), text(content)[:LINE_WIDTH]) if number.isdigit() else None


def _is_wanted(path: str, pattern: str | None) -> bool:
    return pattern is None or matches(path, (pattern,))
