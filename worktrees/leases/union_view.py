"""Stacked folders, read as an overlay shows them, without a mount.

An upper folder hides entries below it: with a file of the same name, with a whiteout (the character device 0:0) in
place of a removed name, or with a folder marked opaque, which hides everything below.
"""

import errno
import os
import posixpath
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.base.fs import printable
from worktrees.git.object_format import ABSENT, EXECUTABLE, FILE, LINK
from worktrees.git.program import Git, fields

OPAQUE = "user.overlay.opaque"
NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
MOST_STEPS = 200  # names on the path to a link's destination; a longer path is treated as hostile


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:  # no such attribute, or a file system without any
        return False


@dataclass(frozen=True, slots=True)
class TreeView:
    """Several folders as one. The first is the uppermost."""

    layers: tuple[Path, ...]

    def find(self, path: str) -> tuple[Path, os.stat_result] | None:
        """Return the visible file or folder at a path and its status, or None."""
        for layer in self.layers:
            status, hides = _look(layer, path)
            if status is not None:
                return layer / path, status
            if hides:
                return None
        return None

    def is_file(self, path: str) -> bool:
        """Whether the path is a file, a link or anything else except a folder."""
        entry = self.find(path)
        return entry is not None and not stat.S_ISDIR(entry[1].st_mode)

    def is_folder(self, path: str) -> bool:
        entry = self.find(path)
        return entry is not None and stat.S_ISDIR(entry[1].st_mode)

    def files(self, folder: str) -> Iterator[str]:
        """All entries below a folder except folders, unsorted."""
        pending = [folder]
        while pending:
            parent = pending.pop()
            for name in self._names(parent):
                path = f"{parent}/{name}" if parent else name
                if self.is_folder(path):
                    pending.append(path)
                else:
                    yield path

    def leads_out(self, link: str) -> bool:
        """Whether a link is absolute or leaves the view, as written or after the folders on its path are resolved."""
        folder, goal = posixpath.dirname(link), self._goal(link) or ""
        if goal.startswith("/") or posixpath.normpath(posixpath.join(folder, goal)).split("/", 1)[0] == "..":
            return True
        position, ahead = [part for part in folder.split("/") if part], goal.split("/")
        for _ in range(MOST_STEPS):
            if not ahead:
                return False
            name = ahead.pop(0)
            if name == "..":
                if not position:
                    return True
                position.pop()
            elif name not in {"", "."}:
                inner = self._goal("/".join((*position, name)))
                if inner is None:
                    position.append(name)
                elif inner.startswith("/"):
                    return True
                else:
                    ahead = [*inner.split("/"), *ahead]
        return True

    def _goal(self, path: str) -> str | None:
        """Return the destination of a link, or None if the path is not a link."""
        entry = self.find(path)
        return str(entry[0].readlink()) if entry is not None and stat.S_ISLNK(entry[1].st_mode) else None

    def _names(self, folder: str) -> list[str]:
        names: dict[str, bool] = {}
        for layer in self.layers:
            status, hides = _look(layer, folder)
            if status is not None and not stat.S_ISDIR(status.st_mode):
                break
            if status is not None:
                with os.scandir(layer / folder) as entries:
                    for entry in entries:
                        names.setdefault(entry.name, not is_whiteout(entry.stat(follow_symlinks=False)))
                hides = is_opaque(os.fspath(layer / folder))
            if hides:
                break
        return [name for name, is_visible in names.items() if is_visible]


def _look(layer: Path, path: str) -> tuple[os.stat_result | None, bool]:
    """Return the status of a path in one layer. If it has none, return whether the layer hides lower ones."""
    full, opaque, status = os.fspath(layer), False, None
    parts = path.split("/")
    for number, part in enumerate(parts, start=1):
        full = f"{full}/{part}"
        try:
            status = os.lstat(full)
        except OSError as error:
            if error.errno not in NOT_FOUND:
                raise
            return None, opaque
        if is_whiteout(status):
            return None, True
        if number < len(parts):
            if not stat.S_ISDIR(status.st_mode):
                return None, True
            opaque = opaque or is_opaque(full)
    return status, False


