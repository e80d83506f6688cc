"""Finds the relevant lines in the output of a failed command, and advice about their causes.

The last lines of a log are often only a count of failures. Output is untrusted: the result is only a hint for a human,
and lines are escaped before they are shown.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, NamedTuple

CauseKind = Literal[
    "old",
    "program",
    "python",
    "node",
    "package",
    "network",
    "service",
    "read_only",
    "permission",
    "space",
    "memory",
    "file",
]
MOST_CAUSES, MOST_FAILURES, MOST_LAST = 4, 6, 8
LONGEST_LINE = 300
ENDS = 4_000  # lines examined from each end of the output
SCANNED = 1_000  # characters of a line

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_OLD: Mapping[str, re.Pattern[str]] = {
    "cargo": re.compile(
        r"requires rustc \d|rustc [\d.]+ is not supported by|lock file version \d+ (?:requires|was found)"
        r"|feature `edition\d+` is required|this version of Cargo is older than|requires a newer version of (?:Cargo|R)"
    ),
    "node": re.compile(
        r"code EBADENGINE|engine Unsupported engine|[Tt]he engine \"node\" is incompatible|node: bad option: --test"
        r"|requires (?:at least )?Node(?:\.js)?(?: version)? [v\d>=^~]|Node(?:\.js)? v?[\d.]+ is not supported"
    ),
    "go": re.compile(r"requires go ?>= ?\d[\w.]* \(running|invalid go version '\d|module requires Go \d"),
    "python3": re.compile(
        r"requires a different Python: |requires Python ['\"]?[<>=~!]*\d|Python \d[\d.]*\+? (?:or \w+ )?is required"
    ),
    "java": re.compile(
        r"invalid (?:target|source) release: \d|release version \d+ not supported|UnsupportedClassVersionError"
    ),
    "ruby": re.compile(r"Your Ruby version is [\d.]+, but"),
}
"""Patterns of messages about outdated programs, by program."""
_CAUSES: tuple[tuple[CauseKind, re.Pattern[str]], ...] = (
    (
        "program",
        re.compile(r"sh: (?:\d+: )?([\w.+-]+): not found$|([\w.+-]+): command not found$|command not found: (\S+)$"),
    ),
    ("program", re.compile(r"^(?:make(?:\[\d+\])?|(?:/usr/bin/)?env): \W?([\w.+-]+)\W?: No such file or dir")),
    ("program", re.compile(r"exec: \"([\w.+-]+)\": executable file not found|spawn ([\w.+-]+) ENOENT")),
    ("python", re.compile(r"No module named ['\"]?([\w.]+)")),
    ("node", re.compile(r"Cannot find (?:module|package) ['\"]([^'\"]+)")),
    ("package", re.compile(r"no required module provides package ([^\s;]+)|can't find crate for `([^`]+)")),
    ("package", re.compile(r"cannot load such file -- (\S+)|error: package (\S+) does not exist")),
    (
        "network",
        re.compile(
            r"EAI_AGAIN|ENOTFOUND|ENETUNREACH|[Cc]ould ?n[o']t resolve host|Temporary failure in name resolution"
            r"|Name or service not known|[Nn]etwork is unreachable|no such host|dial tcp|getaddrinfo"
            r"|Failed to establish a new connection|[Dd]ns error|UnknownHostException"
        ),
    ),
    ("service", re.compile(r"ECONNREFUSED|[Cc]onnection refused")),
    ("read_only", re.compile(r"EROFS|[Rr]ead-only file system")),
    ("permission", re.compile(r"EACCES|EPERM|[Pp]ermission denied|Operation not permitted")),
    ("space", re.compile(r"ENOSPC|No space left on device|Disk quota exceeded")),
    ("memory", re.compile(r"ended by the sandbox:|heap out of memory|MemoryError|Cannot allocate memory|OutOfMemory")),
    ("file", re.compile(r"(?:No such file or directory|ENOENT)(?:[:,] .*?['\"]([^'\"]+)['\"])?")),
)
_PATTERNS = (*_OLD.values(), *(pattern for _, pattern in _CAUSES))
_ANY_CAUSE = re.compile("|".join(re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern.pattern) for pattern in _PATTERNS))
_FAILURE = re.compile(
    r"^E\s{2,}\S|^(?:FAIL|FAILED|ERROR|not ok|--- FAIL)\b|^\s*(?:[\u2715\u2716\xd7\u25cf]|\d+\)) \S|\bpanicked at\b"
    r"|\b[A-Z]\w*(?:Error|Exception)\b(?::|$)|^\s*(?:fatal |npm )?[Ee]rror(?:\[\w+\])?\b|^npm ERR!|^make: \*\*\*"
)
_CHAINS: Mapping[str, str] = {
    **dict.fromkeys(("cargo", "rustc", "rustup", "rustfmt", "clippy-driver"), "rustup"),
    **dict.fromkeys(("node", "npm", "npx", "corepack", "pnpm", "yarn"), "nvm"),
    **dict.fromkeys(("uv", "uvx"), "uv"),
    **dict.fromkeys(("java", "javac", "gradle", "mvn", "kotlinc", "sbt"), "sdkman"),
    **dict.fromkeys(("go", "gofmt"), "go"),
    **dict.fromkeys(("bun", "bunx"), "bun"),
    "deno": "deno",
    "python3": "uv",
    **dict.fromkeys(("ruby", "bundle", "gem", "rake"), "rbenv"),
}
"""The tool chain that a program of this name usually comes from, if it lives in the home."""
_OWN = "your own configuration (~/.config/fleet/config.toml)"
_ADVICE: Mapping[CauseKind, str] = {
    "program": f"{{subject}} is not visible in the sandbox, which shows /usr but not your home. {{chain}} in {_OWN}. "
    "For a virtual environment in the repository, set box.read_only and box.path in fleet.toml",
    "old": f"{{subject}} on this machine is older than the project requires. {{chain}} in {_OWN}, or install a newer "
    "version below /usr",
    "python": "Python module {subject} not found. Expose the repository's virtual environment (box.read_only and "
    'box.path in fleet.toml), or install the module with worktrees.setup. For a src layout, set PYTHONPATH = "src" in '
    "[box.environment]",
    "node": "package {subject} is not installed in worktrees. Install it with worktrees.setup (npm ci) and "
    'worktrees.setup_network, or copy your installation: worktrees.include = ["node_modules/"]',
    "package": "{subject} is missing, and downloads are not possible in the sandbox. Fetch it with worktrees.setup and "
    "worktrees.setup_network",
    "network": "commands in the sandbox have no network. To allow it for the setup command, use --setup-network or "
    f'worktrees.setup_network = "base" in {_OWN}. Checks and workers stay offline',
    "service": "services on this machine are not reachable from the sandbox. Let the command start its own services",
    "read_only": "only the worktree, /tmp and the sandbox's home are writable. Move caches there with "
    "[box.environment]",
    "permission": "the sandbox does not allow this: it has no privileges, and it blocks some system calls "
    "(box.syscall_filter)",
    "space": "the sandbox's /tmp and home are small. Write large files in the worktree, or raise box.disk_mb",
    "memory": "the command needs more memory than the sandbox allows. Raise box.memory_mb, or use fewer processes",
    "file": "a file is missing. Worktrees contain only committed files. List ignored files in worktrees.include",
}


class Cause(NamedTuple):
    """A line that names the cause of a failure."""

    kind: CauseKind
    subject: str
    """Missing program, module or file, if the line names it."""
    line: str


def cause_of(line: str) -> Cause | None:
    """The cause that a line names, if it does."""
    if _ANY_CAUSE.search(line) is None:
        return None
    for program, pattern in _OLD.items():
        if pattern.search(line):
            return Cause("old", program, line)
    for kind, pattern in _CAUSES:
        if match := pattern.search(line):
            return Cause(kind, next((group for group in match.groups() if group), ""), line)
    return None


def outdated(output: str) -> Cause | None:
    """Return the line that reports an outdated program on the machine, if any."""
    causes = (cause_of(line[:LONGEST_LINE]) for line in _lines(output))
    return next((cause for cause in causes if cause is not None and cause.kind == "old"), None)


def key_lines(output: str) -> tuple[str, ...]:
    """Return the relevant lines in order: causes, then the first failures, otherwise the last lines."""
    lines = [line[:LONGEST_LINE].rstrip() for line in _lines(output)]
    found = dict(islice(_distinct((at, line) for at, line in enumerate(lines) if cause_of(line)), MOST_CAUSES))
    failures = ((at, line) for at, line in enumerate(lines) if at not in found and _FAILURE.search(line))
    found |= dict(islice(_distinct(failures), MOST_FAILURES))
    if found:
        return tuple(found[at] for at in sorted(found))
    return tuple([line for line in lines if line.strip()][-MOST_LAST:])


def advice(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return advice for the causes found in these lines, without duplicates."""
    causes = [cause for cause in map(cause_of, lines) if cause is not None]
    kinds = {cause.kind for cause in causes}
    if kinds - {"file"}:  # a missing file often is only what follows
        causes = [cause for cause in causes if cause.kind != "file"]
    return tuple(dict.fromkeys(_advice(cause) for cause in causes))


