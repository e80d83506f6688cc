"""What git says of two commits that do not merge by themselves, told so that someone can do the work anew.

The evidence holds both sides' intent: the paths, the places where the texts meet, and who changed these paths
meanwhile. Names and texts come from workers; names are made safe to print, and every part has its limit.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.git import Git, text
from worktrees.message import one_line
from worktrees.scan import shown

CONFLICT = 1  # merge-tree's exit code for one
GAVE_UP = -signal.SIGABRT  # git 2.39 fails an assertion on some renames into folders that became files
EVIDENCE = 8_000  # characters in all
MOST_PATHS = 20
MOST_FILES = 5  # whose hunks are shown
MOST_LANDED = 10
MESSAGES = 1_500  # characters of git's own words
HUNK_LINES = 40
FILE_CAP = 256 * 1024
OURS, BETWEEN, THEIRS = "<<<<<<< ", "=======", ">>>>>>> "


@dataclass(frozen=True, slots=True)
class Clash:
    """Why two commits don't merge."""

    paths: tuple[str, ...]
    messages: str
    tree: Sha
    """The merge as far as it goes, with marks where the texts meet; empty where git gave up."""


async def merge_trees(git: Git, ours: Sha, theirs: Sha) -> Sha | Clash:
    """The tree of a three-way merge, or what is in its way."""
    answer = await git.ask("merge-tree", "--write-tree", "-z", "--name-only", "--messages", ours, theirs)
    if answer.exit_code == GAVE_UP:  # the one candidate is to blame, not the machine: others can land
        return Clash((), f"git gave up on this merge: {text(answer.stderr).strip()}", "")
    if answer.exit_code not in {0, CONFLICT}:
        raise Broken(Failure(kind="infrastructure", summary="git merge-tree failed", evidence=text(answer.stderr)))
    tree, _, rest = answer.stdout.partition(b"\0")
    if answer.exit_code == 0:
        return text(tree).strip()
    names, _, said = rest.partition(b"\0\0")
    paths = tuple(dict.fromkeys(os.fsdecode(name) for name in names.split(b"\0") if name))
    return Clash(paths, _messages(said), text(tree).strip())


async def conflict(git: Git, clash: Clash, *, base: Sha, tip: Sha) -> Failure:
    """The failure of a candidate made on `base` that does not merge with `tip`."""
    listed = "\n".join(map(shown, clash.paths[:MOST_PATHS]))
    more = f"\n... and {len(clash.paths) - MOST_PATHS} more" if len(clash.paths) > MOST_PATHS else ""
    parts = [f"{listed}{more}", clash.messages[:MESSAGES], await _landed(git, clash, base, tip)]
    parts += [await _hunks(git, clash.tree, path) for path in clash.paths[:MOST_FILES]]
    named = ", ".join(map(shown, clash.paths[:5])) or "git gave up"
    return Failure(
        kind="conflict",
        summary=f"does not merge with what landed: {named}",
        evidence="\n\n".join(part for part in parts if part)[:EVIDENCE],
    )


async def _landed(git: Git, clash: Clash, base: Sha, tip: Sha) -> str:
    """Who changed these paths since the candidate's base: subject and trailers, newest first."""
    form = "--format=%s%n%(trailers:only,unfold)"
    if not clash.paths:
        return ""
    ask = ("log", "-z", f"--max-count={MOST_LANDED}", "--no-show-signature", form, f"{base}..{tip}", "--")
    answer = await git.ask(*ask, *clash.paths[:MOST_PATHS])
    commits = [entry.strip().splitlines() for entry in text(answer.stdout).split("\0") if entry.strip()]
    told = [
        "\n".join((f"- {one_line(subject)}", *(f"  {one_line(line)}" for line in rest if line.startswith("Fleet-"))))
        for subject, *rest in commits
    ]
    return "\n".join(("landed since this attempt's base, on these paths:", *told)) if told else ""


async def _hunks(git: Git, tree: Sha, path: str) -> str:
    """Where the texts of both sides meet; nothing for what has no text."""
    answer = await git.ask("cat-file", "blob", f"{tree}:{path}", cap=FILE_CAP)
    if answer.exit_code != 0 or b"\0" in answer.stdout:
        return ""
    hunks = ["\n".join(hunk) for hunk in _marked(text(answer.stdout).splitlines())]
    return "\n".join((f"{shown(path)}:", *hunks)) if hunks else ""


def _marked(lines: list[str]) -> Iterator[list[str]]:
    """The parts of a file between the marks of a conflict, each cut to a readable length."""
    hunk: list[str] | None = None
    for line in lines:
        if line.startswith(OURS):
            hunk = [f"{OURS}landed"]
        elif hunk is not None and line.startswith(THEIRS):
            yield [*_middle_out(hunk), f"{THEIRS}this attempt"]
            hunk = None
        elif hunk is not None:
            hunk.append(line)


def _middle_out(hunk: list[str]) -> list[str]:
    """Both sides, each without its tail where it is long."""
    at = hunk.index(BETWEEN) if BETWEEN in hunk else len(hunk)
    sides = (hunk[:at], hunk[at:])
    kept: list[str] = []
    for side in sides:
        kept += side[:HUNK_LINES]
        if len(side) > HUNK_LINES:
            kept.append(f"... {len(side) - HUNK_LINES} more lines")
    return kept


def _messages(raw: bytes) -> str:
    """Git's messages come as count, paths, kind, message; a person reads only the last."""
    parts, lines, at = raw.split(b"\0"), list[str](), 0
    while at < len(parts) and parts[at].isdigit():
        at += int(parts[at]) + 2
        if at < len(parts):
            lines.append(text(parts[at]).strip())
        at += 1
    return "\n".join(line for line in lines if line.startswith("CONFLICT")) or "\n".join(lines)
