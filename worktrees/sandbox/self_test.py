"""Tests that the box is effective on this machine, for `fleet doctor`."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.sandbox.box import Box, Place, require_bubblewrap
from worktrees.sandbox.launcher import Launcher
from worktrees.sandbox.seccomp import filter_program

LIMIT_S = 20.0
STATUS = "/proc/self/status"
SETTINGS = "find /proc/sys -type f -writable -print -quit | grep -q ."
SHARED = (
    'for mine in $(readlink /proc/self/ns/*); do for machine in $1; do [ "$mine" != "$machine" ] || exit 0; done; done;'
    " exit 1"
)
NAMESPACES = ("user", "pid", "ipc", "uts", "mnt")
DEVICES = 'chmod "$(stat -c %a /dev/null)" /dev/null'
CANARY = "fleet-canary-7c1f"
CONNECT = 'exec 3<>"/dev/tcp/127.0.0.1/$1"'


async def find_sandbox_problems(settings: WorktreeSettings) -> tuple[str, ...]:
    """Return the problems of the box on this machine. Empty if a command runs in it and no escape succeeds."""
    if settings.box.sandbox == "none":
        return ("the sandbox is disabled. Commands of workers run as you, with your files and your network",)
    try:
        require_bubblewrap(settings)
        with _scene() as (place, canary, port), closing(Launcher()) as launcher:
            return await _problems(Box(settings, starter=launcher), place, canary, port)
    except EffectError as error:
        return (f"{error}: {error.failure.evidence}".strip(": \n"),)
    except FleetError as error:
        return (str(error),)


async def _problems(box: Box, place: Place, canary: Path, port: int) -> tuple[str, ...]:
    """Each escape is a script. Exit code 0 means that it succeeded."""
    escapes = {
        "a command can read files outside its worktree": ('cat "$1"', str(canary)),
        "a command can write outside its worktree": ('echo gone > "$1"', str(canary)),
        "a command can see other folders in the state directory": ('ls "$1"', str(canary.parent)),
        "a command can change the system": ("touch /usr/fleet-was-here", ""),
        "a command can change the settings of the machine": (SETTINGS, ""),
        "a command can close the devices of the machine": (DEVICES, ""),
        "a command can create namespaces": ("unshare --user true || unshare --user --map-root-user true", ""),
        "a command shares a namespace with the machine": (SHARED, " ".join(map(_namespace, NAMESPACES))),
        "a command can fill the memory of the machine": ("echo x > /dev/fleet-was-here", ""),
    }
    if box.settings.box.syscall_filter and filter_program() is not None:
        escapes["a command runs without the system call filter"] = (
            "! grep -qx 'Seccomp:[[:space:]]*2' \"$1\"",
            STATUS,
        )
    if not box.settings.box.network:
        escapes["a command can reach the network"] = (CONNECT, str(port))
    works = await box.run(place, ("true",), timeout_s=LIMIT_S, cap=4096)
    if works.shell_code != 0:
        return (f"a command can't run in the sandbox: {works.text.strip()}",)
    problems: list[str] = []
    for problem, (script, argument) in escapes.items():
        done = await box.run(place, (*box.shell(script), "sh", argument), timeout_s=LIMIT_S, cap=4096)
        if done.shell_code == 0:
            problems.append(problem)
    return tuple(problems)


def _namespace(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


@contextmanager
def _scene() -> Iterator[tuple[Place, Path, int]]:
    """Create a worktree, a file beside it that must stay hidden, and a listener that must stay unreachable."""
    with TemporaryDirectory(prefix="fleet-proof-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        tree, canary = Path(folder, "tree"), Path(folder, "outside", "canary")
        tree.mkdir()
        canary.parent.mkdir()
        canary.write_text(CANARY, encoding="utf-8")
        yield Place(tree, Path(folder, "scratch"), "proof"), canary, listener.getsockname()[1]
