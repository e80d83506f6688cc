"""Whether leases can be overlays here, found out by making one: kernels, containers and file systems all have a say."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.ports import Broken, FleetError
from worktrees.box import Box, Place
from worktrees.mount import Overlay
from worktrees.settings import HandSettings, LeaseKind
from worktrees.upper import EXECUTABLE, FILE, LINK, Entry, changes
from worktrees.wipe import make_folder

LIMIT_S = 60.0
BELOW = {"edited": "1\n", "gone": "1\n", "folder/old": "1\n", "moved/inner": "1\n", "kept/deep/file": "1\n", ".git": ""}
EDIT = """
echo 2 > edited && chmod +x edited && rm gone && rm -r folder && mkdir folder && echo 1 > folder/new && mv moved there \
&& ln -s edited link && echo 2 > kept/deep/other
"""
LOOK = 'test "$(cat edited folder/new there/inner kept/deep/file)" = "$(printf "2\\n1\\n1\\n1")" && test ! -e gone'
FOUND = (
    Entry("edited", "file", EXECUTABLE),
    Entry("folder", "opaque"),
    Entry("folder/new", "file", FILE),
    Entry("gone", "deleted"),
    Entry("kept/deep/other", "file", FILE),
    Entry("link", "link", LINK),
    Entry("moved", "deleted"),
    Entry("there/inner", "file", FILE),
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """How worktrees are leased, and why so."""

    kind: LeaseKind
    why: str


async def choose(settings: HandSettings, folder: Path) -> Chosen:
    """Overlays where they work in `folder`, unless the configuration says otherwise. Raises `FleetError`."""
    if settings.lease == "pool":
        return Chosen("pool", "as configured")
    problem = await _problem(settings, folder)
    if problem is None:
        return Chosen("overlay", "tried: changes are seen, nothing below is touched")
    if settings.lease == "overlay":
        raise FleetError(f"worktrees can't be overlays here: {problem}; set [worktrees] lease to auto or pool")
    return Chosen("pool", f"overlays don't work here: {problem}")


async def _problem(settings: HandSettings, folder: Path) -> str | None:
    """Why an overlay in `folder` does not do; None where it does."""
    if settings.sandbox == "none":
        return "they are mounted in the sandbox, and there is none"
    try:
        make_folder(folder)
        with TemporaryDirectory(prefix="trial-", dir=folder, ignore_cleanup_errors=True) as home:
            return await _try(Box(settings), Path(home))
    except OSError as error:
        return str(error)
    except Broken as broken:
        return f"{broken}: {broken.failure.evidence.strip()}"


async def _try(box: Box, home: Path) -> str | None:
    for name, content in BELOW.items():
        make_folder((home / "below" / name).parent)
        (home / "below" / name).write_text(content, encoding="utf-8")
    overlay = Overlay(home, ("below",), "seat")
    overlay.make()
    make_folder(overlay.view)
    place = Place(overlay.view, home / "scratch", "trial", overlay)
    for script in (EDIT, LOOK):
        done = await box.run(place, ("sh", "-c", script), timeout_s=LIMIT_S, cap=4096)
        if done.exit_code != 0:
            return f"a command failed in it: {done.stdout.decode('utf-8', 'replace').strip()[-500:]}"
    if changes(overlay.upper) != FOUND:
        return "its changes can't be read from outside"
    untouched = all((home / "below" / name).read_text(encoding="utf-8") == content for name, content in BELOW.items())
    return None if untouched else "it writes through to what lies below"
