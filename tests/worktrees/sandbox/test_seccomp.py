"""The filter of system calls: what it refuses in the box, and that ordinary programs don't notice it."""

import errno
import json
import platform
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.worktrees.conftest import OpenBench, python_shown
from worktrees.sandbox.seccomp import MACHINES, NEW_NAMESPACES, REFUSED, SOCKETS, TERMINAL_INPUT, filter_program

CALL = """\
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
found = {}
for name, numbers in json.loads(sys.argv[1]).items():
    ctypes.set_errno(0)
    answer = libc.syscall(*(ctypes.c_long(number) for number in numbers))
    found[name] = ctypes.get_errno() if answer < 0 else 0
print(json.dumps(found))
"""
NOWHERE = -1  # as an address and as a descriptor
HERE = MACHINES[platform.machine()]
REFUSED_HERE = {
    name: (numbers[HERE.column], refused.error)
    for refused in REFUSED
    for name, numbers in refused.calls.items()
    if numbers[HERE.column]
}
BY_ARGUMENT = {
    "clone": ((HERE.clone, 0x10000000 | 17, 0, 0, 0, 0), errno.EPERM),
    "unshare": ((HERE.unshare, 0x00000080), errno.EPERM),
    "TIOCSTI": ((HERE.ioctl, 0, TERMINAL_INPUT["TIOCSTI"], NOWHERE), errno.EPERM),
    "AF_VSOCK": ((HERE.socket, 40, 1, 0), errno.EAFNOSUPPORT),
    "AF_ALG": ((HERE.socket, 38, 5, 0), errno.EAFNOSUPPORT),
    "AF_PACKET": ((HERE.socket, 17, 3, 0), errno.EAFNOSUPPORT),
}


async def errors_of(open_bench: OpenBench, calls: dict[str, tuple[int, ...]], *, filtered: bool) -> dict[str, int]:
    changes = {"read_only": python_shown(), "path": (Path(sys.prefix, "bin"),), "syscall_filter": filtered}
    async with open_bench(**changes) as bench, bench.worktrees.lease(bench.base) as lease:
        script = f"python -c {shlex.quote(CALL)} {shlex.quote(json.dumps(calls))}"
        answer = await lease.workspace.run(script, timeout_s=60)
    errors: dict[str, int] = json.loads(answer.output)
    return errors


async def test_every_refused_call_is_refused_and_not_only_by_the_kernels_own_rules(open_bench: OpenBench) -> None:
    calls = {name: (number, *([NOWHERE] * 6)) for name, (number, _) in REFUSED_HERE.items()}
    bare = await errors_of(open_bench, calls, filtered=False)
    errors = await errors_of(open_bench, calls, filtered=True)
    assert errors == {name: error for name, (_, error) in REFUSED_HERE.items()}
    reached = {name for name, error in bare.items() if error not in {errno.EPERM, errno.ENOSYS}}
    assert {"keyctl", "add_key", "process_vm_readv", "kcmp", "ptrace", "clone3"} <= reached


async def test_a_call_is_refused_by_what_it_asks_for(open_bench: OpenBench) -> None:
    calls = {name: numbers for name, (numbers, _) in BY_ARGUMENT.items()}
    errors = await errors_of(open_bench, calls, filtered=True)
    assert errors == {name: error for name, (_, error) in BY_ARGUMENT.items()}
    families = {name: (HERE.socket, number, 2 if number != 16 else 3, 0) for name, number in SOCKETS.items()}
    others = {"unshare": (HERE.unshare, 0x00000200)}
    assert set((await errors_of(open_bench, {**families, **others}, filtered=True)).values()) == {0}


PROGRAMS = {
    "git": "git init -q x && cd x && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git log",
    "bash": "bash -c 'x=$(seq 3 | wc -l); [ $x -eq 3 ] && (sleep 0 & wait)'",
    "python": (
        "python -c 'import subprocess, multiprocessing as m, threading, socket, asyncio; "
        'subprocess.run(["true"], check=True); t = threading.Thread(target=print); t.start(); t.join(); '
        's = socket.create_server(("127.0.0.1", 0)); asyncio.run(asyncio.sleep(0))\''
    ),
    "node": (
        """node -e 'new (require("worker_threads").Worker)("", {eval: true}); """
        """require("child_process").execSync("true")'"""
    ),
    "cc": "printf 'int main(void) { return 0; }' > a.c && cc -o a a.c && ./a",
    "perl": "perl -e 'system(\"true\") == 0 or die'",
}


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name == "python" or shutil.which(name)])
async def test_programs_do_not_notice_the_filter(open_bench: OpenBench, program: str) -> None:
    changes = {"read_only": python_shown(), "path": (Path(sys.prefix, "bin"),)}
    async with open_bench(**changes) as bench, bench.worktrees.lease(bench.base) as lease:
        result = await lease.workspace.run(f"set -e; {PROGRAMS[program]}", timeout_s=60)
    assert result.exit_code == 0, result.output


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    assert filter_program("riscv64") is None
    assert all(filter_program(name) for name in MACHINES)
    assert NEW_NAMESPACES & 0x7F == 0  # no signal is taken for a namespace
