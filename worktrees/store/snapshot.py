"""Read-only eyes on one commit, for the planner: listings, files, a search and the history, from the store alone.

Everything it returns is untrusted text from the repository. There is no worktree, so there is no link to follow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.core.ids import Sha
from fleet.core.paths import matches, path_problem
from fleet.ports import DeskError
from worktrees import reader
from worktrees.git import Git, fields, text

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
        return [name for name in names if pattern is None or matches(name, (pattern,))]

    async def read_file(self, path: str) -> str:
        """Raises `DeskError` where there is no such file."""
        name = path.removeprefix("./")
        problem = path_problem(name)
        if problem:
            raise DeskError(problem)
        kind = await self.git.ask("cat-file", "-t", f"{self.commit}:{name}")
        said = text(kind.stdout).strip()
        if kind.exit_code != 0 or said != "blob":
            raise DeskError(f"{path} is a folder" if said == "tree" else f"{path} does not exist")
        return text(await self.git("cat-file", "blob", f"{self.commit}:{name}", cap=READ_CAP))

    async def search(self, text: str, pattern: str | None = None) -> str:
        """Lines that hold `text`, as `path:line: content`."""
        if not text.strip() or "\0" in text:
            raise DeskError("there is nothing to search for")
        ask = ("grep", "-n", "-I", "-z", "--no-color", "--fixed-strings", "-e", text, self.commit)
        raw = await self.git(*ask, also_ok=(1,), cap=64 * SEARCH_CAP)
        lines = [line for line in map(self._hit, raw.split(b"\n")) if line]
        kept = [f"{path}:{number}: {content}" for path, number, content in lines if _wanted(path, pattern)]
        more = [f"... and {len(kept) - SEARCH_LINES} more"] if len(kept) > SEARCH_LINES else []
        return "\n".join((*kept[:SEARCH_LINES], *more))[:SEARCH_CAP] or "nothing found"

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        if path is not None and (problem := path_problem(path)):
            raise DeskError(problem)
        commits = await reader.history(self.git.git_dir, self.commit, about=path, limit=max(1, min(limit, 200)))
        return commits if path is not None else f"{commits}\n\n{await self._churn()}"

    async def _churn(self) -> str:
        """The paths that most of the latest commits changed: where work meets other work."""
        ask = ("log", "-z", "--format=", "--name-only", "--no-renames", f"-{CHURN_COMMITS}", self.commit)
        changed = Counter(name for name in fields(await self.git(*ask, cap=CHURN_CAP)) if name.strip())
        lines = [f"{count:5} {name}" for name, count in changed.most_common(CHURN_PATHS)]
        return "\n".join((f"changed most often in the last {CHURN_COMMITS} commits:", *lines))

    def _hit(self, raw: bytes) -> tuple[str, str, str] | None:
        where, _, rest = raw.partition(b"\0")
        number, _, content = rest.partition(b"\0")
        name = text(where).removeprefix(f"{self.commit}:")
        return (name, text(number), text(content)[:LINE_WIDTH]) if number.isdigit() else None


def _wanted(path: str, pattern: str | None) -> bool:
    return pattern is None or matches(path, (pattern,))
