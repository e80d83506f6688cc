"""A small process that starts boxes: it stands in the namespaces boxes are made in, and forks itself for each.

Run by its path, with nothing imported that is ours, because what forks should be small. A fork mounts what the box
needs by system calls and becomes bubblewrap; that saves four programs a box. It is a child of the manager, not of this
process, so that the manager waits for it as for any other. Ends when the manager closes the other end, or is gone.

An order is a message of one byte, with descriptors: the first is a file that says what to start, the others are what
it is started with, to be had under the numbers that the order names. The answer is a process id.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import sys

CLONE = {"x86_64": 56, "aarch64": 220}  # the number of the system call
CLONE_PARENT, CLONE_NEWNS = 0x8000, 0x20000
MOST_FDS = 200
LONGEST = 64 * 1024 * 1024


def main(control: socket.socket) -> None:
    control.set_inheritable(False)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what it becomes would, too
    system = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock: a fork would wait for it for ever
    clone = CLONE[os.uname().machine]
    while True:
        said, fds, _, _ = socket.recv_fds(control, 1, MOST_FDS)
        if not said:
            return
        pid = system.syscall(clone, CLONE_PARENT, 0, 0, 0, 0)
        if pid == 0:
            become(system, fds)
        for fd in fds:
            os.close(fd)
        control.send(str(pid).encode())


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