# ---- overlay changes -------------------------------------------------------------------------------------------------
# The change set of an overlay, read from its upper folder.
#
# The cost depends on the changes, not on the size of the repository. Called when the folder is not mounted any more and
# the scan has opened closed folders. The lower layers are not read, so new and changed files look the same here.


Kind = Literal["file", "link", "deleted", "opaque"]


@dataclass(frozen=True, slots=True, order=True)
class OverlayChange:
    """A change to a path.

    `deleted`: a file, or a folder with its content. `opaque`: a folder that replaces everything at its path. Its
    content has separate entries. Other folders are not listed: git tracks only files.
    """

    path: str
    kind: Kind
    mode: str = ABSENT
    """The mode that git uses."""


def read_changes(upper: Path) -> tuple[OverlayChange, ...]:
    """Read the changes by path, without special files, which the scan rejects."""
    changes: list[OverlayChange] = []
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(upper / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                    if is_opaque(entry.path):
                        changes.append(OverlayChange(path, "opaque"))
                elif is_whiteout(status):
                    changes.append(OverlayChange(path, "deleted"))
                elif stat.S_ISLNK(status.st_mode):
                    changes.append(OverlayChange(path, "link", LINK))
                elif stat.S_ISREG(status.st_mode):
                    mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else FILE
                    changes.append(OverlayChange(path, "file", mode))
    return tuple(sorted(changes))


# ---- ignored ---------------------------------------------------------------------------------------------------------
# Selects from the change set of an overlay the paths that `git add --all` would take.
#
# The result equals that of git over the full worktree, at the cost of the changes: ignored and untracked paths stay
# out, and so does everything in the folder of a submodule. Git runs only if a rule could match a new path. Most changes
# match no rule, and running git costs a process.


IGNORES, EXCLUDE = ".gitignore", "info/exclude"
LARGEST_IGNORES = 1024 * 1024  # bytes
CHECK_IGNORE_CODES = (0, 1)  # something is ignored, nothing is
MOST_TRIED = 200_000  # rules times names
MOST_STARS = 2  # in one pattern: with more, matching a hostile name takes too long
SIGNS = re.compile(rb"\[[a-z0-9]+\]|[ -Z^-~]")
"""The parts of a pattern supported here. Ranges, escapes and non-ASCII letters are left to git."""
WILDCARDS = {b"*": rb"[^\0]*", b"?": rb"[^\0]"}


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The files below an overlay: a commit, and the folders with exactly its files."""

    commit: Sha
    view: TreeView
    gitlinks: frozenset[str] = frozenset()

    def is_tracked(self, path: str) -> bool:
        """Whether git tracks exactly this path."""
        return path in self.gitlinks or self.view.is_file(path)

    def tracked_under(self, path: str) -> Iterator[str]:
        """Return the tracked paths at a path or below it."""
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
    """Select the part of an overlay's change set that `git add --all` would take."""
    removed, present, new = await to_thread.run_sync(_sort, base, changes)
    out = await ignored(git, TreeView((upper, *base.view.layers)), new)
    selected = tuple(change for change in present if change.path not in out)
    replaced = {change.path for change in selected}
    return Selection(tuple(path for path in removed if path not in replaced), selected)


def _sort(base: BaseFiles, changes: Sequence[OverlayChange]) -> tuple[dict[str, None], list[OverlayChange], list[str]]:
    """Return the tracked paths that are removed or replaced, the existing files and links, and the new paths."""
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


async def ignored(git: Git, view: TreeView, paths: Sequence[str]) -> frozenset[str]:
    """Return the paths that the ignore files of a view exclude."""
    rules = await to_thread.run_sync(_rules, git, view, paths)
    if rules is None:
        return frozenset()
    with TemporaryDirectory(prefix="fleet-ignores-") as folder:
        await to_thread.run_sync(_copy, rules, Path(folder))
        # Each path starts with ./ : that command does not support literal paths, and a worker may name a file ":(top)"
        data = b"".join(os.fsencode(f"./{path}") + b"\0" for path in paths)
        query = ("check-ignore", "-z", "--stdin", "--no-index")
        env = {"GIT_LITERAL_PATHSPECS": "0"}
        answer = await Git(git.git_dir, Path(folder))(*query, env=env, data=data, also_ok=CHECK_IGNORE_CODES)
    return frozenset(path.removeprefix("./") for path in fields(answer))


def _rules(git: Git, view: TreeView, paths: Sequence[str]) -> dict[str, Path] | None:
    """Return the ignore files that apply to `paths`, by their names in the view, or None if no rule can match."""
    rules: dict[str, Path] = {}
    for folder in {above for path in paths for above in ("", *folders_above(path))}:
        name = f"{folder}/{IGNORES}" if folder else IGNORES
        entry = view.find(name)
        if entry is not None and entry[0].is_file() and not entry[0].is_symlink():
            rules[name] = entry[0]
    return rules if _may_ignore((*rules.values(), git.git_dir / EXCLUDE), paths) else None


def _copy(rules: Mapping[str, Path], to: Path) -> None:
    """Copy only the ignore files into an empty tree."""
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
    """Whether a line of these ignore files could match one of these paths, or a folder above it.

    Errors are only false positives. The last part of a matching rule is a pattern for the name of the file or folder.
    If it does not match any name, the paths are not ignored. In unclear cases the answer is True.
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
    """Return a regular expression for the last part of a rule, or None if only git can interpret it."""
    pattern = rule.removesuffix(b"\r").rstrip(b" ").removeprefix(b"!").rstrip(b"/").rpartition(b"/")[2].lower()
    signs = SIGNS.findall(pattern)
    if b"".join(signs) != pattern or signs.count(b"*") > MOST_STARS:
        return None
    return b"".join(WILDCARDS.get(sign, sign if sign.startswith(b"[") else re.escape(sign)) for sign in signs)


# ---- scan ------------------------------------------------------------------------------------------------------------
# Checks a worktree before git reads it, and a change before it is committed. All of it is hostile input.
#
# A `.git` below the root makes git run programs chosen by the worker (`core.fsmonitor`, `filter.clean`), so it must be
# found without git. Called when all processes in the box have ended, so the result stays valid.


MAX_DEPTH = 100
SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
PLAIN = stat.S_IFREG | stat.S_IRUSR | stat.S_IWUSR
CHECKED_BITS = stat.S_IFMT(0o177777) | SPECIAL_BITS | PLAIN
IGNORED_BY_HFS = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
SECRETS = {
    "a private key": re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\n|\r?\n\+?)[ \"']*[A-Za-z0-9+/=]{16}"),
    "an AWS access key": re.compile(rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})"),
    "a GitLab token": re.compile(rb"\bglpat-[A-Za-z0-9_-]{20}"),
    "an Anthropic key": re.compile(rb"\bsk-ant-[A-Za-z0-9_-]{24}"),
    "an OpenAI key": re.compile(rb"\bsk-proj-[A-Za-z0-9_-]{24}"),
    "a Slack token": re.compile(rb"\bxox[abprs]-[A-Za-z0-9-]{20}"),
    "a Google key": re.compile(rb"\bAIza[0-9A-Za-z_-]{35}\b"),
}
HINTS = b"PRIVATE AKIA ASIA ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- sk-ant- sk-proj- xox AIza".split()
"""Every secret contains one of these."""


@dataclass(frozen=True, slots=True)
class ViewFinding:
    """A path, and the rule it breaks."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.rule}"


def is_git_name(name: str) -> bool:
    """Whether some file system or git version treats this name as `.git`."""
    folded = name.translate(IGNORED_BY_HFS).split(":", 1)[0].casefold().rstrip(". ")
    return folded == ".git" or re.fullmatch(r"git~\d+", folded) is not None


def scan_tree(root: Path, *, max_files: int, whiteouts: bool = False) -> tuple[ViewFinding, ...]:
    """Return the entries of a worktree that are unsafe for git. Opens closed folders and files, and drops setuid bits.

    Use `whiteouts` for the upper folder of an overlay, in which they mark removed paths.
    """
    findings: list[ViewFinding] = []
    remaining, pending = max_files, [("", 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > MAX_DEPTH:
            return (*findings, ViewFinding(folder, f"is more than {MAX_DEPTH} folders deep"))
        try:
            entries = _open_folder(root, folder)
        except OSError as error:
            findings.append(ViewFinding(folder, f"can't be inspected: {error.strerror}"))
            continue
        remaining -= len(entries)
        if remaining < 0:
            return (*findings, ViewFinding(folder or ".", f"contains more than {max_files} files"))
        for entry in entries:
            if _is_plain(entry):
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            rule = _broken_rule(entry, path, whiteouts=whiteouts)
            if rule is not None:
                findings.append(ViewFinding(path, rule))
            elif entry.is_dir(follow_symlinks=False):
                pending.append((path, depth + 1))
    return tuple(findings)


def _open_folder(root: Path, folder: str) -> list[os.DirEntry[str]]:
    """List a folder, and make it readable if it was closed."""
    path = f"{root}/{folder}"
    if folder:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(path).chmod(mode | stat.S_IRWXU)
    with os.scandir(path) as entries:
        return list(entries)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a regular file with a regular name, like most: the fast path."""
    if not entry.name.isascii() or "git" in entry.name.lower():
        return False
    try:
        return entry.stat(follow_symlinks=False).st_mode & CHECKED_BITS == PLAIN
    except OSError:
        return False


def _broken_rule(entry: os.DirEntry[str], path: str, *, whiteouts: bool) -> str | None:
    """Return why an entry is rejected. Corrects the mode of an accepted entry."""
    if is_git_name(entry.name):
        is_pointer = path == ".git" and entry.is_file(follow_symlinks=False)
        return None if is_pointer else "only git may use this name"
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            mode = stat.S_IMODE(status.st_mode)
            wanted = (mode & ~SPECIAL_BITS) | stat.S_IRUSR | stat.S_IWUSR
            if mode != wanted:  # also keeps its change time, which identifies setup files
                Path(entry.path).chmod(wanted)
            return None
    except OSError as error:
        return f"can't be inspected: {error.strerror}"
    is_allowed = stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode) or (whiteouts and is_whiteout(status))
    return None if is_allowed else "is neither a file, a folder nor a link"


def scan_changed(view: TreeView, paths: Sequence[str], *, max_file_bytes: int) -> tuple[ViewFinding, ...]:
    """Return the changed paths that may not be committed. Removed paths are always allowed."""
    return tuple(finding for path in paths for finding in _changed_problems(view, path, max_file_bytes))


def _changed_problems(view: TreeView, path: str, max_file_bytes: int) -> Iterator[ViewFinding]:
    if path.endswith("/"):
        yield ViewFinding(path, "is a nested git repository")
        return
    entry = view.find(path)
    if entry is None:
        return
    if not path.isprintable() or os.fsencode(path).decode("utf-8", "replace") != path:
        yield ViewFinding(path, "has control characters or invalid UTF-8 in its name")
        return
    status = entry[1]
    if stat.S_ISLNK(status.st_mode):
        if view.leads_out(path):
            yield ViewFinding(path, "is a link that leaves the repository")
    elif stat.S_ISREG(status.st_mode) and status.st_size > max_file_bytes:
        yield ViewFinding(path, f"has {status.st_size} bytes, and the limit is {max_file_bytes}")


def may_hold_secret(content: bytes) -> bool:
    """Whether a patch with this content must be searched for secrets."""
    return any(hint in content for hint in HINTS)


def secrets_in(patch: bytes) -> tuple[ViewFinding, ...]:
    """Find keys and tokens in the added lines of a patch, by file. Never returns the secret."""
    findings: dict[ViewFinding, None] = {}
    for part in re.split(rb"(?m)^diff --git ", patch)[1:]:
        named = re.search(rb"(?m)^\+\+\+ (?:\"?b/)?([^\"\n]*)", part)
        path = os.fsdecode(named.group(1)) if named else "?"
        added = b"\n".join(line for line in part.split(b"\n") if line.startswith(b"+"))
        for name, pattern in SECRETS.items():
            if pattern.search(added):
                findings[ViewFinding(path, f"seems to contain {name}")] = None
    return tuple(findings)
