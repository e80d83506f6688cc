"""The input of agents: the subtask, earlier failures, results of dependencies, and the repository's notes.

Everything from the repository is read from a commit, limited in length, and untrusted.
"""

from collections.abc import Iterable
from functools import partial

from anyio import Lock

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Subtask
from fleet.core.state.subtasks import Attempt
from fleet.engine.internal_errors import Advice
from fleet.ports.agents import PlannerRepository, Worker, WorkerBrief, WorkspaceError
from fleet.ports.journal import Recorder
from fleet.ports.worktrees import Commits

CONFLICT_LIMIT, PATCH_LIMIT = 3_000, 2_900  # characters of a conflict's evidence, and of the change it is about
AGENTS = "AGENTS.md"
READMES = ("README.md", "README.rst", "README.txt", "README")
NOTES_LIMIT = 20_000  # characters of one file
LAYOUT_LIMIT = 12_000  # characters of the list of files that every worker gets


class WorkerBriefs:
    """Makes the briefs of one run."""

    def __init__(self, engine: Recorder, commits: Commits, advice: Advice) -> None:
        self._engine = engine
        self._commits = commits
        self._advice = advice
        self._layout_text: str | None = None
        self._notes_by_base: dict[Sha, str] = {}
        self._reading = Lock()

    async def brief(self, spec: Subtask, attempt: Attempt, worker: Worker) -> WorkerBrief:
        state = self._engine.state
        earlier = state.subtasks[spec.id].attempts[:-1]
        failures = [(past.number, await self._hint(past)) for past in earlier]
        results = ((need, last.report) for need in spec.depends_on if (last := state.subtasks[need].last) is not None)
        return WorkerBrief(
            run=state.run,
            subtask=spec,
            attempt=attempt.number,
            model=attempt.model or worker.model,
            effort=attempt.effort,
            guidance=attempt.guidance,
            failures=tuple((number, failure) for number, failure in failures if failure is not None),
            results=tuple((need, report) for need, report in results if report is not None),
            layout=await self._advice.take("the list of files for workers", self._layout, without=""),
            notes=await self._advice.take("AGENTS.md for workers", partial(self._notes, attempt.base), without=""),
        )

    async def _hint(self, past: Attempt) -> f.Failure | None:
        what = "the change of an earlier attempt, for the next attempt"
        return await self._advice.take(what, partial(self.failure_of, past), without=past.failure)

    async def failure_of(self, past: Attempt) -> f.Failure | None:
        """A failure as the next worker sees it, with the change of work that did not fit or was interrupted."""
        failure = past.failure
        if failure is None or past.commit is None:
            return failure
        is_landed_again = failure.kind == "integration" and self._engine.state.relanding is not None
        if not (failure.kind == "conflict" or past.kept or is_landed_again):
            return failure
        patch = await self._commits.diff(past.base, past.commit)
        parts = (failure.evidence[:CONFLICT_LIMIT], "The change of that attempt:", patch[:PATCH_LIMIT])
        return failure.model_copy(update={"evidence": "\n\n".join(parts)})

    async def _layout(self) -> str:
        async with self._reading:
            if self._layout_text is None:
                self._layout_text = layout(await self._commits.at(self._engine.state.base).list_files())
            return self._layout_text

    async def _notes(self, base: Sha) -> str:
        """Read once for all attempts that start from the same base."""
        async with self._reading:
            if base not in self._notes_by_base:
                self._notes_by_base = {base: await worker_notes(self._commits.at(base))}
            return self._notes_by_base[base]


async def worker_notes(repository: PlannerRepository) -> str:
    """The repository's AGENTS.md, or an empty text."""
    return await _read(repository, AGENTS) or ""


async def planner_notes(repository: PlannerRepository) -> dict[str, int]:
    """AGENTS.md and the first README that exist, with their lengths."""
    notes: dict[str, int] = {}
    for names in ((AGENTS,), READMES):
        for name in names:
            if (text := await _read(repository, name)) is not None:
                notes[name] = len(text)
                break
    return notes


async def _read(repository: PlannerRepository, path: str) -> str | None:
    try:
        return (await repository.read_file(path))[:NOTES_LIMIT]
    except WorkspaceError:  # it does not exist
        return None


def layout(paths: Iterable[str], limit: int = LAYOUT_LIMIT) -> str:
    """Return the files of each directory, shallow directories first. Beyond the limit, only count them."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, []).append(name)
    lines, room = [], limit
    for folder in sorted(folders, key=lambda folder: (folder.count("/") + bool(folder), folder)):
        names = sorted(folders[folder])
        for line in (f"{folder or '.'}/: {' '.join(names)}", f"{folder or '.'}/: {len(names)} files"):
            if len(line) < room:
                lines.append(line)
                room -= len(line) + 1
                break
    return "\n".join(lines)
