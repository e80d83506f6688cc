"""How the project writes: plain technical English. The ceilings were measured and only go down."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.house.conftest import nodes

NAMES = (
    "noun clause",
    "semicolon",
    "negated object",
    "says, asks, tells",
    "where for if",
    "passive",
    "own",
    "one that",
)
_BEFORE = r"(?:^|[.;:(]\s+|\b(?:and|of|from|with|about|to|for|on|by|in|see|shows?|says?|lists?)\s+)"
_AFTER = r"(?:is|are|was|were|has|have|had|can|may|must|does|do|did|it|they|a|the|one|you|he|this|that|\w+s)\b"
HABITS = (
    _BEFORE + r"what(?:ever)?\s+(?:\w+\s+){0,3}" + _AFTER,
    r";\s+[a-z]",
    r"\bnothing\b|\b(?:takes|calls|gets|costs|has|have|is|are|needs|uses|knows|makes|gives|holds|shows|names)\s+no\s+\w+",
    r"\b(?:says|said|asks|asked|tells|told|knows|wants|believes)\b",
    r"(?:^|[.]\s+)Where\s+(?:a|an|the|it|there|that|one|no|nothing)\b",
    r"\b(?:is|are|was|were|be)\s+\w+ed\s+(?:for|at|of|with|to|by|from|in|on)\s*[.,;:)]",
    r"\bof (?:its|their|his|your|our) own\b|\bof (?:yours|ours|theirs)\b",
    r"\b(?:the )?ones? (?:that|who|which)\b|(?:^|[.]\s+)Who(?:ever)?\s+\w+",
)
CEILINGS: dict[str, tuple[float, ...]] = {
    "documents": (0.3, 1.5, 0.8, 0.8, 0.1, 0.2, 0.2, 0.2),
    "comments": (0.3, 1.6, 1.2, 0.6, 0.1, 0.3, 0.2, 0.2),
    "strings": (0.5, 4.0, 1.2, 0.7, 0.1, 0.1, 0.1, 0.2),
}
"""Per 1,000 words, in the order of `NAMES`."""
SLACK = 0.35
"""How far below its ceiling a rate may be before the ceiling has to follow."""

BANNED = re.compile(
    r"\b(nobody|whoever|anew|mend(?:s|ed|ing)?|for ever|goes on|going on|bec[ao]mes? of|came to nothing|at work|"
    r"under way|besides|tells apart|so many|all the same|bugs? of fleet|models' service|set-ups?)\b",
    re.IGNORECASE,
)
ALLOWED = {"nobody": "worktrees/sandbox/box.py"}
"""The user of that name is in the box's list of users."""
OPENERS = re.compile(r"(What|Who|Where|Which|It|Its|Those|So many)\b")
"""No description, help text or error begins with one of these."""
MOST_OPENERS = 0
ERRORS = {"FleetError", "UsageError"}
LEAST_WORDS = 4
"""A string with fewer of them is a name or a key."""
_COMMENT = re.compile(r"(?:^|\s)#\s+([A-Za-z].{12,})")
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


