"""A small process that starts boxes: it stands in the namespaces boxes are made in, and forks itself for each.

Run by its path, with nothing imported that is ours, because what forks should be small. A fork mounts what the box
needs by system calls and becomes bubblewrap; that saves four programs a box. It is a child of the manager, not of this
process, so that the manager waits for it as for any other. Ends when the manager closes the other end, or is gone.

Bubblewrap reads the list of all mounts two dozen times a box, so what no box is shown is not mounted in here.

An order is a message of one byte, with descriptors: the first is a file that says more. `!` starts a box: the other
descriptors are what it is started with, to be had under the numbers that the order names, and the answer is its process
id. `m` mounts things in here, where boxes that stand already may see them; the answer is 0. Less than 0 is an error.
"""

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable

CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the system call
CLONE_PARENT, CLONE_NEWNS, CLONE_NEWUSER = 0x8000, 0x20000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV = 0x1, 0x2, 0x4
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE, MS_SHARED = 0x20, 0x1000, 0x4000, 0x80000, 0x100000
MNT_DETACH = 2
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # on every machine
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, AT_FDCWD = 0x1, 0x80000, -100
AT_EMPTY_PATH, FROM_EMPTY_PATH = 0x1000, 0x4
UNMOUNTED = "/sys"  # with all the mounts below it
MOST_FDS = 200
LONGEST = 64 * 1024 * 1024
START, ARRANGE = b"!", b"m"
ROOM = 0o40755  # the mode of a folder in memory


def main(control: socket.socket) -> None:
    control.set_inheritable(False)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what it becomes would, too
    system = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock: a fork would wait for it for ever
    move_in(system)
    clone = CLONE[os.uname().machine]
    while True:
        said, fds, _, _ = socket.recv_fds(control, 1, MOST_FDS)
        if not said:
            return
        if said == ARRANGE:
            control.send(str(arrange(system, fds[0])).encode())
            os.close(fds[0])
            continue
        pid = system.syscall(clone, CLONE_PARENT, 0, 0, 0, 0)
        if pid == 0:
            become(system, fds)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())


def move_in(system: ctypes.PyDLL) -> None:
    """Into namespaces where mounting takes no rights. What the machine mounts later is seen here, too."""
    user, group = os.geteuid(), os.getegid()
    closed = user != 0  # devices of the machine: only root owns them, and could change their modes
    if user == 0 and system.unshare(CLONE_NEWNS) == 0:  # root of a container may not
        check(system.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "mount")
        system.umount2(UNMOUNTED.encode(), MNT_DETACH)
        closed = os.path.ismount("/dev") and read_only(system, "/dev")
    check(system.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported here
            file.write(line)
    check(system.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "mount")
    if not closed:
        check(system.mount(b"/dev", b"/dev", None, MS_BIND | MS_REC, None), "mount")
        if not read_only(system, "/dev"):
            raise OSError(ctypes.get_errno(), "the devices can't be closed")


def read_only(system: ctypes.PyDLL, path: str) -> bool:
    """Whether a mount could be made so; it keeps the other restrictions that it has."""
    kept = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    return bool(system.mount(None, path.encode(), None, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, None) == 0)


def arrange(system: ctypes.PyDLL, order: int) -> int:
    """Take the steps of an order; 0, or the error that was in the way."""
    try:
        asked = json.loads(os.pread(order, LONGEST, 0))
        os.chdir(asked["cwd"])
        take(system, asked["steps"])
    except OSError as problem:
        return -(problem.errno or 1)
    finally:
        os.chdir("/")
    return 0


def take(system: ctypes.PyDLL, steps: list[list[str]]) -> None:
    known: dict[str, Callable[..., None]] = {
        "share": share,
        "overlay": overlay,
        "room": room,
        "folder": lambda _, path: os.mkdir(path),  # noqa: PTH102 - pathlib is not imported here
        "file": lambda _, path: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)),
        "show": show,
        "clear": clear,
    }
    for what, *words in steps:
        known[what](system, *words)


def share(system: ctypes.PyDLL, path: str) -> None:
    """From now on, what is mounted below a folder is seen by the boxes that have a part of it, too."""
    check(system.mount(path.encode(), path.encode(), None, MS_BIND, None), "mount")
    check(system.mount(None, path.encode(), None, MS_SHARED, None), "mount")


def overlay(system: ctypes.PyDLL, path: str, options: str) -> None:
    check(system.mount(b"fleet", path.encode(), b"overlay", MS_NOSUID | MS_NODEV, options.encode()), "mount")


def room(system: ctypes.PyDLL, path: str, size: int, furnish: list[list[str]]) -> None:
    """A folder in memory that is as new, with what these steps make in it."""
    if os.path.ismount(path) and as_new(path, {step[1].rpartition("/")[2] for step in furnish if step[0] != "show"}):
        return
    clear(system, path)
    options = f"mode={ROOM & 0o7777:o},size={size}".encode()
    check(system.mount(b"tmpfs", path.encode(), b"tmpfs", MS_NOSUID | MS_NODEV, options), "mount")
    take(system, furnish)


def as_new(path: str, names: set[str]) -> bool:
    """Whether a folder in memory holds nothing else, and lets nobody do more or less than it did."""
    try:
        said = os.listxattr(path)
    except OSError as problem:
        said = [] if problem.errno == errno.ENOTSUP else [str(problem)]
    status = os.lstat(path)
    whose = (status.st_uid, status.st_gid, status.st_mode)
    return whose == (os.geteuid(), os.getegid(), ROOM) and not said and set(os.listdir(path)) == names  # noqa: PTH208


def show(system: ctypes.PyDLL, source: str, path: str, closed: bool) -> None:
    """A file or folder in another place. Its restrictions have to be there before others see it."""
    fd = system.syscall(OPEN_TREE, AT_FDCWD, source.encode(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    check(0 if fd >= 0 else -1, "open_tree")
    try:
        restrictions = struct.pack("QQQQ", MS_NOSUID | MS_NODEV | (MS_RDONLY if closed else 0), 0, 0, 0)
        done = system.syscall(MOUNT_SETATTR, fd, b"", AT_EMPTY_PATH, restrictions, len(restrictions))
        check(done, "mount_setattr")
        check(system.syscall(MOVE_MOUNT, fd, b"", AT_FDCWD, path.encode(), FROM_EMPTY_PATH), "move_mount")
    finally:
        os.close(fd)


def clear(system: ctypes.PyDLL, path: str) -> None:
    """Take away what was mounted at a place, and on it."""
    while system.umount2(path.encode(), MNT_DETACH) == 0:
        pass


def become(system: ctypes.PyDLL, fds: list[int]) -> None:
    """What the fork does; never comes back."""
    try:
        os.setsid()
        for fd in fds:
            os.set_inheritable(fd, False)  # asked for with the message, Python 3.11 forgets it
        order = json.loads(os.pread(fds[0], LONGEST, 0))
        wanted = order["fds"]
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(wanted) + 1) for fd in fds[1:]]
        for fd, number in zip(moved, wanted, strict=True):
            os.dup2(fd, number)
        os.chdir(order["cwd"])
        if order["overlay"]:
            check(system.unshare(CLONE_NEWNS), "unshare")
            options, view = order["overlay"].encode(), order["view"].encode()
            check(system.mount(b"fleet", view, b"overlay", 0, options), "mount")
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell is the point
    except (OSError, ValueError) as problem:
        os.write(2, f"a box could not be started: {problem}\n".encode("utf-8", "replace"))
    finally:
        os._exit(1)  # whatever happened: nothing of this process may go on twice


def check(answer: int, what: str) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as other_end:
        main(other_end)
