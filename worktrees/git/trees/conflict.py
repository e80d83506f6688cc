"""The failure of a candidate that does not merge, with enough evidence for a worker to do the work again.

The evidence holds both sides' intent: the paths, the places where the texts meet, and who changed these paths
meanwhile. Names and texts come from workers; names are made safe to print, and every part has its limit.
"""

from collections.abc import Iterator

from fleet.core.base.ids import Sha
from fleet.core.state.facts import Failure
from worktrees.base.fs import printable
from worktrees.git.commit_message import one_line
from worktrees.git.program import Git, text
from worktrees.git.trees.merge import MergeConflict

EVIDENCE = 8_000  # characters in all
MOST_PATHS = 20
MOST_FILES = 5  # whose hunks are shown
MOST_LANDED = 10
MESSAGES = 1_500  # characters of git's own messages
HUNK_LINES = 40
FILE_CAP = 256 * 1024
OURS, BETWEEN, THEIRS = "<<<<<<< ", "=======", ">>>>>>> "


async def conflict_failure(git: Git, conflict: MergeConflict, *, base: Sha, tip: Sha) -> Failure:
    """The failure of a candidate made on `base` that does not merge with `tip`."""
    listed = "\n".join(map(printable, conflict.paths[:MOST_PATHS]))
    more = f"\n... and {len(conflict.paths) - MOST_PATHS} more" if len(conflict.paths) > MOST_PATHS else ""
    parts = [f"{listed}{more}", conflict.messages[:MESSAGES], await _landed_commits(git, conflict, base, tip)]
    parts += [await _hunks(git, conflict.tree, path) for path in conflict.paths[:MOST_FILES]]
    named = ", ".join(map(printable, conflict.paths[:5])) or "git gave up"
    return Failure(
        kind="conflict",
        summary=f"does not merge with what landed: {named}",
        evidence="\n\n".join(part for part in parts if part)[:EVIDENCE],
    )


async def _landed_commits(git: Git, conflict: MergeConflict, base: Sha, tip: Sha) -> str:
    """Who changed these paths since the candidate's base: subjects and trailers, newest first."""
    if not conflict.paths:
        return ""
    form = "--format=%s%n%(trailers:only,unfold)"
    query = ("log", "-z", f"--max-count={MOST_LANDED}", "--no-show-signature", form, f"{base}..{tip}", "--")
    answer = await git.ask(*query, *conflict.paths[:MOST_PATHS])
    lines: list[str] = []
    for entry in text(answer.stdout).split("\0"):
        subject, *rest = entry.strip().splitlines() or [""]
        lines += [f"- {one_line(subject)}"] if subject else []
        lines += [f"  {one_line(line)}" for line in rest if line.startswith("Fleet-")]
    return "\n".join(("landed since this attempt's base, on these paths:", *lines)) if lines else ""


async def _hunks(git: Git, tree: Sha, path: str) -> str:
    """The places of a file where the texts of both sides meet; empty for a binary file."""
    answer = await git.ask("cat-file", "blob", f"{tree}:{path}", cap=FILE_CAP)
    if answer.exit_code != 0 or b"\0" in answer.stdout:
        return ""
    hunks = ["\n".join(hunk) for hunk in _marked_hunks(text(answer.stdout).splitlines())]
    return "\n".join((f"{printable(path)}:", *hunks)) if hunks else ""


def _marked_hunks(lines: list[str]) -> Iterator[list[str]]:
    """The parts of a file between the marks of a conflict, each cut to a readable length."""
    hunk: list[str] | None = None
    for line in lines:
        if line.startswith(OURS):
            hunk = [f"{OURS}landed"]
        elif hunk is not None and line.startswith(THEIRS):
            yield [*_shortened(hunk), f"{THEIRS}this attempt"]
            hunk = None
        elif hunk is not None:
            hunk.append(line)


def _shortened(hunk: list[str]) -> list[str]:
    """Both sides, each without its tail where it is long."""
    middle = hunk.index(BETWEEN) if BETWEEN in hunk else len(hunk)
    lines: list[str] = []
    for side in (hunk[:middle], hunk[middle:]):
        lines += side[:HUNK_LINES]
        if len(side) > HUNK_LINES:
            lines.append(f"... {len(side) - HUNK_LINES} more lines")
    return lines
