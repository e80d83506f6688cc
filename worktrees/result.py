"""Reads a run's result branch for an audit: each commit as it is stored, and whether its content has its id.

Git is asked for names and bytes only; what they say is read here, so neither a graph file nor a graft nor a setting of
the repository can tell another story.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleet.core.audit import Branch, Commit
from fleet.core.ids import Sha
from worktrees.git import Git, text
from worktrees.message import ASSISTED, ATTEMPT, LONGEST_SUBJECT, RUN, TASK, WORKER, one_line, trailers
from worktrees.target import locate

PLAIN = {"GIT_GRAFT_FILE": "/dev/null"}
SHA1 = 40  # digits of an id
DIGITS = 9  # of an attempt's number


async def result_of(path: Path, branch: str, *, base: Sha, instead: Sha | None) -> Branch:
    """The commits of `branch` above `base`, the oldest first; of the commit `instead` where there is no such branch.

    Raises `UsageError` where there is no repository at `path`, and `Broken` where it can't be read.
    """
    git = await locate(path)
    tip = await git.sha(f"refs/heads/{branch}")
    start = tip or (await git.sha(instead) if instead is not None else None)
    if start is None:
        return Branch(tip, ())
    if await git.sha(base) is None:
        return Branch(tip, (), base_there=False)
    walk = ("-c", "core.commitGraph=false", "rev-list", "--topo-order", "--reverse")
    ids = text(await git(*walk, f"{base}..{start}", "--", env=PLAIN)).split()
    return Branch(tip, tuple(await _read(git, ids)))


async def _read(git: Git, ids: Sequence[Sha]) -> Iterator[Commit]:
    raw = await git("cat-file", "--batch", data="".join(f"{id_}\n" for id_ in ids).encode(), env=PLAIN)
    return _commits(raw, ids)


def _commits(raw: bytes, ids: Sequence[Sha]) -> Iterator[Commit]:
    at = 0
    for id_ in ids:
        end = raw.index(b"\n", at)
        size = int(raw[at:end].split(b" ")[2])
        yield _commit(id_, raw[end + 1 : end + 1 + size])
        at = end + size + 2


def _commit(id_: Sha, content: bytes) -> Commit:
    head, _, message = content.partition(b"\n\n")
    lines = [line.split(" ", 1) for line in text(head).splitlines() if not line.startswith(" ")]
    said = trailers(text(message))
    number = said.get(ATTEMPT, "")
    digest = hashlib.sha1 if len(id_) == SHA1 else hashlib.sha256
    stored = digest(b"commit %d\0%b" % (len(content), content)).hexdigest()
    return Commit(
        id=id_,
        tree=next((line[1] for line in lines if line[0] == "tree"), ""),
        parents=tuple(line[1] for line in lines if line[0] == "parent"),
        subject=one_line(text(message).partition("\n")[0])[:LONGEST_SUBJECT],
        run=said.get(RUN),
        subtask=said.get(TASK),
        attempt=int(number) if number.isascii() and number.isdecimal() and len(number) <= DIGITS else None,
        worker=said.get(WORKER),
        model=said.get(ASSISTED),
        sound=stored == id_,
    )
