"""Whether a rule of an ignore file could match a path at all, told without git: asking it costs a process.

Errs on one side only. A rule that matches a path, or a folder above it, has for its last part a pattern that fits the
name of that file or folder; where no name fits, nothing is ignored. Wherever that is not plain to see, git is asked.
"""

import re
from collections.abc import Collection

MOST = 200_000  # rules times names that are tried here
STARS = 2  # in one pattern: with more, matching a name that somebody chose for it takes for ever
SIGNS = re.compile(rb"\[[a-z0-9]+\]|[ -Z^-~]")
"""What is read here. A range, an escape, a letter beyond ASCII: git knows."""
FITS = {b"*": rb"[^\0]*", b"?": rb"[^\0]"}


def may_match(rules: Collection[bytes], paths: Collection[bytes]) -> bool:
    """Whether one of these lines of ignore files could match one of these paths, or a folder above it."""
    names = {name.lower() for path in paths for name in path.split(b"/")}
    if len(rules) * len(names) > MOST:
        return True
    fitting = {_fitting(_last(rule)) for rule in rules if rule.strip() and not rule.startswith(b"#")}
    if None in fitting:
        return True
    any_of = b"|".join(pattern for pattern in fitting if pattern)
    return bool(any_of) and re.search(rb"\0(?:%b)\0" % any_of, b"".join(b"\0%b\0" % name for name in names)) is not None


def _last(rule: bytes) -> bytes:
    """The pattern that has to fit the name of what is ignored, in small letters."""
    pattern = rule.removesuffix(b"\r").rstrip(b" ").removeprefix(b"!").rstrip(b"/")
    return pattern.rpartition(b"/")[2].lower()


def _fitting(pattern: bytes) -> bytes | None:
    """A regular expression that fits no less; None where only git can say."""
    signs = SIGNS.findall(pattern)
    if b"".join(signs) != pattern or signs.count(b"*") > STARS:
        return None
    return b"".join(FITS.get(sign, sign if sign.startswith(b"[") else re.escape(sign)) for sign in signs)
