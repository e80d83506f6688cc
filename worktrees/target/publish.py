"""The two changes to the user's repository: fleet moves the result branch, and a person merges the result.

Both are a compare-and-swap on one ref. The first changes only that ref. The second also updates the checkout of a
branch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import CancelScope

from fleet.core.base.ids import RunId, Sha, base_ref, did_you_mean, result_branch, run_refs
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import reached
from worktrees.base.fs import printable
from worktrees.base.process import Finished, Launch, run
from worktrees.git import reader
from worktrees.git.program import OWN_SETTINGS, Git, ask_git, fields, remote_command, text
from worktrees.git.repository import swap
from worktrees.target.checkout import find_checkout, forward, refuse_unfit
from worktrees.target.target import Target

RECEIVE = remote_command(
    "receive-pack", "receive.autoGC=false", "receive.denyCurrentBranch=refuse", "receive.advertisePushOptions=false"
)
LOCKED = re.compile(r"Unable to create '(.+?\.lock)': File exists")
NO_REF = ""  # the value of --force-with-lease for a ref that must not exist


class BranchMovedError(FleetError):
    """The branch moved after its new content was tested."""


def published_ref(run: RunId) -> str:
    """Return the ref in the store with the last position of the user's result branch."""
    return f"{run_refs(run)}/published"


@dataclass(frozen=True, slots=True)
class Publisher:
    """Moves the result branch of a target's runs."""

    store: Git
    target: Target

    async def publish(self, run: RunId, tip: Sha) -> str | None:
        """Move the result branch forward to `tip`, or return why that is not possible."""
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
        """Return why fleet must not move the branch. A push just before a crash counts as ours."""
        ours = await self.store.sha(published_ref(run))
        if current is None or current == ours:
            return None
        if await self.store.is_ancestor(current, tip) and not await self.store.is_ancestor(current, base_ref(run)):
            return None
        why = f"fleet left it at {ours[:7]}" if ours else "this run did not create it"
        return f"{branch} is at {current[:7]}, but {why}. Rename it: git branch -m {branch} NEW-NAME"

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
            return f"{branch} is locked by a git process, or by a killed one. If none is running, remove {lock[1]}"
        if "checked out" in output:
            return (
                f"{branch} is checked out in a worktree of {self.target.root}. Switch that worktree to another branch"
            )
        telling = ("rejected", "fatal", "error")
        reasons = dict.fromkeys(line.strip() for line in output.splitlines() if any(word in line for word in telling))
        return f"{branch} can't be moved: {'; '.join(list(reasons)[:3]) or 'git push failed'}"


async def push(store: Git, target: Target, commit: Sha, ref: str, current: Sha | None) -> str | None:
    """Compare and swap a ref of the user's repository, and send its objects. Return git's output on failure."""
    answer = await store.ask(
        *("push", "--quiet", "--porcelain", "--no-verify", "--no-signed", f"--receive-pack={RECEIVE}"),
        *(f"--force-with-lease={ref}:{current or NO_REF}", "--", str(target.stand_in.path), f"{commit}:{ref}"),
    )
    return (
        None
        if answer.exit_code == 0
        else text(answer.stdout) + text(answer.stderr) or "git push failed without an error message"
    )


async def move_branch(store: Git, target: Target, run: RunId, branch: str, *, new: Sha, old: Sha) -> None:
    """Move a branch of the user forward, with its checkout if it has one. Raises `FleetError`.

    A kill at any moment leaves the branch at its old or its new commit. Then the same call completes the rest.
    """
    brought = f"refs/fleet/{run}/taken"
    if new == old:
        await target.git.ask("update-ref", "-d", brought)
        return
    is_there, left = await target.git.sha(new) is not None, await target.git.sha(brought)
    if not is_there and (problem := await push(store, target, new, brought, left)) is not None:
        raise FleetError(f"can't copy the commits to {target.root}: {problem.strip()}")
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
        raise BranchMovedError(f"{branch} moved in the meantime. It was not changed", hint="try again")
    reached("a branch of the user's is at a result")


async def commit_of(target: Target, branch: str) -> Sha:
    """Return the commit of a branch of the user. Raises `UsageError`."""
    commit = await target.git.sha(f"refs/heads/{branch}")
    if commit is None:
        near = did_you_mean(branch, await reader.read(target.git, reader.branches))
        raise UsageError(f"no branch {branch!r} in {target.root}{near}")
    return commit


# ---- remote ----------------------------------------------------------------------------------------------------------
# The remote of a user's repository: its branches are fetched into the store and pushed from there, never by force.
#
# Git runs in the store with the user's settings and environment, so that their keys, credential helpers and rewritten
# addresses work. The configuration of the repository is only read as data, for the URL. The URL is passed in the
# environment: it may contain a token, which must not appear in process lists or messages.


TIMEOUT_S = 600.0  # limit for one fetch or push over a slow line
CAP = 1024 * 1024
SHOWN = 300  # characters of git's error
NAME = "fleet-remote"
OPTIONS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=true", "gc.auto=0"),
    *("maintenance.auto=false", "submodule.recurse=false", "push.gpgSign=false", "push.followTags=false"),
    *("push.recurseSubmodules=no", "fetch.prune=false", "fetch.pruneTags=false", "protocol.ext.allow=never"),
)
"""Settings that the user's configuration may not override here."""
_ADDRESS = re.compile(r"(?:https?|ssh|git|file)://[^\s]+|/[^\s]*|(?:\w[\w.-]*@)?\w[\w.-]*:[^\s:-][^\s]*", re.ASCII)
_LOGIN = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)
_NO_BRANCH = "couldn't find remote ref"
_MOVED = re.compile(
    r"\((?:fetch first|non-fast-forward|stale info|(?:failed to lock|cannot lock ref|incorrect old).*)\)"
)


