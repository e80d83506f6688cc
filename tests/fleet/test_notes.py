"""What the minds are told of a repository's own words."""

import pytest

from fleet.notes import LIMIT, layout, planner_notes, worker_notes
from tests.fleet.eyes import FakeRepository

pytestmark = pytest.mark.anyio


async def test_the_planner_reads_agents_and_one_readme_and_a_worker_agents_alone() -> None:
    repository = FakeRepository("c", {"README.rst": "hi", "README": "old", "AGENTS.md": "x" * (LIMIT + 1)})
    notes = await planner_notes(repository)
    assert list(notes) == ["AGENTS.md", "README.rst"]
    assert len(notes["AGENTS.md"]) == LIMIT
    assert await worker_notes(repository) == notes["AGENTS.md"]


async def test_a_repository_without_words_says_nothing() -> None:
    assert await planner_notes(FakeRepository("c", {})) == {}
    assert await worker_notes(FakeRepository("c", {})) == ""


def test_a_layout_names_the_files_of_each_folder_the_shallow_ones_first() -> None:
    paths = ["src/deep/er/c.py", "README.md", "src/b.py", "src/a.py"]
    assert layout(paths) == "./: README.md\nsrc/: a.py b.py\nsrc/deep/er/: c.py"


def test_a_layout_of_many_files_stays_short_and_counts_what_it_does_not_name() -> None:
    paths = [f"part{number % 7}/folder{number % 100}/module{number}.py" for number in range(5_000)]
    told = layout(paths, 2_000)
    assert len(told) <= 2_000
    assert told.endswith(" files")
    assert layout([]) == ""
