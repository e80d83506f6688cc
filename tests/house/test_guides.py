"""AGENTS.md is short, and names only folders, files and commands that exist."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.verbs import FENCED, INLINE, commands_in, problem_with

LONGEST = 80
CODE = (
    "fleet",
    "agents",
    "worktrees",
    "dashboards",
    "tests",
    "bench",
    "chaos",
    "evaluation",
    "docs",
    "examples",
    "scripts",
)
_PATH = re.compile(rf"(?:\.?/)?(?:{'|'.join(CODE)}|\.ci|\.venv/bin)/[\w./-]*")


@pytest.fixture
def guide(files: Mapping[str, str]) -> str:
    return files["AGENTS.md"]


def paths_in(text: str) -> Iterator[str]:
    """The folders and files that it names, in its commands and in its prose."""
    blocks = [line.partition(" # ")[0] for match in FENCED.finditer(text) for line in match[3].splitlines()]
    for piece in (*blocks, *INLINE.findall(FENCED.sub("", text))):
        yield from (word for word in piece.split() if _PATH.fullmatch(word))


def test_every_path_that_it_names_is_there(guide: str, root: Path) -> None:
    named = list(paths_in(guide))
    assert len(named) > 20
    assert [path for path in named if not (root / path).exists()] == []


def test_every_command_that_it_names_exists(guide: str) -> None:
    shown = list(commands_in("AGENTS.md", guide))
    assert len(shown) > 5
    assert [f"{command}: {problem}" for command in shown if (problem := problem_with(command))] == []


def test_every_folder_of_code_is_on_its_map(guide: str, root: Path) -> None:
    named = {path.partition("/")[0] for path in paths_in(guide)}
    assert {folder for folder in CODE if (root / folder).is_dir()} - named == set()


def test_it_is_short(guide: str) -> None:
    assert len(guide.splitlines()) <= LONGEST


def test_a_path_that_is_not_there_would_be_seen(root: Path) -> None:
    text = "see `fleet/gone/`\n\n```console\n$ .venv/bin/pytest tests/gone # why\n```\n"
    assert [path for path in paths_in(text) if not (root / path).exists()] == ["tests/gone", "fleet/gone/"]
