"""What a verdict rests on: the tests that a subtask's own checks run are not the subtask's to change.

Unless its `touches` names them, a change to one that stood on the base and that a criterion's command names is refused.
With others that changed, the verdict is asked for twice: of the tree that lands, and of that tree with the base's tests
(docs/decisions/0022, docs/decisions/0036).
"""

import re
from collections.abc import Iterable, Sequence

from fleet.core.paths import matches
from fleet.core.plan import Criterion

FOLDERS = {"test", "tests", "spec", "specs", "__tests__", "testing"}
_NAME = re.compile(r"(?:test_.*|tests|.*(?:_test|_spec|\.test|\.spec))\.[A-Za-z0-9]+|.*Tests?\.[A-Za-z0-9]+")
_WORD = re.compile(r"[\w./@+-]+")


def is_test(path: str) -> bool:
    """Whether a file is one by its name or its place, as the usual runners find them."""
    *folders, name = path.split("/")
    return bool(FOLDERS.intersection(folders)) or _NAME.fullmatch(name) is not None


def borrowed_tests(paths: Iterable[str], touches: Sequence[str]) -> tuple[str, ...]:
    """Those of the changed paths that are tests, and that the plan did not hand over."""
    return tuple(path for path in paths if is_test(path) and not matches(path, touches))


def named_by(criteria: Sequence[Criterion], tests: Iterable[str]) -> tuple[str, ...]:
    """Those of the tests that a command of these criteria names."""
    words = {word for criterion in criteria for word in _WORD.findall(criterion.run or "")}
    return tuple(path for path in tests if _named(path, words))


def _named(path: str, words: Iterable[str]) -> bool:
    """Whether a command names a file: itself, a folder above it, or the module it is, or something in that."""
    stem = path.rsplit(".", 1)[0].replace("/", ".")
    for word in words:
        plain = word.removeprefix("./").rstrip("/")
        if path == plain or path.startswith(f"{plain}/") or stem == plain or plain.startswith(f"{stem}."):
            return True
    return False
