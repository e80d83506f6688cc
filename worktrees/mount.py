"""An overlay for one tenant: what is shared below, what the tenant changes above, mounted anew for every command.

The mount is made in a user namespace of the command's own, so it needs no rights, and it goes with the command however
that ends. Everything is named relative to one folder of ours: no path of the user's stands among the mount's options,
where a comma or a colon would mean something.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from anyio import Lock

from worktrees.wipe import wipe

VIEW = "view"
UPPER, WORK = "upper", "work"
SMALL = 500  # files and folders that are removed on the spot
UNSHARE = "unshare"
OPTIONS = "userxattr,volatile,index=off,metacopy=off,xino=off"
NAMESPACE = ("--user", "--map-root-user", "--mount", "--")
MOUNT = 'mount -n -i -t overlay fleet -o "$1" "$2" && shift 2'
# Root of the host owns its devices in the box, too, and changing their mode takes no capability. On a read-only mount
# that can't be done; reading and writing a device can.
CLOSE = "mount -n -i -o rbind,ro /dev /dev"
THEN = 'exec "$@"'
# What the kernel leaves after a volatile mount, so that nobody takes the upper folder for one that was synced. It was
# never meant to be: after a crash of the machine the lease is gone. Innermost first.
VOLATILE = ("work/incompat/volatile/dirty", "work/incompat/volatile", "work/incompat", "work")


@dataclass(slots=True)
class Overlay:
    """One tenant's. `home` holds it all, `lowers` are shared, the uppermost first, and `seat` is the tenant's own."""

    home: Path
    lowers: tuple[str, ...]
    seat: str
    _turn: Lock = field(default_factory=Lock)

    @property
    def upper(self) -> Path:
        return self.home / self.seat / UPPER

    @property
    def view(self) -> Path:
        """Where the command's namespace has the worktree. Everywhere else it is an empty folder."""
        return self.home / VIEW

    def make(self) -> None:
        """The lease itself: two folders."""
        seat = f"{self.home}/{self.seat}"
        os.makedirs(seat)  # noqa: PTH103 - plain names: this is the lease itself
        for name in (UPPER, WORK):
            os.mkdir(f"{seat}/{name}")  # noqa: PTH102

    @property
    def untouched(self) -> bool:
        """Whether the tenant has changed nothing yet."""
        return not os.listdir(f"{self.home}/{self.seat}/{UPPER}")  # noqa: PTH208 - plain names: asked for each check

    async def renew(self) -> None:
        """Forget all that the tenant changed."""
        for name in (UPPER, WORK):
            folder = self.home / self.seat / name
            if not discard(folder, most=SMALL):
                await wipe(folder)
            folder.mkdir()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[str]:
        """The options to mount it with. One command at a time may stand on an upper."""
        async with self._turn:
            self._forget_last()
            lowers = ":".join(self.lowers)
            layers = f"lowerdir={lowers},upperdir={self.seat}/{UPPER},workdir={self.seat}/{WORK}"
            yield f"{OPTIONS},{layers}"

    def _forget_last(self) -> None:
        work = self.home / self.seat / WORK
        for name in reversed(VOLATILE[1:]):
            with suppress(FileNotFoundError):
                (work / name).chmod(0o700)
        with suppress(FileNotFoundError):
            (work / VOLATILE[0]).unlink()
        for name in VOLATILE[1:3]:
            with suppress(FileNotFoundError):
                (work / name).rmdir()


def mounted(options: str) -> tuple[str, ...]:
    """What to put before a command so that it finds an overlay, and the devices of the machine closed."""
    return (*_first(MOUNT, *_closing()), options, VIEW)


def devices_closed() -> tuple[str, ...]:
    """What to put before a command of root's so that the devices of the machine stay as they are."""
    closing = _closing()
    return _first(*closing) if closing else ()


def _closing() -> tuple[str, ...]:
    return (CLOSE,) if os.geteuid() == 0 else ()


def _first(*steps: str) -> tuple[str, ...]:
    """A command line that does this in namespaces of its own, in one shell, and then becomes what follows it."""
    return (UNSHARE, *NAMESPACE, found("sh") or "sh", "-c", " && ".join((*steps, THEN)), "sh")


def found(name: str) -> str | None:
    """Where a program of this machine lies. A hundred boxes a second would look in a dozen folders each."""
    return _found(name, os.environ.get("PATH"))


@lru_cache(maxsize=64)
def _found(name: str, path: str | None) -> str | None:
    return shutil.which(name, path=path)


def discard(folder: Path, *, most: int) -> bool:
    """Remove a small folder at once; False where it is too large, too deep or closed, and somebody must `wipe` it."""
    left = most

    def empty(at: str, depth: int) -> bool:
        nonlocal left
        os.chmod(at, 0o700)  # noqa: PTH101 - the kernel's own work folder is closed to its owner
        with os.scandir(at) as entries:
            for entry in entries:
                left -= 1
                if left < 0 or depth > most:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)  # noqa: PTH108
                elif not empty(entry.path, depth + 1):
                    return False
        os.rmdir(at)  # noqa: PTH106
        return True

    try:
        return empty(os.fspath(folder), 0)
    except OSError:
        return False
