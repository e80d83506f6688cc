"""Making one file of many: plain names and bare descriptors, because a lease makes dozens of them."""

import os

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(at: str, content: bytes, *, mode: int = 0o666, within: int | None = None) -> None:
    """A new file with this content, below the folder that is open as `within` where that is given."""
    fd = os.open(at, NEW, mode, dir_fd=within)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    finally:
        os.close(fd)
