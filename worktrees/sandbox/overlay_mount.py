"""An overlay for one tenant: shared layers below, the tenant's changes above, mounted for every command.

The mount is made in the command's user namespace, so it needs no privileges and always ends with the command. Layers
are named relative to our folder, because a user's path could contain a comma or a colon, which would change the mount
options.
"""

import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
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
# The host's root owns its devices in the box, too, and can change their mode without a capability. A read-only mount
# prevents that, and still allows reading and writing a device.
CLOSE_DEVICES = "mount -n -i -o rbind,ro /dev /dev"
# The kernel leaves these after a volatile mount, because the upper folder was not synced. fleet does not need it to be:
# after a crash of the machine the lease is gone. Innermost first.
VOLATILE = ("work/incompat/volatile/dirty", "work/incompat/volatile", "work/incompat", "work")


@dataclass(slots=True)
class Overlay:
    """A tenant's overlay. `home` has all layers. `lowers` are shared, the uppermost first. `folder` is the tenant's."""

    home: Path
    lowers: tuple[str, ...]
    folder: str
    options: str = OPTIONS
    _lock: Lock = field(default_factory=Lock)

    @property
    def upper(self) -> Path:
        return self.home / self.folder / UPPER

    @property
    def view(self) -> Path:
        """The mount point: the worktree in the command's namespace, an empty folder everywhere else."""
        return self.home / VIEW

    def make(self) -> None:
        """Create the tenant's two folders."""
        folder = f"{self.home}/{self.folder}"
        os.makedirs(folder)  # noqa: PTH103 - plain names: runs for each lease
        for name in (UPPER, WORK):
            os.mkdir(f"{folder}/{name}")  # noqa: PTH102

    def is_as_made(self) -> bool:
        """Whether another tenant can use it, because it is empty. Replaces the upper folder."""
        folder = f"{self.home}/{self.folder}"
        with suppress(OSError):
            os.rmdir(f"{folder}/{UPPER}")  # noqa: PTH106 - the kernel refuses if it is not empty
            os.mkdir(f"{folder}/{UPPER}")  # noqa: PTH102
            return set(os.listdir(folder)) == {UPPER, WORK}  # noqa: PTH208
        return False

    @asynccontextmanager
    async def mount_options(self) -> AsyncIterator[str]:
        """Return its mount options, for one command at a time."""
        async with self._lock:
            self._remove_volatile()
            layers = f"lowerdir={':'.join(self.lowers)},upperdir={self.folder}/{UPPER},workdir={self.folder}/{WORK}"
            yield f"{self.options},{layers}"

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
    """Return a command line that mounts an overlay, if it has options, and then becomes the next command.

    For root it also makes the devices of the machine read-only. Empty if no preparation is needed.
    """
    steps = [*([MOUNT] if options else []), *([CLOSE_DEVICES] if _owns_devices() else [])]
    if not steps:
        return ()
    script = " && ".join((*steps, 'exec "$@"'))
    shell = (shutil.which("sh") or "sh", "-c", script, "sh")
    return (UNSHARE, *NAMESPACE, *shell, *((options, VIEW) if options else ()))


def _owns_devices() -> bool:
    return os.geteuid() == 0


# ---- ownership -------------------------------------------------------------------------------------------------------
# Ownership tags: every process started for a worker has a tag with its manager. Processes of dead managers are ended.
#
# A tag identifies the manager by process namespace, process id and start time. So a reused process id, or one from
# another container, is not mistaken for our manager.


TAG = "FLEET_BOX"
ROUNDS = 5  # a process that forks while it is ended is found in the next round
_TAG = re.compile(rb"(?:\A|\0)FLEET_BOX=(\d{1,20})\.(\d{1,10})\.(\d{1,20})/")
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Manager:
    """A process that starts boxes."""

    namespace: int
    pid: int
    started: int
    """In clock ticks since the machine started."""

    def tag(self, name: str) -> str:
        return f"{self.namespace}.{self.pid}.{self.started}/{name}"

    def is_alive(self) -> bool:
        return _start_time(self.pid) == self.started


def this_manager() -> Manager:
    pid = os.getpid()
    return Manager(_namespace(), pid, _start_time(pid) or 0)


def end_orphans() -> None:
    """End every process whose manager is dead."""
    for _ in range(ROUNDS):
        orphans = list(_orphans())
        for pid in orphans:
            _end(pid)
        if not orphans:
            return


def manager_of(pid: int) -> Manager | None:
    """Return the manager in a process's tag."""
    try:
        match = _TAG.search((_PROC / str(pid) / "environ").read_bytes())
    except OSError:  # it has exited, or is not readable
        return None
    return Manager(*map(int, match.groups())) if match else None


def _orphans() -> Iterator[int]:
    namespace, our_pid = _namespace(), os.getpid()
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit() and int(name) != our_pid and _is_orphan(int(name), namespace):
            yield int(name)


def _is_orphan(pid: int, namespace: int) -> bool:
    manager = manager_of(pid)
    return manager is not None and manager.namespace == namespace and not manager.is_alive()


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        pidfd = os.pidfd_open(pid)
        try:
            if _is_orphan(
                pid, _namespace()
            ):  # checked again: the process id may be reused by now, the descriptor can't
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _namespace() -> int:
    return (_PROC / "self/ns/pid").stat().st_ino


def _start_time(pid: int) -> int | None:
    """Return when a process started, or None if it does not exist or is a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])
