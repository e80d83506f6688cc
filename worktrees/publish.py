"""The two moments at which the user's repository changes: its result branch moves, and a person merges that branch.

Both are compare-and-swap on one ref. Nothing else in it is written: no hook runs, no HEAD, index or stash is touched.
"""

from dataclasses import dataclass

from fleet.core.ids import RunId, Sha, base_ref, result_branch, run_refs
from fleet.core.nearest import did_you_mean
from fleet.points import reached
from fleet.ports import FleetError, UsageError
from worktrees.clash import Clash, merge_trees
from worktrees.git import Git, fields, serving, text
from worktrees.message import Person
from worktrees.refs import swap
from worktrees.scan import shown
from worktrees.target import Target

RECEIVE = serving(
    "receive-pack", "receive.autoGC=false", "receive.denyCurrentBranch=refuse", "receive.advertisePushOptions=false"
)
ABSENT = ""  # how --force-with-lease says "no such ref"


def published_ref(run: RunId) -> str:
    """In the store: where we left the user's result branch."""
    return f"{run_refs(run)}/published"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Moves the result branch of a target's runs."""

    store: Git
    target: Target

    async def publish(self, run: RunId, *, tip: Sha) -> str | None:
        """Move the result branch forward to `tip`; a reason where that can't be done."""
        branch = result_branch(run)
        there = await Git(self.target.git_dir).sha(f"refs/heads/{branch}")
        if there != tip:
            reason = await self._foreign(run, branch, there, tip) or await self._push(branch, tip, there)
            if reason is not None:
                return reason
        reached("the result branch is moved, and nobody wrote it down")
        await self.store("update-ref", published_ref(run), tip)
        reached("the result branch is moved, and its place is known")
        return None

    async def _foreign(self, run: RunId, branch: str, there: Sha | None, tip: Sha) -> str | None:
        """Why the branch is not ours to move. What we pushed just before a crash is."""
        ours = await self.store.sha(published_ref(run))
        if there is None or there == ours:
            return None
        if await self._is_ancestor(there, tip) and not await self._is_ancestor(there, base_ref(run)):
            return None
        left = f"; we left it at {ours[:7]}" if ours else ", and not by this run"
        return f"{branch} stands at {there[:7]}{left}. Rename it out of the way: git branch -m {branch} NEW-NAME"

    async def _is_ancestor(self, old: Sha, new: str) -> bool:
        if await self.store.sha(old) is None:
            return False
        return (await self.store.ask("merge-base", "--is-ancestor", old, new)).exit_code == 0

    async def _push(self, branch: str, tip: Sha, there: Sha | None) -> str | None:
        ref = f"refs/heads/{branch}"
        reached("the result branch is about to move")
        answer = await self.store.ask(
            *("push", "--quiet", "--porcelain", "--no-verify", "--no-signed", f"--receive-pack={RECEIVE}"),
            *(f"--force-with-lease={ref}:{there or ABSENT}", "--", str(self.target.git_dir), f"{tip}:{ref}"),
        )
        if answer.exit_code == 0:
            return None
        said = text(answer.stdout) + text(answer.stderr)
        if "checked out" in said:
            return f"{branch} is checked out in a worktree of {self.target.root}; switch it to another branch"
        lines = [line.strip() for line in said.splitlines() if "rejected" in line or "fatal" in line or "error" in line]
        return f"{branch} can't be moved: {'; '.join(lines[:3]) or f'git push ended with {answer.exit_code}'}"


async def merge_into(target: Target, run: RunId, branch: str, *, email: str = "fleet@localhost") -> Sha:
    """Merge a run's result branch into a branch of the user's that is checked out nowhere. Returns where it stands."""
    git, result = Git(target.git_dir), result_branch(run)
    theirs = await git.sha(f"refs/heads/{result}")
    if theirs is None:
        raise UsageError(f"{target.root} has no branch {result}{did_you_mean(result, await _branches(git))}")
    ours = await git.sha(f"refs/heads/{branch}")
    if ours is None:
        raise UsageError(f"{target.root} has no branch {branch!r}{did_you_mean(branch, await _branches(git))}")
    where = await _checked_out(git, branch)
    if where is not None:
        raise UsageError(f"{branch} is checked out in {where}; merge it there: git merge {result}")
    new = await _merged(git, ours, theirs, result=result, branch=branch, email=email)
    if new != ours and not await swap(git, f"refs/heads/{branch}", new=new, old=ours, why=f"fleet merge {run}"):
        raise FleetError(f"{branch} moved meanwhile; try again")
    return new


async def _merged(git: Git, ours: Sha, theirs: Sha, *, result: str, branch: str, email: str) -> Sha:
    if (await git.ask("merge-base", "--is-ancestor", theirs, ours)).exit_code == 0:
        return ours
    if (await git.ask("merge-base", "--is-ancestor", ours, theirs)).exit_code == 0:
        return theirs
    tree = await merge_trees(git, ours, theirs)
    if isinstance(tree, Clash):
        paths = ", ".join(map(shown, tree.paths)) or "ways that git gives up on"
        raise UsageError(f"{result} conflicts with {branch} in {paths}; check {branch} out and run: git merge {result}")
    fleet = Person("fleet", email)
    message = f"Merge branch '{result}' into {branch}\n".encode()
    who = {**fleet.author(), **fleet.committer()}
    return await git.line("commit-tree", tree, "-p", ours, "-p", theirs, env=who, data=message)


async def _branches(git: Git) -> list[str]:
    return text(await git("for-each-ref", "--format=%(refname:short)", "refs/heads")).splitlines()


async def _checked_out(git: Git, branch: str) -> str | None:
    """The worktree of the user's that stands on `branch`."""
    folder = ""
    for line in fields(await git("worktree", "list", "--porcelain", "-z")):
        if line.startswith("worktree "):
            folder = line.removeprefix("worktree ")
        elif line == f"branch refs/heads/{branch}":
            return folder
    return None
