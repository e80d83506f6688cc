"""At the kernel: mounts, namespaces, devices, and the terminal that the manager was started from."""

import errno
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.conftest import Arena, bare
from worktrees.sandbox.seccomp import MACHINES

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
MOUNT = "mkdir -p m && mount -t tmpfs none m && echo seen > m/file && cat m/file"
IN_A_NAMESPACE_OF_ITS_OWN = {
    "a mount": MOUNT,
    "another root": "mkdir -p root && mount --rbind / root && chroot root /bin/sh -c 'echo seen'",
    "a bind": "mkdir -p m && mount --bind /usr m && ls m | grep -q bin && echo seen",
}
NEVER = {
    "a user namespace": "unshare --user true",
    "a mount namespace": "unshare --mount true",
    "a process namespace": "unshare --pid --fork true",
    "a user and a mount namespace": f"{' '.join(NAMESPACE)} true",
    "a mount": MOUNT,
    "writable again": "mount -o remount,rw / || mount -o remount,rw /usr",
    "a character device": "mknod device c 1 3",
    "a block device": "mknod device b 8 0",
    "another root": "chroot / true",
    "another user": "python -c 'import os; os.setuid(0)'",
    "the namespace of the manager": "nsenter --target 1 --mount --pid true && nsenter -t 2 -U true",
    "memory of the box's first process": "test -w /proc/1/mem",
    "the memory of the machine": "head -c 1 /dev/mem || head -c 1 /proc/kcore",
}
TYPE = """python -c 'import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ioctl(0, 0x5412, b"x")
sys.exit(ctypes.get_errno())'
"""


@pytest.mark.parametrize("attack", IN_A_NAMESPACE_OF_ITS_OWN)
async def test_17_what_is_shown_is_changed_from_a_new_namespace(arena: Arena, attack: str) -> None:
    script = f'{" ".join(NAMESPACE)} sh -c "$1"'
    result = await arena.without(script, IN_A_NAMESPACE_OF_ITS_OWN[attack])
    assert result.output == "seen\n", result
    assert "seen" not in (await arena.within(script, IN_A_NAMESPACE_OF_ITS_OWN[attack])).output


@pytest.mark.parametrize("attack", NEVER)
async def test_17_the_kernel_is_asked_for_what_no_command_in_the_box_may_have(arena: Arena, attack: str) -> None:
    result = await arena.within(NEVER[attack])
    assert not result.worked, result.output


async def test_17_settings_of_the_whole_machine_are_changed(arena: Arena) -> None:
    """Root of the host owns them, and needs no capability: a program for core dumps runs outside of every box."""
    script = "test -w /proc/sys/kernel/core_pattern"
    assert (bare("sh", "-c", script).returncode == 0) == (os.geteuid() == 0)
    everything = await arena.within("find /proc /usr /etc /fleet -type f -writable -print -quit 2>/dev/null")
    assert everything.output == ""
    listed = await arena.within("cat /proc/sys/kernel/ostype /proc/self/comm")
    assert listed.output == "Linux\ncat\n"


async def test_17_devices_of_the_whole_machine_are_closed_to_others(arena: Arena) -> None:
    script = (
        'for name in null zero full random urandom tty; do chmod "$(stat -c %a /dev/$name)" /dev/$name || exit 1; done'
    )
    assert (bare("sh", "-c", script).returncode == 0) == (os.geteuid() == 0)
    assert not (await arena.within(script)).worked
    assert (await arena.within("echo x > /dev/null && head -c 1 /dev/zero > /dev/null")).worked


def test_17_the_filter_is_there_on_this_machine() -> None:
    """The calls themselves are result one by one in tests/worktrees/sandbox/test_seccomp.py."""
    assert platform.machine() in MACHINES


def in_a_terminal(how: str, script: str) -> int:
    helper = Path(__file__).with_name("terminal.py")
    env = {"PATH": f"{Path(sys.prefix, 'bin')}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, helper, how, script], env=env, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def test_18_what_the_manager_s_terminal_reads_is_typed_by_a_command() -> None:
    """The kernel may refuse it by a rule of its own (EIO), but not everywhere; in the box it is always the filter."""
    assert in_a_terminal("without", ": < /dev/tty") == 0
    assert in_a_terminal("within", ": < /dev/tty") != 0
    assert in_a_terminal("without", f"exec < /dev/tty; {TYPE}") in {0, errno.EIO}
    assert in_a_terminal("within", TYPE) == errno.EPERM
