"""Making and removing folders, whatever a tenant did in them."""

import os
from pathlib import Path

from fleet.core.facts import Failure
from fleet.ports import Broken
from worktrees.process import Launch, run

WIPE_S = 600.0


async def wipe(path: Path) -> None:
    """Remove a tree that may be thousands deep and closed to us. Links are removed, never followed."""
    if not _exists(path):
        return
    remove, unlock = ("rm", "-rf", "--", str(path)), ("chmod", "-R", "u+rwx", "--", str(path))
    said = b""
    for argv in (remove, unlock, remove):
        env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        said = (await run(Launch(argv, env, cwd=Path("/")), timeout_s=WIPE_S, cap=4096)).stderr
        if not _exists(path):
            return
    why = said.decode("utf-8", "replace").strip()
    raise Broken(Failure(kind="infrastructure", summary=f"{path} can't be removed", evidence=why))


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


async def size_of(path: Path) -> int:
    """Bytes on disk; what can't be looked at counts nothing."""
    env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    done = await run(Launch(("du", "-sk", "--", str(path)), env, cwd=Path("/")), timeout_s=WIPE_S, cap=4096)
    said = done.stdout.split(None, 1)
    return int(said[0]) * 1024 if said and said[0].isdigit() else 0
