"""Create, measure and remove files and folders, and print their names. A tenant may have changed them in any way."""

import os
from pathlib import Path

from worktrees.base.process import Finished, Launch, effect_error, run

WIPE_S = 600.0
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


async def wipe(path: Path) -> None:
    """Remove a tree, even if it is thousands of folders deep or has closed folders. Links are removed, not followed."""
    complaint = ""
    for argv in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if not _exists(path):
            return
        complaint = (await _run(*argv, path)).stderr.decode("utf-8", "replace").strip()
    if _exists(path):
        raise effect_error(f"can't remove {path}", complaint)


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def remove_small(folder: Path, *, max_entries: int) -> bool:
    """Remove a folder in process. Return False if it is too large, too deep or closed: then use `wipe`."""
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
    """Bytes on disk, without unreadable files."""
    fields = (await _run("du", "-sk", path)).stdout.split(None, 1)
    return int(fields[0]) * 1024 if fields and fields[0].isdigit() else 0


async def _run(*argv: str | Path) -> Finished:
    *command, path = map(str, argv)
    env = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    return await run(Launch((*command, "--", path), env, cwd=Path("/")), timeout_s=WIPE_S, cap=4096)


def make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def create_file(path: str, content: bytes, *, mode: int = 0o666, within: int | None = None) -> None:
    """Create a file with this content, relative to the open folder `within` if given."""
    with os.fdopen(os.open(path, NEW, mode, dir_fd=within), "wb") as file:
        file.write(content)


def as_text(path: str) -> str:
    """Escape the bytes of a name that are not UTF-8, so that a journal can hold it."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def printable(path: str) -> str:
    """Escape control characters and bytes that are not text, so that a name is safe to print."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in as_text(path))
