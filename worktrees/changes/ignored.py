"""From the change set of an overlay to one of git's: which of it `git add --all` would take.

The same as asking git over the whole worktree, at the price of what changed: what is ignored and was not known stays
out, what lies in the folder of a submodule is not ours to see.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.ids import Sha
from worktrees.git import Git, fields
from worktrees.ignores import may_match
from worktrees.upper import Entry
from worktrees.view import View

IGNORES, EXCLUDE = ".gitignore", "info/exclude"
LARGEST_IGNORES = 1024 * 1024  # bytes
ANSWERS = (0, 1)  # of check-ignore: something is ignored, nothing is


@dataclass(frozen=True, slots=True)
class Below:
    """What an overlay stands on: a commit, and the folders that hold exactly its files."""

    commit: Sha
    view: View
    gitlinks: frozenset[str] = frozenset()

    def in_gitlink(self, path: str) -> bool:
        return any(above in self.gitlinks for above in folders_above(path))

    def knows(self, path: str) -> bool:
        """Whether git has just this path."""
        return path in self.gitlinks or self.view.is_file(path)

    def under(self, path: str) -> Iterator[str]:
        """The paths that git knows at a path or below it."""
        if self.knows(path):
            yield path
        elif self.view.is_folder(path):
            yield from self.view.files(path)
            yield from (link for link in self.gitlinks if link.startswith(f"{path}/"))


@dataclass(frozen=True, slots=True)
class Selected:
    """What differs from the layers below, as git counts: paths gone, and paths there."""

    gone: tuple[str, ...]
    there: tuple[Entry, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.gone, *(entry.path for entry in self.there))


@dataclass(frozen=True, slots=True)
class Survey:
    """What differs from the layers below, before git is asked which of it is ignored."""

    gone: tuple[str, ...]
    there: tuple[Entry, ...]
    new: tuple[str, ...]
    rules: Mapping[str, Path] | None
    """The ignore files that may mean something new; none where git need not be asked."""


def survey(git: Git, below: Below, entries: Sequence[Entry], upper: Path) -> Survey:
    """Of the change set of an overlay. Blocks."""
    gone, there = _sorted_out(below, entries)
    new = tuple(entry.path for entry in there if not below.knows(entry.path))
    return Survey(tuple(gone), tuple(there), new, _rules(git, View((upper, *below.view.layers)), new))


async def select(git: Git, surveyed: Survey) -> Selected:
    """What `git add --all` would take."""
    out = await _ignored(git, surveyed.rules, surveyed.new) if surveyed.rules is not None else frozenset()
    kept = tuple(entry for entry in surveyed.there if entry.path not in out)
    back = {entry.path for entry in kept}
    return Selected(tuple(path for path in surveyed.gone if path not in back), kept)


async def ignored(git: Git, view: View, paths: Sequence[str]) -> frozenset[str]:
    """Those of `paths` that the ignore files of a view keep out of git."""
    rules = await to_thread.run_sync(_rules, git, view, paths)
    return await _ignored(git, rules, paths) if rules is not None else frozenset()


def _rules(git: Git, view: View, paths: Sequence[str]) -> dict[str, Path] | None:
    """The ignore files that have a say about `paths`, where git has to be asked what they say."""
    rules = _ignores(view, paths) if paths else {}
    return rules if paths and _may_ignore((*rules.values(), git.git_dir / EXCLUDE), paths) else None


async def _ignored(git: Git, rules: Mapping[str, Path], paths: Sequence[str]) -> frozenset[str]:
    with TemporaryDirectory(prefix="fleet-ignores-") as folder:
        await to_thread.run_sync(_copy, rules, Path(folder))
        at = Git(git.git_dir, Path(folder))
        # Each path begins with ./ : that command takes no literal paths, and a worker may call a file ":(top)"
        asked = _listed([f"./{path}" for path in paths])
        env = {"GIT_LITERAL_PATHSPECS": "0"}
        answer = await at("check-ignore", "-z", "--stdin", "--no-index", env=env, data=asked, also_ok=ANSWERS)
    return frozenset(path.removeprefix("./") for path in fields(answer))


def _listed(paths: Sequence[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _sorted_out(below: Below, entries: Sequence[Entry]) -> tuple[list[str], list[Entry]]:
    gone: dict[str, None] = {}
    there: list[Entry] = []
    looked: set[str] = set()
    for entry in entries:
        if below.in_gitlink(entry.path) or (entry.kind == "opaque" and entry.path in below.gitlinks):
            continue
        gone |= dict.fromkeys(below.under(entry.path))
        if entry.kind in {"file", "link"}:
            there.append(entry)
            for above in folders_above(entry.path):
                if above not in looked:
                    looked.add(above)
                    if below.view.is_file(above):
                        gone[above] = None
    return list(gone), there


def _ignores(view: View, paths: Sequence[str]) -> dict[str, Path]:
    """The ignore files that have a say about `paths`, and where they lie."""
    rules: dict[str, Path] = {}
    for folder in {"", *(above for path in paths for above in folders_above(path))}:
        name = f"{folder}/{IGNORES}" if folder else IGNORES
        found = view.find(name)
        if found is not None and found[0].is_file() and not found[0].is_symlink():
            rules[name] = found[0]
    return rules


def _may_ignore(files: Sequence[Path], paths: Sequence[str]) -> bool:
    """Whether git has to be asked what the rules in these files say of `paths`: most changes meet none of them."""
    patterns: set[bytes] = set()
    for file in files:
        with suppress(FileNotFoundError), file.open("rb") as rules:
            patterns.update(rules.read(LARGEST_IGNORES).splitlines())
    return may_match(patterns, [os.fsencode(path) for path in paths])


def _copy(rules: Mapping[str, Path], to: Path) -> None:
    """The ignore files alone in an otherwise empty tree."""
    for name, lies in rules.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        with lies.open("rb") as source:
            (to / name).write_bytes(source.read(LARGEST_IGNORES))


def folders_above(path: str) -> Collection[str]:
    """`a/b/c` lies in `a` and `a/b`."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
