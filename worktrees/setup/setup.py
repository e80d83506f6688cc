"""What a worktree needs before work can begin, besides its files: what the set-up command makes, and included files.

Made once for each fingerprint: the command, the lock files as they are at the commit, the included files. Knows what to
run and when it must run again; keeping what it made is up to those who lease.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.box import Box, Place
from worktrees.desk import exit_code
from worktrees.git import Git
from worktrees.include import Included
from worktrees.settings import HandSettings

SHOWN = 4_000  # characters of what a failed set-up printed


@dataclass(slots=True)
class Dresser:
    """Of one run."""

    settings: HandSettings
    box: Box
    git: Git
    included: Included
    _fingerprints: dict[Sha, str] = field(default_factory=dict)

    @property
    def needed(self) -> bool:
        return bool(self.settings.setup.strip()) or bool(self.included.paths)

    async def fingerprint(self, commit: Sha) -> str:
        """What the dress of a commit depends on."""
        if commit not in self._fingerprints:
            names = self.settings.lock_files
            locks = await self.git("ls-tree", "-z", commit, "--", *names) if names else b""
            parts = [self.settings.setup, self.included.digest, hashlib.sha256(locks).hexdigest()]
            self._fingerprints[commit] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return self._fingerprints[commit]

    async def run(self, place: Place) -> None:
        """Run the set-up command in the box. Raises `Broken` when it fails."""
        if not self.settings.setup.strip():
            return
        limit = self.settings.setup_s
        done = await self.box.run(place, self.box.shell(self.settings.setup), timeout_s=limit, cap=64 * 1024)
        if done.timed_out or done.exit_code != 0:
            how = f"took longer than {limit:g} s" if done.timed_out else f"failed with exit code {exit_code(done)}"
            said = done.stdout.decode("utf-8", "replace")[-SHOWN:]
            raise Broken(Failure(kind="configuration", summary=f"the set-up command {how}", evidence=said))


def state_of(root: Path, parts: Iterable[str]) -> tuple[str, int]:
    """A digest of what stands below `root` at some paths, and how much it is, without reading a file.

    The kernel sets the time of change, and no worker can set it back: whoever touches anything here is seen.
    """
    digest, count = hashlib.sha256(), 0
    pending = sorted(parts, reverse=True)
    while pending:
        path = pending.pop()
        try:
            status = (root / path).lstat()
        except OSError:
            digest.update(f"{path}\0-".encode("utf-8", "surrogateescape"))
            continue
        count += 1
        seen = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update(repr((path, *seen)).encode("utf-8", "surrogateescape"))
        if stat.S_ISDIR(status.st_mode):
            try:
                names = sorted(os.listdir(root / path), reverse=True)  # noqa: PTH208 - names only, and many
            except OSError:
                continue
            pending += [f"{path}/{name}" for name in names]
    return digest.hexdigest(), count