def _advice(cause: Cause) -> str:
    subject = cause.subject or "it"
    chain = _CHAINS.get(subject)
    shown = (
        f'If it is installed there: box.tool_chains = ["{chain}"]' if chain else "Expose it with box.read_only and path"
    )
    return _ADVICE[cause.kind].format(subject=subject, chain=shown)


def _lines(output: str) -> list[str]:
    lines = output.splitlines()
    if len(lines) > 2 * ENDS:
        lines = [*lines[:ENDS], *lines[-ENDS:]]
    return [_ESCAPE.sub("", line[:SCANNED]) for line in lines]


def _distinct(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    seen = set[str]()
    for at, line in lines:
        if (text := line.strip()) not in seen:
            seen.add(text)
            yield at, line


# ---- json text -------------------------------------------------------------------------------------------------------
# JSON that others wrote, parsed to a bounded depth.
#
# How deep `json.loads` goes depends on the version of Python: 3.11 stops at 1,000 levels, others parse more than our
# own code, or `json.dumps`, can walk later.


DEEPEST = 200  # levels, the limit of pydantic's parser


def parse_json(text: str | bytes | bytearray) -> Any:
    """The value in `text`. Raises `ValueError`, also if it is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _brackets(text) > DEEPEST and is_deep(value, DEEPEST):
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    return value


def is_deep(data: object, deepest: int) -> bool:
    """Whether tables and lists are nested in more than `deepest` levels."""
    level = [data]
    for _ in range(deepest):
        level = [item for value in level for item in _items(value)]
    return any(isinstance(value, dict | list) for value in level)


def _items(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _brackets(text: str | bytes | bytearray) -> int:
    """An upper bound of the depth, at the price of two scans in C."""
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
