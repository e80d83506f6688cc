"""Looks over a worktree before git touches it, and over a change before it is committed. All of it is hostile input.

A `.git` below the root makes git run programs that the worker chose (`core.fsmonitor`, `filter.clean`), so it has to be
found without git. Called when nothing runs in the box any more: what was looked at stays as it was.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worktrees.view import View, is_whiteout

MAX_DEPTH = 100
OPEN = stat.S_IRWXU
SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
PLAIN = stat.S_IFREG | stat.S_IRUSR | stat.S_IWUSR
LOOKED_AT = stat.S_IFMT(0o177777) | SPECIAL_BITS | PLAIN
IGNORED_BY_HFS = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
SECRETS = {
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\n|\r?\n\+?)[ \"']*[A-Za-z0-9+/=]{16}",
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60})",
    "a GitLab token": rb"\bglpat-[A-Za-z0-9_-]{20}",
    "an Anthropic key": rb"\bsk-ant-[A-Za-z0-9_-]{24}",
    "an OpenAI key": rb"\bsk-proj-[A-Za-z0-9_-]{24}",
    "a Slack token": rb"\bxox[abprs]-[A-Za-z0-9-]{20}",
    "a Google key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
}
HINTS = (
    *(b"PRIVATE KEY", b"AKIA", b"ASIA", b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
    *(b"glpat-", b"sk-ant-", b"sk-proj-", b"xox", b"AIza"),
)
"""No secret is found where none of these is."""
_SECRETS = {name: re.compile(pattern) for name, pattern in SECRETS.items()}


@dataclass(frozen=True, slots=True)
class Finding:
    """A path, and the rule it breaks."""

    path: str
    rule: str

    def __str__(self) -> str:
        return f"{shown(self.path)}: {self.rule}"


def shown(path: str) -> str:
    """A name that is safe to print: bytes that are no text and control characters are written out."""
    readable = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in readable)


def is_git_name(name: str) -> bool:
    """Whether some file system or some git takes this name for `.git`."""
    folded = name.translate(IGNORED_BY_HFS).split(":", 1)[0].casefold().rstrip(". ")
    return folded == ".git" or re.fullmatch(r"git~\d+", folded) is not None


def scan_tree(
    root: Path, *, max_files: int, start: str = "", modes: bool = True, whiteouts: bool = False
) -> tuple[Finding, ...]:
    """What git must not meet in a worktree, or in the upper folder of one, where a whiteout says that a path is gone.

    Opens folders and files that were closed to us, and drops setuid bits. Without `modes` files keep theirs, and none
    is asked for: half the time, where only changed files matter. With `start` only what lies below that is looked at.
    """
    findings: list[Finding] = []
    left, pending = max_files, [(start, start.count("/") + 1 if start else 0)]
    while pending:
        folder, depth = pending.pop()
        if depth > MAX_DEPTH:
            return (*findings, Finding(folder, f"is more than {MAX_DEPTH} folders deep"))
        try:
            entries = _entries(root, folder)
        except OSError as error:
            findings.append(Finding(folder, f"can't be looked at: {error.strerror}"))
            continue
        for entry in entries:
            left -= 1
            if left < 0:
                return (*findings, Finding(folder or ".", f"there are more than {max_files} files"))
            if _is_plain(entry, modes=modes):
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            if is_git_name(entry.name):
                if path != ".git" or not entry.is_file(follow_symlinks=False):
                    findings.append(Finding(path, "only git may use this name"))
                continue
            try:
                rule = _tidy(entry, whiteouts=whiteouts)
            except OSError as error:
                rule = f"can't be looked at: {error.strerror}"
            if rule:
                findings.append(Finding(path, rule))
            elif entry.is_dir(follow_symlinks=False):
                pending.append((path, depth + 1))
    return tuple(findings)


def _entries(root: Path, folder: str) -> list[os.DirEntry[str]]:
    at = f"{root}/{folder}"
    if folder:
        mode = stat.S_IMODE(os.lstat(at).st_mode)
        if mode & OPEN != OPEN:
            Path(at).chmod(mode | OPEN)
    with os.scandir(at) as entries:
        return list(entries)


def _is_plain(entry: os.DirEntry[str], *, modes: bool) -> bool:
    """Whether there is nothing to say about an entry, as about most: the quick way for them."""
    if not entry.name.isascii() or "git" in entry.name.lower():
        return False
    try:
        if not modes:
            return entry.is_file(follow_symlinks=False)
        return entry.stat(follow_symlinks=False).st_mode & LOOKED_AT == PLAIN
    except OSError:
        return False


def _tidy(entry: os.DirEntry[str], *, whiteouts: bool) -> str | None:
    """Why an entry is refused, after its mode was put right."""
    status = entry.stat(follow_symlinks=False)
    mode = status.st_mode
    if stat.S_ISLNK(mode) or stat.S_ISDIR(mode) or (whiteouts and is_whiteout(status)):
        return None
    if not stat.S_ISREG(mode):
        return "is neither a file, a folder nor a link"
    open_up(Path(entry.path), mode)
    return None


def open_up(file: Path, mode: int) -> None:
    """Make a file, of the mode it has, readable to us and nobody's program of higher rights."""
    wanted = (stat.S_IMODE(mode) & ~SPECIAL_BITS) | stat.S_IRUSR | stat.S_IWUSR
    if wanted != stat.S_IMODE(mode):
        file.chmod(wanted)


def scan_changed(view: View, paths: Sequence[str], *, max_file_bytes: int) -> tuple[Finding, ...]:
    """What may not be committed among the changed paths. Paths that are gone are fine."""
    return tuple(finding for path in paths for finding in _changed_problems(view, path, max_file_bytes))


def _changed_problems(view: View, path: str, max_file_bytes: int) -> Iterator[Finding]:
    if path.endswith("/"):
        yield Finding(path, "is a repository of its own")
        return
    if not path.isprintable() or os.fsencode(path).decode("utf-8", "replace") != path:
        yield Finding(path, "has control characters or bytes that are no UTF-8 in its name")
        return
    found = view.find(path)
    if found is None:
        return
    status = found[1]
    if stat.S_ISLNK(status.st_mode):
        if view.leads_out(path):
            yield Finding(path, "is a link that leaves the repository")
    elif stat.S_ISREG(status.st_mode) and status.st_size > max_file_bytes:
        yield Finding(path, f"has {status.st_size} bytes; at most {max_file_bytes} are committed")


def may_hold_secret(content: bytes) -> bool:
    """Whether a patch that brings this content is worth a look for secrets."""
    return any(hint in content for hint in HINTS)


def secrets_in(patch: bytes) -> tuple[Finding, ...]:
    """Keys and tokens among the added lines of a patch, by file; never the secret itself."""
    findings: dict[Finding, None] = {}
    for part in re.split(rb"(?m)^diff --git ", patch)[1:]:
        named = re.search(rb"(?m)^\+\+\+ (?:\"?b/)?([^\"\n]*)", part)
        path = os.fsdecode(named.group(1)) if named else "?"
        added = b"\n".join(line for line in part.split(b"\n") if line.startswith(b"+"))
        for name, pattern in _SECRETS.items():
            if pattern.search(added):
                findings[Finding(path, f"seems to hold {name}")] = None
    return tuple(findings)
