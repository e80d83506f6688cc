"""Result branches in the user's repository that are no longer needed: what they hold is on a branch of the user's.

Merged means that the branch's commit is below another branch that is not ours, or that its copy is, which `fleet merge`
pinned when it had passed there. Nothing else counts: no guess by messages or by similar patches.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from fleet.core.base.ids import RunId, Sha, result_branch, taken_refs
from fleet.errors import FleetError
from worktrees.git.program import Git
from worktrees.store.store import Store, home_of
from worktrees.target.checkout import find_checkout
from worktrees.target.target import Target, inspect

HEADS = "refs/heads/"
OURS = result_branch("")


@dataclass(frozen=True, slots=True)
class ResultBranch:
    """A result branch, and whether it can go."""

    target: Target
    name: str
    commit: Sha
    kept: str = ""
    """Why it can't go; empty if it can."""


async def result_branches(repository: Path, state_dir: Path, busy: Collection[RunId]) -> list[ResultBranch]:
    """The result branches of a repository; none where it is gone. `busy`: the runs that may still move theirs."""
    try:
        target = await inspect(repository)
    except FleetError:
        return []
    heads = await target.git.refs(HEADS)
    found = {ref.removeprefix(HEADS): commit for ref, commit in heads.items() if ref.startswith(HEADS + OURS)}
    theirs = [commit for ref, commit in heads.items() if not ref.startswith(HEADS + OURS)]
    store = Store(home_of(state_dir, target))
    branches = []
    for name, commit in sorted(found.items()):
        kept = "its run has not ended" if name.removeprefix(OURS) in busy else ""
        kept = kept or await _why_kept(target, store, name, commit, theirs)
        branches.append(ResultBranch(target, name, commit, kept))
    return branches


async def _why_kept(target: Target, store: Store, name: str, commit: Sha, theirs: Collection[Sha]) -> str:
    if await find_checkout(target, name) is not None:
        return "it is checked out"
    run, copies = name.removeprefix(OURS), list[Sha]()
    if store.git_dir.is_dir():
        copies = list((await store.git.refs(taken_refs(run, commit))).values())
    for each in (commit, *copies):
        if await _is_below(target.git, each, theirs):
            return ""
    return "it is not merged into another branch"


async def _is_below(git: Git, commit: Sha, tips: Collection[Sha]) -> bool:
    for tip in tips:
        if await git.is_ancestor(commit, tip):
            return True
    return False


async def delete_branch(branch: ResultBranch) -> None:
    """Delete a branch, unless it has moved since it was looked at."""
    await branch.target.git.ask("update-ref", "-d", f"{HEADS}{branch.name}", branch.commit)