@pytest.fixture(scope="session")
def prose(files: Mapping[str, str], product: Mapping[str, ast.Module]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """The prose of each surface: pieces of text with the file that holds them."""
    documents = tuple((path, _CODE.sub(" ", text)) for path, text in files.items() if _is_document(path))
    comments = tuple(
        (path, _CODE.sub(" ", text)) for path, tree in product.items() for text in _comments(files[path], tree)
    )
    strings = tuple((path, text) for path, tree in product.items() for text in _strings(tree))
    return {"documents": documents, "comments": comments, "strings": strings}


@pytest.mark.parametrize("surface", CEILINGS)
def test_habits_only_become_rarer(prose: Mapping[str, tuple[tuple[str, str], ...]], surface: str) -> None:
    texts = [text for _, text in prose[surface]]
    words = sum(len(text.split()) for text in texts)
    checks = [re.compile(habit, re.IGNORECASE | re.MULTILINE) for habit in HABITS]
    rates = [1000 * sum(len(check.findall(text)) for text in texts) / words for check in checks]
    rows = zip(NAMES, rates, CEILINGS[surface], strict=True)
    wrong = [f"{name}: {rate:.2f}, ceiling {most}" for name, rate, most in rows if not most - SLACK <= rate <= most]
    assert wrong == []


def test_words_that_the_field_does_not_use(
    files: Mapping[str, str], prose: Mapping[str, tuple[tuple[str, str], ...]]
) -> None:
    pages = [
        (path, text) for path, text in files.items() if path.endswith((".html", ".toml", ".yml")) and _is_ours(path)
    ]
    found = [
        f"{path}: {match[0]}"
        for path, text in (*prose["documents"], *prose["comments"], *prose["strings"], *pages)
        for match in BANNED.finditer(text)
        if ALLOWED.get(match[0].lower()) != path
    ]
    assert found == []


def test_descriptions_begin_with_a_noun_or_a_verb(files: Mapping[str, str], product: Mapping[str, ast.Module]) -> None:
    """Help, metrics, facts, JSON and keys are all in the reference; errors are in the code."""
    cells = [
        f"{path}: {cell}"
        for path, text in files.items()
        if path.startswith("docs/reference/")
        for line in text.splitlines()
        if line.startswith("|") and OPENERS.match(cell := line.rstrip("| ").rpartition("|")[2].strip())
    ]
    errors = [
        f"{path}:{call.lineno}: {text}"
        for path, tree in product.items()
        for call in nodes(tree, ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id in ERRORS and call.args
        if OPENERS.match(text := _beginning(call.args[0]))
    ]
    assert len(cells) + len(errors) <= MOST_OPENERS, [*errors, *cells]


# ---- subjects of commits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "subject",
    [
        "cli: print the hint on its own line",
        "docs, web: rename pages",
        "fleet/read: process events in order",
        'Revert "cli: print the hint"',
    ],
)
def test_a_commit_with_a_plain_subject_passes(root: Path, subject: str) -> None:
    assert _check(root, subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("print the hint on its own line", "area"),
        ("cli: prints the hint on its own line", "imperative"),
        ("cli: printed the hint", "imperative"),
        ("cli: what a hint says", "imperative"),
        ("cli: a hint for each error", "imperative"),
        (f"cli: print {'x' * 70}", "72"),
    ],
)
def test_a_commit_with_another_subject_is_named(root: Path, subject: str, why: str) -> None:
    assert why in _check(root, subject)


def _check(root: Path, subject: str) -> str:
    program = [sys.executable, str(root / "scripts/commits"), "--stdin"]
    return str(subprocess.run(program, input=f"{subject}\n", capture_output=True, text=True, check=False).stdout)


# ---- prose -----------------------------------------------------------------------------------------------------------


def _is_document(path: str) -> bool:
    is_page = path.startswith("docs/") or path in {"README.md", "CONTRIBUTING.md"}
    return is_page and path.endswith(".md") and "/decisions/" not in path


def _is_ours(path: str) -> bool:
    return path.startswith(("fleet/", "agents/", "worktrees/", "dashboards/")) or path == "config.toml"


def _comments(source: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():
            if (text := _docstring(item)) is not None:
                yield text
    for line in source.splitlines():
        if "noqa" not in line and (match := _COMMENT.search(line)):
            yield match[1]


def _strings(tree: ast.Module) -> Iterator[str]:
    docs = {id(item.value) for item in nodes(tree, ast.Expr)}
    for node in nodes(tree, ast.Constant):
        if isinstance(node.value, str) and id(node) not in docs and node.value.count(" ") >= LEAST_WORDS - 1:
            yield node.value


def _docstring(item: ast.stmt) -> str | None:
    is_text = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant) and isinstance(item.value.value, str)
    return str(item.value.value) if is_text else None  # type: ignore[attr-defined]


def _beginning(message: ast.expr) -> str:
    """The text that a message begins with; nothing if it begins with a value."""
    if isinstance(message, ast.JoinedStr) and message.values:
        message = message.values[0]
    return str(message.value) if isinstance(message, ast.Constant) else ""
