"""Selects from the change set of an overlay what `git add --all` would take.

The same as asking git over the whole worktree, at the cost of what changed: what is ignored and was not tracked stays
out, and so does everything in the folder of a submodule. Git is asked only where a rule could match a
new path; most changes meet no rule, and asking costs a process.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.git.program import Git, fields
from worktrees.leases.union_view import OverlayChange, View

IGNORES, EXCLUDE = ".gitignore", "info/exclude"
LARGEST_IGNORES = 1024 * 1024  # bytes
CHECK_IGNORE_CODES = (0, 1)  # something is ignored, nothing is
MOST_TRIED = 200_000  # rules times names
MOST_STARS = 2  # in one pattern: with more, matching a hostile name takes too long
SIGNS = re.compile(rb"\[[a-z0-9]+\]|[ -Z^-~]")
"""The parts of a pattern that is read here. Ranges, escapes and letters beyond ASCII are left to git."""
WILDCARDS = {b"*": rb"[^\0]*", b"?": rb"[^\0]"}


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The files below an overlay: a commit, and the folders that hold exactly its files."""

    commit: Sha
    view: View
    gitlinks: frozenset[str] = frozenset()

    def is_tracked(self, path: str) -> bool:
        """Whether git has just this path."""
        return path in self.gitlinks or self.view.is_file(path)

    def tracked_under(self, path: str) -> Iterator[str]:
        """The paths that git has at a path or below it."""
        if self.is_tracked(path):
            yield path
        elif self.view.is_folder(path):
            yield from self.view.files(path)
            yield from (link for link in self.gitlinks if link.startswith(f"{path}/"))


@dataclass(frozen=True, slots=True)
class Selection:
    """The paths that differ from the files below, as git counts them."""

    removed: tuple[str, ...]
    present: tuple[OverlayChange, ...]


async def select(git: Git, base: BaseFiles, changes: Sequence[OverlayChange], upper: Path) -> Selection:
    """The part of an overlay's change set that `git add --all` would take."""
    removed, present, new = await to_thread.run_sync(_sort, base, changes)
    out = await ignored(git, View((upper, *base.view.layers)), new)
    selected = tuple(change for change in present if change.path not in out)
    replaced = {change.path for change in selected}
    return Selection(tuple(path for path in removed if path not in replaced), selected)


def _sort(base: BaseFiles, changes: Sequence[OverlayChange]) -> tuple[dict[str, None], list[OverlayChange], list[str]]:
    """The tracked paths that are removed or replaced, the files and links that are present, and which paths are new."""
    removed: dict[str, None] = {}
    present: list[OverlayChange] = []
    was_file = cache(base.view.is_file)
    for change in changes:
        folders = folders_above(change.path)
        is_inside = not base.gitlinks.isdisjoint(folders)
        if is_inside or (change.kind == "opaque" and change.path in base.gitlinks):
            continue
        removed |= dict.fromkeys(base.tracked_under(change.path))
        if change.kind in {"file", "link"}:
            present.append(change)
            removed |= dict.fromkeys(filter(was_file, folders))
    return removed, present, [change.path for change in present if not base.is_tracked(change.path)]


async def ignored(git: Git, view: View, paths: Sequence[str]) -> frozenset[str]:
    """The paths that the ignore files of a view keep out of git."""
    rules = await to_thread.run_sync(_rules, git, view, paths)
    if rules is None:
        return frozenset()
    with TemporaryDirectory(prefix="fleet-ignores-") as folder:
        await to_thread.run_sync(_copy, rules, Path(folder))
        # Each path begins with ./ : that command takes no literal paths, and a worker may call a file ":(top)"
        data = b"".join(os.fsencode(f"./{path}") + b"\0" for path in paths)
        query = ("check-ignore", "-z", "--stdin", "--no-index")
        env = {"GIT_LITERAL_PATHSPECS": "0"}
        answer = await Git(git.git_dir, Path(folder))(*query, env=env, data=data, also_ok=CHECK_IGNORE_CODES)
    return frozenset(path.removeprefix("./") for path in fields(answer))


def _rules(git: Git, view: View, paths: Sequence[str]) -> dict[str, Path] | None:
    """The ignore files that apply to `paths`, by their names in the view; None where none of their rules can match."""
    rules: dict[str, Path] = {}
    for folder in {above for path in paths for above in ("", *folders_above(path))}:
        name = f"{folder}/{IGNORES}" if folder else IGNORES
        entry = view.find(name)
        if entry is not None and entry[0].is_file() and not entry[0].is_symlink():
            rules[name] = entry[0]
    return rules if _may_ignore((*rules.values(), git.git_dir / EXCLUDE), paths) else None


def _copy(rules: Mapping[str, Path], to: Path) -> None:
    """The ignore files alone in an otherwise empty tree."""
    for name, file in rules.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source:
            (to / name).write_bytes(source.read(LARGEST_IGNORES))


def _may_ignore(files: Sequence[Path], paths: Sequence[str]) -> bool:
    rules: set[bytes] = set()
    for file in files:
        with suppress(FileNotFoundError), file.open("rb") as source:
            rules.update(source.read(LARGEST_IGNORES).splitlines())
    return may_match(rules, [os.fsencode(path) for path in paths])


def may_match(rules: Collection[bytes], paths: Collection[bytes]) -> bool:
    """Whether one of these lines of ignore files could match one of these paths, or a folder above it.

    Errs on one side only. The last part of a rule that matches is a pattern for the name of the file or folder; where
    it matches no name, nothing is ignored. Wherever that is not plain to see, the answer is yes.
    """
    names = {name.lower() for path in paths for name in path.split(b"/")}
    if len(rules) * len(names) > MOST_TRIED:
        return True
    expressions = {_expression(rule) for rule in rules if rule.strip() and not rule.startswith(b"#")}
    if None in expressions:
        return bool(names)
    any_of = b"|".join(filter(None, expressions))
    return bool(any_of) and re.search(rb"\0(?:%b)\0" % any_of, b"".join(b"\0%b\0" % name for name in names)) is not None


def _expression(rule: bytes) -> bytes | None:
    """A regular expression that matches whatever the last part of a rule does; None where only git can read it."""
    pattern = rule.removesuffix(b"\r").rstrip(b" ").removeprefix(b"!").rstrip(b"/").rpartition(b"/")[2].lower()
    signs = SIGNS.findall(pattern)
    if b"".join(signs) != pattern or signs.count(b"*") > MOST_STARS:
        return None
    return b"".join(WILDCARDS.get(sign, sign if sign.startswith(b"[") else re.escape(sign)) for sign in signs)
