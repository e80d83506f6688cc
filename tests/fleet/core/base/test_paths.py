"""Paths and patterns of plans: what they match, against a matcher that is slow and obvious."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.paths import matches, outside, path_problem


def naive(path: str, pattern: str) -> bool:
    """The same rules, tried one way after the other."""
    rest = pattern.removeprefix("./")
    if rest.endswith("/"):
        rest += "**"
    return _naive(path, rest)


def _naive(path: str, rest: str) -> bool:
    if not rest:
        return not path or path.startswith("/")
    if rest.startswith("**/"):
        folders = [index for index, character in enumerate(path) if character == "/"]
        return any(_naive(path[start:], rest[3:]) for start in (0, *(index + 1 for index in folders)))
    if rest.startswith("**"):
        return any(_naive(path[start:], rest[2:]) for start in range(len(path) + 1))
    if rest.startswith("*"):
        name, _, _ = path.partition("/")
        return any(_naive(path[start:], rest[1:]) for start in range(len(name) + 1))
    if not path:
        return False
    if rest.startswith("?"):
        return path[0] != "/" and _naive(path[1:], rest[1:])
    return path[0] == rest[0] and _naive(path[1:], rest[1:])


names = st.text("ab.", min_size=1, max_size=3)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
pattern_pieces = st.sampled_from(["*", "**", "**/", "?", "/", "a", "b", "."])
patterns = st.lists(pattern_pieces, min_size=1, max_size=6).map("".join)


@given(paths, patterns)
def test_a_pattern_matches_what_the_obvious_matcher_says(path: str, pattern: str) -> None:
    assert matches(path, [pattern]) == naive(path, pattern)


@given(paths.filter(lambda path: not path.startswith("./")))
def test_a_path_without_wildcards_names_itself_and_what_is_below_it(path: str) -> None:
    assert matches(path, [path])
    assert matches(f"{path}/x", [path])
    assert not matches(f"{path}x", [path])


@given(st.text(string.printable, min_size=1, max_size=12).filter(lambda path: not path.startswith("./")))
def test_a_character_that_is_not_a_wildcard_matches_itself(path: str) -> None:
    plain = path.replace("*", "+").replace("?", "+")
    assert matches(plain.rstrip("/") or "+", [plain.rstrip("/") or "+"])


@pytest.mark.parametrize(
    ("pattern", "inside", "beyond"),
    [
        ("src/**", ("src/a.py", "src/a/b.py"), ("src", "srcx/a.py", "tests/src/a.py")),
        ("src/**/*.py", ("src/a.py", "src/a/b.py"), ("src/a.txt", "a.py")),
        ("src/**.py", ("src/a.py", "src/a/b.py"), ("src/a.txt",)),
        ("*.py", ("a.py",), ("src/a.py",)),
        ("**/test_?.py", ("test_a.py", "x/y/test_b.py"), ("test_ab.py",)),
        ("docs/", ("docs/a.md", "docs/a/b.md"), ("docs",)),
        ("./docs", ("docs", "docs/a.md"), ("adocs",)),
        ("a[b].py", ("a[b].py",), ("ab.py",)),
    ],
)
def test_patterns_mean_what_people_expect(pattern: str, inside: tuple[str, ...], beyond: tuple[str, ...]) -> None:
    assert outside((*inside, *beyond), [pattern]) == beyond


@pytest.mark.parametrize("pattern", ["**/" * 200 + "x", "*a" * 200 + "x", "**a" * 200 + "x"])
def test_no_pattern_of_a_model_makes_the_manager_hang(pattern: str) -> None:
    """Tried one way after the other, each of these takes longer than anyone lives."""
    assert not matches("a/" * 200 + "aaaa", [pattern])


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("/etc/passwd", "absolute"),
        ("~/.ssh/id", "absolute"),
        ("C:/windows", "absolute"),
        ("c:x", "absolute"),
        ("../x", "leaves"),
        ("a/../../x", "leaves"),
        ("a/..", "leaves"),
        ("a\\b", "backslash"),
        ("a\nb", "control"),
        ("a\0b", "control"),
        (".git/hooks/pre-commit", "belongs to git"),
        ("sub/.GIT/config", "belongs to git"),
    ],
)
def test_a_path_that_a_plan_may_not_contain_is_refused_with_the_reason(path: str, why: str) -> None:
    assert why in (path_problem(path) or "nothing")


@pytest.mark.parametrize("path", ["a", "src/**", "a..b/c", ".gitignore", ".github/x", "a b/ü.py", "..."])
def test_ordinary_paths_are_fine(path: str) -> None:
    assert path_problem(path) is None


def test_what_no_pattern_names_is_outside() -> None:
    assert outside(("src/a.py", "docs/b.md", "c"), ("src/**", "c")) == ("docs/b.md",)
