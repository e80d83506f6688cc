"""Reads the fleet's commits from any repository by their trailers: those of a result branch, and those of all branches.

Git is asked for names and bytes only, and the bytes are parsed here, so neither a graph file nor a graft nor a setting
of the repository can change what they say.
"""

from functools import partial
from pathlib import Path

from fleet.core.audit.attribution import UNKNOWN, Attributed, FleetCommits, Revert, fleet_commits
from fleet.core.audit.audit import Branch, Commit
from fleet.core.base.ids import Sha, is_slug
from worktrees.git import reader
from worktrees.git.commit_message import (
    ASSISTED,
    LONGEST_SUBJECT,
    RUN,
    TASK,
    WORKER,
    attempt_number,
    one_line,
    parse_trailers,
)
from worktrees.git.object_format import object_id, parse_commit, parse_signature
from worktrees.git.program import text
from worktrees.git.reader import read
from worktrees.target.target import locate

LONGEST_VALUE = 100  # characters of a trailer that anyone may have written
REVERTS = "^This reverts commit [0-9a-f]"


async def read_result_branch(path: Path, branch: str, *, base: Sha, instead: Sha | None) -> Branch:
    """The commits of `branch` above `base`, the oldest first; of the commit `instead` where there is no such branch.

    Raises `UsageError` where there is no repository at `path`, and `EffectError` where it can't be read.
    """
    git = await locate(path)
    tip = await git.sha(f"refs/heads/{branch}")
    start = tip or (await git.sha(instead) if instead is not None else None)
    if start is None:
        return Branch(tip, ())
    if await git.sha(base) is None:
        return Branch(tip, (), has_base=False)
    stored = await read(git, partial(reader.commits_between, base=base, tip=start))
    return Branch(tip, tuple(_audited(id_, content) for id_, content in stored))


def _audited(id_: Sha, content: bytes) -> Commit:
    commit = parse_commit(content)
    message = text(commit.message)
    values = parse_trailers(message)
    return Commit(
        id=id_,
        tree=commit.tree,
        parents=commit.parents,
        subject=one_line(message.partition("\n")[0])[:LONGEST_SUBJECT],
        run=values.get(RUN),
        subtask=values.get(TASK),
        attempt=attempt_number(values),
        worker=values.get(WORKER),
        model=values.get(ASSISTED),
        sound=object_id("commit", content, digits=len(id_)) == id_,
    )


async def read_attribution(path: Path, *, since: float | None = None) -> FleetCommits:
    """The fleet's commits on all branches of the repository at `path`, back to `since`. Raises `UsageError`."""
    git = await locate(path)
    ours = await read(git, partial(reader.matching_commits, pattern=f"^{RUN}: ", since=since))
    reverting = await read(git, partial(reader.matching_commits, pattern=REVERTS, since=since))
    reverts = [Revert(id_, text(parse_commit(content).message)) for id_, content in reverting]
    named = {id_ for revert in reverts for id_ in revert.named}
    merges = await read(git, partial(reader.merges_with, named=named))
    commits = (commit for id_, content in ours if (commit := _attributed(id_, content)) is not None)
    return fleet_commits(commits, reverts, merges, await read(git, partial(reader.count_commits, since=since)))


def _attributed(id_: Sha, content: bytes) -> Attributed | None:
    """Nothing for a commit whose trailers only look like ours."""
    commit = parse_commit(content)
    author, written_at = parse_signature(commit.author)
    trailers = parse_trailers(text(commit.message))
    values = {name: one_line(value)[:LONGEST_VALUE] for name, value in trailers.items()}
    run, task, worker = (values.get(name, "") for name in (RUN, TASK, WORKER))
    attempt = attempt_number(values)
    if not (is_slug(run) and is_slug(task)) or attempt is None:
        return None
    return Attributed(
        commit=id_,
        at=parse_signature(commit.committer)[1],
        written_at=written_at,
        run=run,
        subtask=task,
        attempt=attempt,
        worker=worker if is_slug(worker) else _worker_of(author),
        model=values.get(ASSISTED) or UNKNOWN,
    )


def _worker_of(author: str) -> str:
    """The worker that a commit from before its trailer names as author: `fleet coder (model)`."""
    words = author.split()
    return words[1] if len(words) > 1 and words[0] == "fleet" and is_slug(words[1]) else UNKNOWN
