"""Worktrees that hold only some folders, for repositories too large to be checked out for each worker.

Which folders follows from the patterns of a subtask. Git is told by a sparse checkout in cone mode: files at the root,
the folders asked for with all below them, and the files beside the way there. Needed for worktrees of the pool; an
overlay shows everything for nothing.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from worktrees.change import folders_above

Cone = tuple[str, ...]
"""Folders. None of them is below another."""

WILD = re.compile(r"[*?\[]")
SPECIAL = re.compile(r"([\\*?\[\]])")
CONFIG: Final[Mapping[str, str]] = {
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.sparseCheckout",
    "GIT_CONFIG_VALUE_0": "true",
    "GIT_CONFIG_KEY_1": "core.sparseCheckoutCone",
    "GIT_CONFIG_VALUE_1": "true",
}
"""What git is told whenever it looks at files of a worktree that may be sparse: one that lies where it expects none is
then taken like any other."""


def cone_of(patterns: Iterable[str]) -> Cone | None:
    """The folders that hold whatever the patterns may match; None where that is everything, or nobody said."""
    folders = set()
    for pattern in patterns:
        parts = pattern.removeprefix("./").rstrip("/").split("/")
        fixed = next((at for at, part in enumerate(parts) if WILD.search(part)), len(parts) - 1)
        if fixed == 0 and WILD.search(parts[0]):
            return None
        folders.add("/".join(parts[: max(fixed, 1)]))
    return tuple(sorted(folder for folder in folders if not folders.intersection(folders_above(folder)))) or None


def tell(admin: Path, cone: Cone | None) -> None:
    """Leave word for git in its folder of a worktree: what belongs there from the next checkout on."""
    (admin / "info").mkdir(exist_ok=True)
    (admin / "info/sparse-checkout").write_text("".join(f"{rule}\n" for rule in _rules(cone)), encoding="utf-8")


def _rules(cone: Cone | None) -> Iterable[str]:
    yield "/*"
    if cone is None:
        return
    yield "!/*/"
    for above in sorted({above for folder in cone for above in folders_above(folder)}):
        yield f"/{_escaped(above)}/"
        yield f"!/{_escaped(above)}/*/"
    for folder in cone:
        yield f"/{_escaped(folder)}/"


def _escaped(path: str) -> str:
    return SPECIAL.sub(r"\\\1", path)
