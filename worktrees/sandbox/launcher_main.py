"""A small process that starts boxes: it lives in the namespaces of the boxes, and forks for each of them.

It is run by its path, and imports only the standard library, because a process that forks should be small. A fork
mounts the overlay of the box by system calls and becomes bubblewrap, which saves four programs per box. The fork is a
child of the manager, not of this process, so that the manager can wait for it as usual. This process exits when the
manager closes its socket or dies.

Bubblewrap reads the list of all mounts two dozen times per box, so mounts that boxes do not need are not made here.

An order is a message of one byte with descriptors: the first is a file with the details, the others are for the box,
under the numbers in the order. The answer is the process id of the fork. A negative number is an error.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import sys

CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the system call
CLONE_PARENT, CLONE_NEWNS, CLONE_NEWUSER = 0x8000, 0x20000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x1, 0x20, 0x1000, 0x4000, 0x80000
MNT_DETACH = 2
UNMOUNTED = "/sys"  # with all the mounts below it
MAX_FDS = 200
MAX_ORDER_BYTES = 64 * 1024 * 1024


def main(control: socket.socket) -> None:
    control.set_inheritable(False)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and bubblewrap would inherit that
    system = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter lock: a fork would wait for it forever
    enter_namespaces(system)
    clone = CLONE[os.uname().machine]
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1, MAX_FDS)
        if not message:
            return
        pid = system.syscall(clone, CLONE_PARENT, 0, 0, 0, 0)
        if pid == 0:
            become_box(system, fds)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())


def enter_namespaces(system: ctypes.PyDLL) -> None:
    """Enter namespaces in which mounting needs no privileges. Later mounts of the machine are visible here, too."""
    user, group = os.geteuid(), os.getegid()
    devices_closed = user != 0  # devices of the machine: only root owns them, and could change their modes
    if user == 0 and system.unshare(CLONE_NEWNS) == 0:  # root in a container may not
        check(system.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "mount")
        system.umount2(UNMOUNTED.encode(), MNT_DETACH)
        devices_closed = os.path.ismount("/dev") and remount_read_only(system, "/dev")
    check(system.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare")
    for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib is not imported here
            file.write(line)
    check(system.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "mount")
    if not devices_closed:
        check(system.mount(b"/dev", b"/dev", None, MS_BIND | MS_REC, None), "mount")
        if not remount_read_only(system, "/dev"):
            raise OSError(ctypes.get_errno(), "can't remount the devices read-only")


def remount_read_only(system: ctypes.PyDLL, path: str) -> bool:
    """Make a mount read-only and keep its other restrictions. Return False if that fails."""
    others = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
    return bool(system.mount(None, path.encode(), None, MS_REMOUNT | MS_BIND | MS_RDONLY | others, None) == 0)


def become_box(system: ctypes.PyDLL, fds: list[int]) -> None:
    """Turn the fork into the command of an order. Never returns."""
    try:
        os.setsid()
        for fd in fds:
            os.set_inheritable(fd, False)  # requested with the message, but Python 3.11 drops it
        order = json.loads(os.pread(fds[0], MAX_ORDER_BYTES, 0))
        numbers = order["fds"]
        moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in fds[1:]]
        for fd, number in zip(moved, numbers, strict=True):
            os.dup2(fd, number)
        os.chdir(order["cwd"])
        if order["overlay"]:
            check(system.unshare(CLONE_NEWNS), "unshare")
            options, view = order["overlay"].encode(), order["view"].encode()
            check(system.mount(b"fleet", view, b"overlay", 0, options), "mount")
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - runs without a shell on purpose
    except (OSError, ValueError) as problem:
        os.write(2, f"could not start a box: {problem}\n".encode("utf-8", "replace"))
    finally:
        os._exit(1)  # in all cases: this process must not continue as a second launcher


def check(result: int, call: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as other_end:
        main(other_end)
