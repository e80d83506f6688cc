"""The remote of a user's repository: its branches are fetched into the store and pushed from there, never by force.

Git runs in the store with the user's own settings and environment, so that their keys, credential helpers and
rewritten addresses work. The configuration of the repository is only read as data, for the address. The address goes
by the environment: it may hold a token, which neither a list of processes nor a message should show.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.core.base.ids import Sha
from fleet.core.base.nearest import did_you_mean
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import reached
from worktrees.base.fs import printable
from worktrees.base.process import Finished, Launch, run
from worktrees.git.program import OWN_SETTINGS, Git, ask_git, fields, text
from worktrees.target.target import Target

TIMEOUT_S = 600.0  # of one fetch or push, over a slow line
CAP = 1024 * 1024
SHOWN = 300  # characters of git's reason
NAME = "fleet-remote"
OPTIONS = (
    *("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=true", "gc.auto=0"),
    *("maintenance.auto=false", "submodule.recurse=false", "push.gpgSign=false", "push.followTags=false"),
    *("push.recurseSubmodules=no", "fetch.prune=false", "fetch.pruneTags=false", "protocol.ext.allow=never"),
)
"""What the user's own settings may not change here."""
_ADDRESS = re.compile(r"(?:https?|ssh|git|file)://[^\s]+|/[^\s]*|(?:\w[\w.-]*@)?\w[\w.-]*:[^\s:-][^\s]*", re.ASCII)
_LOGIN = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s'\"]+@", re.IGNORECASE)
_NO_BRANCH = "couldn't find remote ref"
_MOVED = re.compile(
    r"\((?:fetch first|non-fast-forward|stale info|(?:failed to lock|cannot lock ref|incorrect old).*)\)"
)


class RemoteError(FleetError):
    """The remote can't be reached, or refuses. A push may have arrived all the same: fetch, and look."""


class RemoteMovedError(RemoteError):
    """The branch has commits that the push lacks; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A remote, as the store of a target reaches it."""

    git: Git
    """The store."""
    name: str
    """The name that the user's repository has for it."""
    url: str
    environ: Mapping[str, str]
    """The user's."""
    held: tuple[int, ...] = ()
    """File descriptors that git keeps open: locks that hold while it lives, even if this process was killed."""

    def holding(self, held: tuple[int, ...]) -> "Remote":
        """The same remote, with file descriptors that git keeps open."""
        return replace(self, held=held)

    async def fetch(self, branch: str, ref: str) -> Sha | None:
        """Set a ref of the store to a branch of the remote, and return its commit; None if there is no such branch."""
        options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
        answer = await self._ask("fetch", *options, NAME, f"+refs/heads/{branch}:{ref}")
        if answer.exit_code == 0:
            return await self.git.sha(ref)
        if _NO_BRANCH in text(answer.stderr):
            return None
        raise self._error("fetched from", answer)

    async def push(self, commit: Sha, branch: str) -> None:
        """Move a branch of the remote forward to a commit, or make it. Raises `RemoteMovedError` or `RemoteError`."""
        reached("a branch of the remote is about to move")
        options = ("--quiet", "--porcelain", "--no-verify", "--no-signed", "--no-force-with-lease")
        answer = await self._ask("push", *options, NAME, f"{commit}:refs/heads/{branch}")
        if answer.exit_code == 0:
            reached("a branch of the remote has moved")
            return
        if _MOVED.search(text(answer.stdout)):
            raise RemoteMovedError(f"{branch} on {self.name} has moved meanwhile; nothing was changed")
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
        why = printable(_LOGIN.sub(r"\1", "; ".join(telling or lines))) or f"git gives no reason ({answer.exit_code})"
        hint = "if git asks you for a password there, give it a key or a credential helper"
        return RemoteError(f"{self.name} can't be {what}: {why[-SHOWN:]}", hint=hint if "could not read" in why else "")


async def remote_of(target: Target, store: Git, name: str, environ: Mapping[str, str]) -> Remote:
    """A remote of the user's repository. Raises `UsageError` where there is none, or git can't have written it."""
    urls = await remote_urls(target)
    if name not in urls:
        near = did_you_mean(name, list(urls))
        hint = "" if urls else "git remote add origin URL"
        raise UsageError(f"{target.root} has no remote {printable(name)!r}{near}", hint=hint)
    url = urls[name]
    if not _ADDRESS.fullmatch(url) or "::" in url:
        raise UsageError(f"the address of the remote {printable(name)!r} is not one of https, ssh, git or a path")
    return Remote(store, name, url, environ)


async def remote_urls(target: Target) -> dict[str, str]:
    """The remotes of the user's repository with their addresses, which may hold tokens."""
    config = str(target.git_dir / "config")
    listed = await ask_git("config", "--file", config, "--no-includes", "--null", "--get-regexp", r"^remote\..*\.url$")
    pairs = (entry.partition("\n") for entry in fields(listed.stdout))
    found: dict[str, str] = {}
    for key, _, url in pairs:
        found.setdefault(key.removeprefix("remote.").removesuffix(".url"), url)  # the first one is fetched from
    return found
