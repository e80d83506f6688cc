"""Tests whether leases can be overlays here by making one: it depends on the kernel, containers and file systems."""

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from worktrees.base.fs import make_folder
from worktrees.base.settings import LeaseKind, WorktreeSettings
from worktrees.changes.overlay_changes import OverlayChange, read_changes
from worktrees.git.object_format import EXECUTABLE, FILE, LINK
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.overlay_mount import Overlay

LIMIT_S = 60.0
BELOW = {"edited": "1\n", "gone": "1\n", "folder/old": "1\n", "moved/inner": "1\n", "kept/deep/file": "1\n", ".git": ""}
EDIT = """
echo 2 > edited && chmod +x edited && rm gone && rm -r folder && mkdir folder && echo 1 > folder/new && mv moved there \
&& ln -s edited link && echo 2 > kept/deep/other
"""
VERIFY = 'test "$(cat edited folder/new there/inner kept/deep/file)" = "$(printf "2\\n1\\n1\\n1")" && test ! -e gone'
CHANGES = (
    OverlayChange("edited", "file", EXECUTABLE),
    OverlayChange("folder", "opaque"),
    OverlayChange("folder/new", "file", FILE),
    OverlayChange("gone", "deleted"),
    OverlayChange("kept/deep/other", "file", FILE),
    OverlayChange("link", "link", LINK),
    OverlayChange("moved", "deleted"),
    OverlayChange("there/inner", "file", FILE),
)


@dataclass(frozen=True, slots=True)
class ChosenKind:
    """How worktrees are leased, and why."""

    kind: LeaseKind
    why: str


async def choose_kind(settings: WorktreeSettings, folder: Path) -> ChosenKind:
    """Overlays where they work in `folder`, unless the configuration says otherwise. Raises `FleetError`."""
    if settings.lease == "pool":
        return ChosenKind("pool", "as configured")
    problem = await _find_problem(settings, folder)
    if problem is None:
        return ChosenKind("overlay", "tested: changes are found, and the shared files stay as they are")
    if settings.lease == "overlay":
        raise FleetError(f"worktrees can't be overlays here: {problem}; set [worktrees] lease to auto or pool")
    return ChosenKind("pool", f"overlays don't work here: {problem}")


async def _find_problem(settings: WorktreeSettings, folder: Path) -> str | None:
    """Why overlays don't work in `folder`; None where they do."""
    if settings.sandbox == "none":
        return "they are mounted in the sandbox, which is switched off"
    try:
        make_folder(folder)
        with TemporaryDirectory(prefix="trial-", dir=folder, ignore_cleanup_errors=True) as home:
            limits = replace(settings.limits, free_bytes=0)  # a full disk says nothing about overlays
            return await _try_overlay(Box(replace(settings, limits=limits)), Path(home))
    except OSError as error:
        return str(error)
    except EffectError as error:
        return f"{error}: {error.failure.evidence.strip()}"


async def _try_overlay(box: Box, home: Path) -> str | None:
    for name, content in BELOW.items():
        make_folder((home / "below" / name).parent)
        (home / "below" / name).write_text(content, encoding="utf-8")
    overlay = Overlay(home, ("below",), "lease")
    overlay.make()
    make_folder(overlay.view)
    place = Place(overlay.view, home / "scratch", "trial", overlay)
    for script in (EDIT, VERIFY):
        done = await box.run(place, ("sh", "-c", script), timeout_s=LIMIT_S, cap=4096)
        if done.exit_code != 0:
            return f"a command failed in it: {done.text.strip()[-500:]}"
    if read_changes(overlay.upper) != CHANGES:
        return "its changes can't be read from outside"
    untouched = all((home / "below" / name).read_text(encoding="utf-8") == content for name, content in BELOW.items())
    return None if untouched else "it changes the files below it"
