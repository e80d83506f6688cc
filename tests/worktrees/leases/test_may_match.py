"""A rule that could match is never missed: where we say that none does, git ignores nothing."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.worktrees.conftest import git, make_repository
from worktrees.leases.union_view import may_match

PARTS = st.text("abA.*?[]!^-\\ #ü\r", min_size=0, max_size=5)
RULES = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
NAMES = st.text("abA.[] ü", min_size=1, max_size=4).filter(lambda name: name.strip(".") != "")
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("ignores") / "project", {"there": "1\n"})


@given(rules=st.lists(RULES, min_size=1, max_size=4), paths=st.lists(PATHS, min_size=1, max_size=6, unique=True))
@examples(120)
def test_what_git_ignores_could_match(repository: Path, rules: list[str], paths: list[str]) -> None:
    lines = [os.fsencode(rule) for rule in rules]
    named = [f"./{path}" for path in paths]
    if not may_match(b"\n".join(lines).splitlines(), [os.fsencode(path) for path in paths]):
        (repository / ".gitignore").write_bytes(b"\n".join(lines))
        assert git(repository, "check-ignore", "--no-index", "--", *named, ok=False) == ""


@pytest.mark.parametrize(
    ("rule", "path", "may"),
    [
        (b"*.log", b"a/b.log", True),
        (b"*.log", b"a/b.txt", False),
        (b"*.py[co]", b"a/b.pyc", True),
        (b"*.py[co]", b"a/b.py", False),
        (b"build/", b"build/out", True),
        (b"/build/x", b"a/y", False),
        (b"!Build", b"build", True),
        (b"a/**", b"c", True),
        (b"# a", b"a", False),
        (b"*a*a*a*a*a*a*a*a*b", b"c", True),
        (b"[a-c]", b"d", True),
        (b"x\\ ", b"d", True),
    ],
)
def test_git_is_asked_where_a_rule_could_match_or_is_not_plain(rule: bytes, path: bytes, *, may: bool) -> None:
    assert may_match([rule], [path]) is may


def test_git_is_asked_where_there_is_much_to_try() -> None:
    assert may_match([b"%d" % number for number in range(1000)], [b"a%d" % number for number in range(1000)])
