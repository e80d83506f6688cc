"""Checks a worktree before git touches it, and a change before it is committed. All of it is hostile input.

A `.git` below the root makes git run programs that the worker chose (`core.fsmonitor`, `filter.clean`), so it has to be
found without git. Called when nothing runs in the box any more: what was checked does not change afterwards.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worktrees.base.fs import printable
from worktrees.leases.union_view import View, is_whiteout

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
"""Every secret holds one of these."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A path, and the rule it breaks."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{printable(self.path)}: {self.rule}"


def is_git_name(name: str) -> bool:
    """Whether some file system or some git takes this name for `.git`."""
    folded = name.translate(IGNORED_BY_HFS).split(":", 1)[0].casefold().rstrip(". ")
    return folded == ".git" or re.fullmatch(r"git~\d+", folded) is not None


def scan_tree(root: Path, *, max_files: int, whiteouts: bool = False) -> tuple[Finding, ...]:
    """The entries of a worktree that git must not meet. Opens closed folders and files, and drops setuid bits.

    With `whiteouts` for the upper folder of an overlay, where they mark removed paths.
    """
    findings: list[Finding] = []
    remaining, pending = max_files, [("", 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > MAX_DEPTH:
            return (*findings, Finding(folder, f"is more than {MAX_DEPTH} folders deep"))
        try:
            entries = _open_folder(root, folder)
        except OSError as error:
            findings.append(Finding(folder, f"can't be inspected: {error.strerror}"))
            continue
        remaining -= len(entries)
        if remaining < 0:
            return (*findings, Finding(folder or ".", f"there are more than {max_files} files"))
        for entry in entries:
            if _is_plain(entry):
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            rule = _broken_rule(entry, path, whiteouts=whiteouts)
            if rule is not None:
                findings.append(Finding(path, rule))
            elif entry.is_dir(follow_symlinks=False):
                pending.append((path, depth + 1))
    return tuple(findings)


def _open_folder(root: Path, folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder, which is made readable where it was closed."""
    path = f"{root}/{folder}"
    if folder:
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(path).chmod(mode | stat.S_IRWXU)
    with os.scandir(path) as entries:
        return list(entries)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is an ordinary file with an ordinary name, like most: the quick way for them."""
    if not entry.name.isascii() or "git" in entry.name.lower():
        return False
    try:
        return entry.stat(follow_symlinks=False).st_mode & CHECKED_BITS == PLAIN
    except OSError:
        return False


def _broken_rule(entry: os.DirEntry[str], path: str, *, whiteouts: bool) -> str | None:
    """Why an entry is refused. Corrects the mode of a file that is not."""
    if is_git_name(entry.name):
        is_pointer = path == ".git" and entry.is_file(follow_symlinks=False)
        return None if is_pointer else "only git may use this name"
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            mode = stat.S_IMODE(status.st_mode)
            wanted = (mode & ~SPECIAL_BITS) | stat.S_IRUSR | stat.S_IWUSR
            if mode != wanted:  # also keeps its time of change, by which the set-up recognises its files
                Path(entry.path).chmod(wanted)
            return None
    except OSError as error:
        return f"can't be inspected: {error.strerror}"
    is_allowed = stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode) or (whiteouts and is_whiteout(status))
    return None if is_allowed else "is neither a file, a folder nor a link"


def scan_changed(view: View, paths: Sequence[str], *, max_file_bytes: int) -> tuple[Finding, ...]:
    """The changed paths that may not be committed. Removed paths are fine."""
    return tuple(finding for path in paths for finding in _changed_problems(view, path, max_file_bytes))


def _changed_problems(view: View, path: str, max_file_bytes: int) -> Iterator[Finding]:
    if path.endswith("/"):
        yield Finding(path, "is a repository of its own")
        return
    entry = view.find(path)
    if entry is None:
        return
    if not path.isprintable() or os.fsencode(path).decode("utf-8", "replace") != path:
        yield Finding(path, "has control characters in its name, or bytes that are not UTF-8")
        return
    status = entry[1]
    if stat.S_ISLNK(status.st_mode):
        if view.leads_out(path):
            yield Finding(path, "is a link that leaves the repository")
    elif stat.S_ISREG(status.st_mode) and status.st_size > max_file_bytes:
        yield Finding(path, f"has {status.st_size} bytes; at most {max_file_bytes} are committed")


def may_hold_secret(content: bytes) -> bool:
    """Whether a patch that brings this content has to be searched for secrets."""
    return any(hint in content for hint in HINTS)


def secrets_in(patch: bytes) -> tuple[Finding, ...]:
    """Keys and tokens among the added lines of a patch, by file; never the secret itself."""
    findings: dict[Finding, None] = {}
    for part in re.split(rb"(?m)^diff --git ", patch)[1:]:
        named = re.search(rb"(?m)^\+\+\+ (?:\"?b/)?([^\"\n]*)", part)
        path = os.fsdecode(named.group(1)) if named else "?"
        added = b"\n".join(line for line in part.split(b"\n") if line.startswith(b"+"))
        for name, pattern in SECRETS.items():
            if pattern.search(added):
                findings[Finding(path, f"seems to hold {name}")] = None
    return tuple(findings)
