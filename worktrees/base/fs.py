"""Files and folders: make them, measure them, print their names, and remove them whatever a tenant did in them."""

import os
from pathlib import Path

from worktrees.base.process import Finished, Launch, effect_error, run

WIPE_S = 600.0
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def wipe(path: Path) -> None:
    """Remove a tree that may be thousands of folders deep and closed to us. Links are removed, never followed."""
    complaint = ""
    for argv in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if not _exists(path):
            return
        complaint = (await _run(*argv, path)).stderr.decode("utf-8", "replace").strip()
    if _exists(path):
        raise effect_error(f"{path} can't be removed", complaint)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def remove_small(folder: Path, *, max_entries: int) -> bool:
    """Remove a folder in process; False where it is too large, too deep or closed, and only `wipe` can remove it."""
    remaining = max_entries

    def empty(path: str, depth: int) -> bool:
        nonlocal remaining
        os.chmod(path, 0o700)  # noqa: PTH101 - the kernel's own work folder is closed to its owner
        with os.scandir(path) as entries:
            for entry in entries:
                remaining -= 1
                if remaining < 0 or depth > max_entries:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)  # noqa: PTH108
                elif not empty(entry.path, depth + 1):
                    return False
        os.rmdir(path)  # noqa: PTH106
        return True

    try:
        return empty(os.fspath(folder), 0)
    except OSError:
        return False


async def size_of(path: Path) -> int:
    """Bytes on disk. What can't be read is not counted."""
    fields = (await _run("du", "-sk", path)).stdout.split(None, 1)
    return int(fields[0]) * 1024 if fields and fields[0].isdigit() else 0


async def _run(*argv: str | Path) -> Finished:
    *command, path = map(str, argv)
    env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    return await run(Launch((*command, "--", path), env, cwd=Path("/")), timeout_s=WIPE_S, cap=4096)


def make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def create_file(path: str, content: bytes, *, mode: int = 0o666, within: int | None = None) -> None:
    """A new file with this content, below the folder that is open as `within` where that is given."""
    with os.fdopen(os.open(path, NEW, mode, dir_fd=within), "wb") as file:
        file.write(content)


def as_text(path: str) -> str:
    """A name from a repository, as a journal can hold it: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def printable(path: str) -> str:
    """A name from a repository, safe to print: bytes that are not text, and control characters, are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in as_text(path))
