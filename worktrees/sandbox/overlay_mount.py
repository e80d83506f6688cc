"""An overlay for one tenant: shared layers below, the tenant's changes above, mounted for every command.

The mount is made in a user namespace of the command's own, so it needs no rights, and it ends with the command whatever
happens. Layers are named relative to one folder of ours: a user's path could contain a comma or a colon, which would
change the mount's options.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import Lock

VIEW = "view"
UPPER, WORK = "upper", "work"
UNSHARE = "unshare"
NAMESPACE = ("--user", "--map-root-user", "--mount", "--")
OPTIONS = "userxattr,volatile,index=off,metacopy=off,xino=off"
MOUNT = 'mount -n -i -t overlay fleet -o "$1" "$2" && shift 2'
# Root of the host owns its devices in the box, too, and changing their mode takes no capability. On a read-only mount
# that can't be done; reading and writing a device can.
CLOSE_DEVICES = "mount -n -i -o rbind,ro /dev /dev"
# The kernel leaves these after a volatile mount, so that the upper folder is not taken for one that was synced. It
# never was: after a crash of the machine the lease is gone. Innermost first.
VOLATILE = ("work/incompat/volatile/dirty", "work/incompat/volatile", "work/incompat", "work")


@dataclass(slots=True)
class Overlay:
    """One tenant's overlay. `home` holds all layers; `lowers` are shared, the uppermost first; `folder` is its own."""

    home: Path
    lowers: tuple[str, ...]
    folder: str
    _lock: Lock = field(default_factory=Lock)

    @property
    def upper(self) -> Path:
        return self.home / self.folder / UPPER

    @property
    def view(self) -> Path:
        """The mount point: the worktree in the command's namespace, an empty folder everywhere else."""
        return self.home / VIEW

    def make(self) -> None:
        """Make the tenant's own two folders."""
        folder = f"{self.home}/{self.folder}"
        os.makedirs(folder)  # noqa: PTH103 - plain names: each lease does this
        for name in (UPPER, WORK):
            os.mkdir(f"{folder}/{name}")  # noqa: PTH102

    @asynccontextmanager
    async def mount_options(self) -> AsyncIterator[str]:
        """The options to mount it with, for one command at a time."""
        async with self._lock:
            self._remove_volatile()
            layers = f"lowerdir={':'.join(self.lowers)},upperdir={self.folder}/{UPPER},workdir={self.folder}/{WORK}"
            yield f"{OPTIONS},{layers}"

    def _remove_volatile(self) -> None:
        work = self.home / self.folder / WORK
        dirty, volatile, incompat, inner = (work / name for name in VOLATILE)
        for folder in (inner, incompat, volatile):
            with suppress(FileNotFoundError):
                folder.chmod(0o700)
        with suppress(FileNotFoundError):
            dirty.unlink()
        for folder in (volatile, incompat):
            with suppress(FileNotFoundError):
                folder.rmdir()


def mounting(options: str) -> tuple[str, ...]:
    """A command line that mounts an overlay where there are options for one, and then becomes what follows it.

    For root it also closes the devices of the machine. Empty where nothing has to be prepared.
    """
    steps = [*([MOUNT] if options else []), *([CLOSE_DEVICES] if _owns_devices() else [])]
    if not steps:
        return ()
    script = " && ".join((*steps, 'exec "$@"'))
    shell = (shutil.which("sh") or "sh", "-c", script, "sh")
    return (UNSHARE, *NAMESPACE, *shell, *((options, VIEW) if options else ()))


def _owns_devices() -> bool:
    return os.geteuid() == 0
