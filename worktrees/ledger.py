"""Reads from any repository which of its commits say that they are the fleet's, and which of them were taken back.

Trailers are read by git itself, so only the last paragraph of a message counts.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from fleet.core.attribution import UNKNOWN, Account, Attributed, Revert, account
from fleet.core.ids import Sha, is_slug
from worktrees.git import Git, text
from worktrees.message import ASSISTED, ATTEMPT, RUN, TASK, WORKER, one_line
from worktrees.target import locate

LONGEST = 100  # characters of a name that somebody wrote
OURS = (RUN, TASK, ATTEMPT, WORKER, ASSISTED)
DIGITS = 9  # of an attempt's number
QUIET = ("--no-show-signature", "--no-color", "--no-notes", "--no-mailmap", "--basic-regexp", "--encoding=UTF-8")
_TRAILERS = [f"%(trailers:key={key},valueonly=true,unfold=true,separator=%x0a)" for key in OURS]
FORMAT = "%x00".join(("%H", "%ct", "%at", "%an", *_TRAILERS))
PARTS = FORMAT.count("%x00") + 1


async def attributed(path: Path, *, since: float | None = None) -> Account:
    """The fleet's commits on all branches of the repository at `path`, back to `since`. Raises `UsageError`."""
    git = await locate(path)
    heads = ["--branches", "--remotes", *(["HEAD"] if await git.sha("HEAD") else [])]
    if not await git.line("rev-list", "--max-count=1", *heads, "--"):
        return Account((), frozenset(), 0)
    limits = [] if since is None else [f"--since-as-filter={datetime.fromtimestamp(since, UTC).isoformat()}"]
    found = await git("log", "-z", *QUIET, f"--format={FORMAT}", f"--grep=^{RUN}: ", *limits, *heads, "--")
    taken_back = "--grep=^This reverts commit [0-9a-f]"
    said = await git("log", "-z", *QUIET, "--topo-order", "--format=%H%x00%B", taken_back, *limits, *heads, "--")
    reverts = [Revert(commit, message) for commit, message in _records(said, 2)]
    merges = set((await git.line("rev-list", "--merges", *heads, "--")).split())
    brought = {named: await _brought(git, named) for named in merges & _named(reverts)}
    commits = (one for parts in _records(found, PARTS) if (one := _attributed(parts)) is not None)
    return account(commits, reverts, brought, int(await git.line("rev-list", "--count", *limits, *heads, "--")))


def _named(reverts: Iterable[Revert]) -> set[Sha]:
    return {named for revert in reverts for named in revert.named}


def _records(raw: bytes, size: int) -> Iterator[tuple[str, ...]]:
    """A message can't hold a NUL, so nobody can move the borders."""
    parts = text(raw).split("\0")[:-1]
    yield from zip(*(iter(parts),) * size, strict=False)


def _attributed(parts: tuple[str, ...]) -> Attributed | None:
    commit, at, written_at, author, *trailers = parts
    run, task, attempt, worker, model = (_last(value) for value in trailers)
    if not (is_slug(run) and is_slug(task) and attempt.isascii() and attempt.isdecimal()) or len(attempt) > DIGITS:
        return None
    return Attributed(
        commit=commit,
        at=float(at),
        written_at=float(written_at),
        run=run,
        subtask=task,
        attempt=int(attempt),
        worker=worker if is_slug(worker) else _worker_of(author),
        model=model or UNKNOWN,
    )


def _last(value: str) -> str:
    """Ours is the last: whoever wrote one before it did not make the commit."""
    return one_line(value.rstrip("\n").rpartition("\n")[2])[:LONGEST]


def _worker_of(author: str) -> str:
    """Of commits from before there was a trailer for it: `fleet coder (model)`."""
    words = author.split()
    return words[1] if len(words) > 1 and words[0] == "fleet" and is_slug(words[1]) else UNKNOWN


async def _brought(git: Git, merge: Sha) -> frozenset[Sha]:
    """The commits that a merge brought."""
    return frozenset((await git.line("rev-list", f"{merge}^1..{merge}", "--")).split())