class RemoteError(FleetError):
    """The remote is unreachable or rejects the request. A push may have arrived anyway: fetch to find out."""


class RemoteMovedError(RemoteError):
    """The branch has commits that the push lacks. It was not changed."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote, accessed from the store of a target."""

    git: Git
    """The store."""
    name: str
    """The name in the user's repository."""
    url: str
    environ: Mapping[str, str]
    """The user's environment."""
    held: tuple[int, ...] = ()
    """File descriptors that git keeps open: locks that hold while it lives, even if this process is killed."""

    def holding(self, held: tuple[int, ...]) -> "Remote":
        """Return the same remote, with file descriptors that git keeps open."""
        return replace(self, held=held)

    async def fetch(self, branch: str, ref: str) -> Sha | None:
        """Set a ref of the store to a branch of the remote. Return its commit, or None if there is no such branch."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
        answer = await self._ask("fetch", *options, NAME, f"+refs/heads/{branch}:{ref}")
        if answer.exit_code == 0:
            return await self.git.sha(ref)
        if _NO_BRANCH in text(answer.stderr):
            return None
        raise self._error("fetched from", answer)

    async def push(self, commit: Sha, branch: str) -> None:
        """Move a branch of the remote forward to a commit, or create it. Raises `RemoteMovedError` or `RemoteError`."""
        reached("a branch of the remote is about to move")
        options = ("--quiet", "--porcelain", "--no-verify", "--no-signed", "--no-force-with-lease")
        answer = await self._ask("push", *options, NAME, f"{commit}:refs/heads/{branch}")
        if answer.exit_code == 0:
            reached("a branch of the remote has moved")
            return
        if _MOVED.search(text(answer.stdout)):
            raise RemoteMovedError(f"{branch} on {self.name} moved in the meantime. It was not changed")
        raise self._error("pushed to", answer)

    async def _ask(self, *args: str) -> Finished:
        own = {name: value for name, value in self.environ.items() if not name.startswith("GIT_")}
        own |= {name: value for name, value in self.environ.items() if OWN_SETTINGS.fullmatch(name)}
        number = int(own.get("GIT_CONFIG_COUNT") or 0)
        env = {
            **own,
            "LC_ALL": "C.UTF-8",
            "GIT_DIR": str(self.git.git_dir),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_CONFIG_COUNT": str(number + 1),
            f"GIT_CONFIG_KEY_{number}": f"remote.{NAME}.url",
            f"GIT_CONFIG_VALUE_{number}": self.url,
        }
        options = (part for option in OPTIONS for part in ("-c", option))
        launch = Launch(("git", *options, *args), env, cwd=Path("/"), pass_fds=self.held)
        answer = await run(launch, timeout_s=TIMEOUT_S, cap=CAP, grace_s=2.0)
        if answer.timed_out:
            raise RemoteError(f"{self.name} did not answer within {TIMEOUT_S:g} s", hint="try again")
        return answer

    def _error(self, what: str, answer: Finished) -> RemoteError:
        lines = [line.strip() for line in (text(answer.stdout) + text(answer.stderr)).splitlines() if line.strip()]
        telling = [line for line in lines if re.search(r"rejected|denied|fatal|error|ERROR|remote:", line)]
        why = printable(_LOGIN.sub(r"\1", "; ".join(telling or lines))) or f"git exited with code {answer.exit_code}"
        hint = "if the remote requires a password, set up an SSH key or a credential helper"
        return RemoteError(f"{self.name} can't be {what}: {why[-SHOWN:]}", hint=hint if "could not read" in why else "")


async def remote_of(target: Target, store: Git, name: str, environ: Mapping[str, str]) -> Remote:
    """Return a remote of the repository. Raises `UsageError` if it does not exist or its URL is not supported."""
    urls = await remote_urls(target)
    if name not in urls:
        near = did_you_mean(name, list(urls))
        hint = "" if urls else "git remote add origin URL"
        raise UsageError(f"no remote {printable(name)!r} in {target.root}{near}", hint=hint)
    url = urls[name]
    if not _ADDRESS.fullmatch(url) or "::" in url:
        raise UsageError(f"the URL of the remote {printable(name)!r} is not https, ssh, git or a path")
    return Remote(store, name, url, environ)


async def remote_urls(target: Target) -> dict[str, str]:
    """Return the remotes of the user's repository with their URLs, which may contain tokens."""
    config = str(target.git_dir / "config")
    listed = await ask_git("config", "--file", config, "--no-includes", "--null", "--get-regexp", r"^remote\..*\.url$")
    pairs = (entry.partition("\n") for entry in fields(listed.stdout))
    found: dict[str, str] = {}
    for key, _, url in pairs:
        found.setdefault(key.removeprefix("remote.").removesuffix(".url"), url)  # git fetches from the first one
    return found
