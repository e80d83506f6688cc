"""Shows that the box holds, on this machine, before anyone relies on it: for `fleet doctor`."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.ports import Broken, FleetError
from worktrees.box import Box, Place, require
from worktrees.desk import exit_code
from worktrees.forks import forks
from worktrees.marks import this_manager
from worktrees.seccomp import filter_program
from worktrees.settings import HandSettings

LIMIT_S = 20.0
STATUS = "/proc/self/status"
SETTINGS = "find /proc/sys -type f -writable -print -quit | grep -q ."
SHARED = (
    'for own in $(readlink /proc/self/ns/*); do for ours in $1; do [ "$own" != "$ours" ] || exit 0; done; done; exit 1'
)
OWN = ("user", "pid", "ipc", "uts", "mnt")
DEVICES = 'chmod "$(stat -c %a /dev/null)" /dev/null'
CANARY = "fleet-canary-7c1f"
CONNECT = 'exec 3<>"/dev/tcp/127.0.0.1/$1"'


async def prove(settings: HandSettings) -> tuple[str, ...]:
    """What is wrong with the box here; nothing where a command runs in it and no escape succeeds."""
    if settings.sandbox == "none":
        return ("there is no sandbox: commands of workers run as you, with your files and your network",)
    try:
        require(settings)
        with _scene() as (place, canary, port), forks(this_manager()) as starter:
            return await _problems(Box(settings, starter=starter), place, canary, port)
    except Broken as broken:
        return (f"{broken}: {broken.failure.evidence}".strip(": \n"),)
    except FleetError as error:
        return (str(error),)


async def _problems(box: Box, place: Place, canary: Path, port: int) -> tuple[str, ...]:
    """Each escape is a script; its exit code says whether it worked."""
    escapes = {
        "a command can read files outside its worktree": ('cat "$1"', str(canary)),
        "a command can write outside its worktree": ('echo gone > "$1"', str(canary)),
        "a command can see other folders of the state": ('ls "$1"', str(canary.parent)),
        "a command can change the system": ("touch /usr/fleet-was-here", ""),
        "a command can change the settings of the machine": (SETTINGS, ""),
        "a command can close the devices of the machine": (DEVICES, ""),
        "a command can make namespaces of its own": ("unshare --user true || unshare --user --map-root-user true", ""),
        "a command shares a namespace with the machine": (SHARED, " ".join(map(_namespace, OWN))),
        "a command can fill the memory of the machine": ("echo x > /dev/fleet-was-here", ""),
    }
    if box.settings.syscall_filter and filter_program() is not None:
        escapes["a command runs without the filter of system calls"] = (
            "! grep -qx 'Seccomp:[[:space:]]*2' \"$1\"",
            STATUS,
        )
    if not box.settings.network:
        escapes["a command can reach the network"] = (CONNECT, str(port))
    works = await box.run(place, ("true",), timeout_s=LIMIT_S, cap=4096)
    if exit_code(works) != 0:
        return (f"a command can't run in the sandbox: {works.stdout.decode('utf-8', 'replace').strip()}",)
    found: list[str] = []
    for problem, (script, argument) in escapes.items():
        done = await box.run(place, (*box.shell(script), "sh", argument), timeout_s=LIMIT_S, cap=4096)
        if exit_code(done) == 0:
            found.append(problem)
    return tuple(found)


def _namespace(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


@contextmanager
def _scene() -> Iterator[tuple[Place, Path, int]]:
    """A worktree, a file beside it that nobody may see, and a listener that nobody may reach."""
    with TemporaryDirectory(prefix="fleet-proof-") as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        tree, canary = Path(folder, "tree"), Path(folder, "outside", "canary")
        tree.mkdir()
        canary.parent.mkdir()
        canary.write_text(CANARY, encoding="utf-8")
        yield Place(tree, Path(folder, "scratch"), "proof"), canary, listener.getsockname()[1]
