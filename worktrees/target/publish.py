"""The two moments at which the user's repository changes: its result branch moves, and a person takes the result.

Both are compare-and-swap on one ref. The first touches nothing else; the second brings the checkout of a branch along.
"""

import re
from dataclasses import dataclass

from anyio import CancelScope

from fleet.core.base.ids import RunId, Sha, base_ref, result_branch, run_refs
from fleet.core.base.nearest import did_you_mean
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import reached
from worktrees.git import reader
from worktrees.git.program import Git, remote_command, text
from worktrees.git.refs import swap
from worktrees.target.checkout import find_checkout, forward, refuse_unfit
from worktrees.target.target import Target

RECEIVE = remote_command(
    "receive-pack", "receive.autoGC=false", "receive.denyCurrentBranch=refuse", "receive.advertisePushOptions=false"
)
LOCKED = re.compile(r"Unable to create '(.+?\.lock)': File exists")
NO_REF = ""  # how --force-with-lease says that the ref must not exist


class BranchMovedError(FleetError):
    """The branch is not where it was when what it should get was tested."""


def published_ref(run: RunId) -> str:
    """The ref in the store that records where we left the user's result branch."""
    return f"{run_refs(run)}/published"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Moves the result branch of a target's runs."""

    store: Git
    target: Target

    async def publish(self, run: RunId, *, tip: Sha) -> str | None:
        """Move the result branch forward to `tip`; a reason where that can't be done."""
        branch = result_branch(run)
        current = await self.target.git.sha(f"refs/heads/{branch}")
        if current != tip:
            reason = await self._why_foreign(run, branch, current, tip) or await self._push(branch, tip, current)
            if reason is not None:
                return reason
        reached("the result branch is moved, and not recorded")
        await self.store("update-ref", published_ref(run), tip)
        reached("the result branch is moved, and its place is known")
        return None

    async def _why_foreign(self, run: RunId, branch: str, current: Sha | None, tip: Sha) -> str | None:
        """Why the branch is not ours to move. What we pushed just before a crash is."""
        ours = await self.store.sha(published_ref(run))
        if current is None or current == ours:
            return None
        if await self.store.is_ancestor(current, tip) and not await self.store.is_ancestor(current, base_ref(run)):
            return None
        why = f"we left it at {ours[:7]}" if ours else "this run did not create it"
        return f"{branch} is at {current[:7]}; {why}. Rename it: git branch -m {branch} NEW-NAME"

    async def _push(self, branch: str, tip: Sha, current: Sha | None) -> str | None:
        self.target.stand_in.renew_head()
        reached("the result branch is about to move")
        output = await push(self.store, self.target, tip, f"refs/heads/{branch}", current)
        if output is None:
            return None
        git_dir = str(self.target.git_dir)
        output = output.replace(f"{self.target.stand_in.path}/.", git_dir).replace(
            str(self.target.stand_in.path), git_dir
        )
        if lock := LOCKED.search(output):
            return f"{branch} is locked: a git works there, or was killed; if none does, remove {lock[1]}"
        if "checked out" in output:
            return f"{branch} is checked out in a worktree of {self.target.root}; switch it to another branch"
        telling = ("rejected", "fatal", "error")
        reasons = dict.fromkeys(line.strip() for line in output.splitlines() if any(word in line for word in telling))
        return f"{branch} can't be moved: {'; '.join(list(reasons)[:3]) or 'git push failed'}"


async def push(store: Git, target: Target, commit: Sha, ref: str, current: Sha | None) -> str | None:
    """Compare-and-swap of a ref of the user's repository, with the objects it needs; git's output where it failed."""
    answer = await store.ask(
        *("push", "--quiet", "--porcelain", "--no-verify", "--no-signed", f"--receive-pack={RECEIVE}"),
        *(f"--force-with-lease={ref}:{current or NO_REF}", "--", str(target.stand_in.path), f"{commit}:{ref}"),
    )
    return None if answer.exit_code == 0 else text(answer.stdout) + text(answer.stderr) or "git push gives no reason"


async def move_branch(store: Git, target: Target, run: RunId, branch: str, *, new: Sha, old: Sha) -> None:
    """Move a branch of the user's forward, with its checkout where it has one. Raises `FleetError`.

    A kill at any moment leaves the branch where it was, or where it should be; then the same call completes the rest.
    """
    brought = f"refs/fleet/{run}/taken"
    if new == old:
        await target.git.ask("update-ref", "-d", brought)
        return
    is_there, left = await target.git.sha(new) is not None, await target.git.sha(brought)
    if not is_there and (problem := await push(store, target, new, brought, left)) is not None:
        raise FleetError(f"the commits can't be brought to {target.root}: {problem.strip()}")
    reached("a result is in the user's repository, and no branch names it")
    with CancelScope(shield=True):  # Ctrl-C waits until files, index and branch agree
        try:
            await _move(target, branch, new=new, old=old, reason=f"fleet merge {run}")
        finally:
            await target.git.ask("update-ref", "-d", brought)


async def _move(target: Target, branch: str, *, new: Sha, old: Sha, reason: str) -> None:
    checkout = await find_checkout(target, branch)
    if checkout is not None:
        done = await refuse_unfit(checkout, old=old, new=new, branch=branch)
        await forward(checkout, old=old, new=new, done=done)
    if not await swap(target.git, f"refs/heads/{branch}", new=new, old=old, reason=reason):
        if checkout is not None:
            await forward(checkout, old=new, new=old)
        raise BranchMovedError(f"{branch} moved meanwhile; nothing was changed, try again")
    reached("a branch of the user's is at a result")


async def commit_of(target: Target, branch: str) -> Sha:
    """The commit of a branch of the user's. Raises `UsageError`."""
    commit = await target.git.sha(f"refs/heads/{branch}")
    if commit is None:
        near = did_you_mean(branch, await reader.read(target.git, reader.branches))
        raise UsageError(f"{target.root} has no branch {branch!r}{near}")
    return commit
