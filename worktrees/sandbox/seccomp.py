"""The system call filter of the box: rejects calls that builds do not need and that kernel exploits have used.

A classic BPF program, assembled here for the architectures with known call numbers. Other architectures have no filter,
and `fleet doctor` reports that. This module does not depend on the box: bubblewrap gets the program by descriptor.
"""

import errno
import platform
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """Calls rejected for one reason, by number on x86-64 and on arm64. 0 if the architecture does not have the call."""

    why: str
    calls: Mapping[str, tuple[int, int]]
    error: int = errno.EPERM


@dataclass(frozen=True, slots=True)
class Architecture:
    """Differences between processor architectures."""

    audit: int
    column: int
    """The index in the table of numbers."""
    clone: int
    unshare: int
    ioctl: int
    socket: int
    others_from: int | None = None
    """Numbers from here on are a second set of the same calls."""


def _calls(table: str) -> dict[str, tuple[int, int]]:
    """Parse `name x86-64 arm64, name x86-64 arm64, ...`."""
    rows = (row.split() for row in table.split(","))
    return {name: (int(x86_64), int(arm64)) for name, x86_64, arm64 in rows}


REFUSED = (
    RefusedCall(
        "reads and changes other processes, such as the manager",
        _calls(
            "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, pidfd_getfd 438 438, kcmp 312 272"
        ),
    ),
    RefusedCall(
        "key rings belong to a user, not to a namespace, so the box could read the keys of the manager's user",
        _calls("add_key 248 217, request_key 249 218, keyctl 250 219"),
    ),
    RefusedCall(
        "exploits often use kernel programs, performance counters and page faults handled in user space",
        _calls("bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, fanotify_init 300 262"),
    ),
    RefusedCall(
        "makes other calls without passing this filter. Programs that use it have a fallback",
        _calls("io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427"),
        errno.ENOSYS,
    ),
    RefusedCall(
        "its flags are in memory, out of reach of the filter. C libraries fall back to clone, whose flags are visible",
        _calls("clone3 435 435"),
        errno.ENOSYS,
    ),
    RefusedCall(
        "changes the file system of the box",
        _calls(
            "mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, setns 308 268, open_tree 428 428,"
            "open_tree_attr 467 467, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432,"
            "fspick 433 433, mount_setattr 442 442"
        ),
    ),
    RefusedCall("opens files by their location on disk, including hidden ones", _calls("open_by_handle_at 304 265")),
    RefusedCall(
        "administers the machine",
        _calls(
            "kexec_load 246 104, kexec_file_load 320 294, init_module 175 105, finit_module 313 273,"
            "delete_module 176 106, reboot 169 142, swapon 167 224, swapoff 168 225, acct 163 89, quotactl 179 60,"
            "quotactl_fd 443 443, syslog 103 116, iopl 172 0, ioperm 173 0, modify_ldt 154 0"
        ),
    ),
)
NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW… flag
TERMINAL_INPUT = {
    "TIOCSTI": 0x5412,
    "TIOCLINUX": 0x541C,
}  # inserts input into the terminal that the manager was started from
SOCKETS = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""The socket families that the box may use. Some others bypass the network namespace (AF_VSOCK: the host of a virtual
machine). Most others are rarely used and often have bugs."""

MACHINES = {
    "x86_64": Architecture(0xC000003E, 0, clone=56, unshare=272, ioctl=16, socket=41, others_from=0x40000000),
    "aarch64": Architecture(0xC00000B7, 1, clone=220, unshare=97, ioctl=29, socket=198),
}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, (16, 24)  # offsets in the kernel's record; for an argument, its low half
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


@dataclass(slots=True)
class _Program:
    """A sequence of instructions."""

    code: list[bytes] = field(default_factory=list)

    def add(self, operation: int, value: int, *, then: int = 0, otherwise: int = 0) -> None:
        """`then` and `otherwise`: how many instructions to skip."""
        self.code.append(struct.pack("=HBBI", operation, then, otherwise, value))

    def refuse(self, error: int) -> None:
        self.add(_ANSWER, _ERROR | error)

    def when_called(self, number: int, argument: int, tests: "_Program") -> None:
        """Test one argument of one call. Loads the call's number before and after."""
        self.add(_EQUAL, number, otherwise=len(tests.code) + 2)
        self.add(_LOAD, _ARGUMENT[argument])
        self.code += tests.code
        self.add(_LOAD, _NUMBER)


@cache
def filter_program(machine: str | None = None) -> bytes | None:
    """Return the filter for an architecture, by default this machine's, or None if its calls are unknown."""
    kind = MACHINES.get(machine or platform.machine())
    if kind is None:
        return None
    program = _Program()
    program.add(_LOAD, _ARCHITECTURE)
    program.add(_EQUAL, kind.audit, then=1)
    program.add(_ANSWER, _KILL)
    program.add(_LOAD, _NUMBER)
    if kind.others_from is not None:
        program.add(_AT_LEAST, kind.others_from, otherwise=1)
        program.refuse(errno.ENOSYS)
    for refused in REFUSED:
        numbers = sorted(filter(None, (numbers[kind.column] for numbers in refused.calls.values())))
        program.code += _refuse_if(_EQUAL, *numbers, error=refused.error).code
    program.when_called(kind.clone, 0, _refuse_if(_ANY_BIT, NEW_NAMESPACES & ~0xFF))  # its low byte is a signal
    program.when_called(kind.unshare, 0, _refuse_if(_ANY_BIT, NEW_NAMESPACES))
    program.when_called(kind.ioctl, 1, _refuse_if(_EQUAL, *TERMINAL_INPUT.values()))
    program.when_called(kind.socket, 0, _refuse_others(SOCKETS.values()))
    program.add(_ANSWER, _ALLOW)
    return b"".join(program.code)


def _refuse_if(test: int, *values: int, error: int = errno.EPERM) -> _Program:
    program = _Program()
    for value in values:
        program.add(test, value, otherwise=1)
        program.refuse(error)
    return program


def _refuse_others(values: Collection[int]) -> _Program:
    program = _Program()
    for position, value in enumerate(values):
        program.add(_EQUAL, value, then=len(values) - position)
    program.refuse(errno.EAFNOSUPPORT)
    return program
