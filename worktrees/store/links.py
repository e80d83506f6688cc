"""Fills a new store with the objects of the user's repository by hard links: a second, whatever its size.

Only what git gave the name of an object or a pack is linked, and only real files: a link in that folder could lead
anywhere. Where that is impossible (another drive, files of another owner, a pack that was just replaced), nothing is
linked, and the commits that a run needs are fetched.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
FOLDER = re.compile(r"[0-9a-f]{2}")
PACKED = re.compile(r"pack-[0-9a-f]{40,64}\.(?:bitmap|idx|keep|mtimes|pack|promisor|rev)")
ALTERNATES = Path("objects", "info", "alternates")


def link_objects(theirs: Path, ours: Path) -> None:
    """Link all objects from one git folder to another or none, and take over where history ends and what it borrows."""
    try:
        for source in _files(theirs / "objects"):
            to = ours / "objects" / source.parent.name / source.name
            to.parent.mkdir(exist_ok=True)
            os.link(source, to, follow_symlinks=False)
    except OSError:
        shutil.rmtree(ours / "objects")
        (ours / "objects").mkdir()
    for name, copy in (("shallow", _as_it_is), (str(ALTERNATES), _absolute)):
        with suppress(FileNotFoundError):
            lines = (theirs / name).read_bytes()
            (ours / name).parent.mkdir(exist_ok=True)
            (ours / name).write_bytes(copy(lines, theirs / "objects"))


def _files(objects: Path) -> Iterator[Path]:
    """Loose objects first: a git that packs them meanwhile makes the pack before it removes them."""
    folders = [path for path in objects.iterdir() if FOLDER.fullmatch(path.name) and path.is_dir()]
    for folder in folders:
        yield from (path for path in folder.iterdir() if LOOSE.fullmatch(path.name) and _is_file(path))
    yield from (path for path in (objects / "pack").iterdir() if PACKED.fullmatch(path.name) and _is_file(path))


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _as_it_is(lines: bytes, _: Path) -> bytes:
    return lines


def _absolute(lines: bytes, objects: Path) -> bytes:
    """Folders of borrowed objects: a relative one is meant from the folder that names it."""
    named = (os.fsdecode(line) for line in lines.splitlines() if line and not line.startswith(b"#"))
    return b"".join(os.fsencode(objects / name) + b"\n" for name in named)
