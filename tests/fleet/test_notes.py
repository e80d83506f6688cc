"""What the minds are told of a repository's own words."""

import pytest

from fleet.notes import LIMIT, planner_notes, worker_notes
from tests.fleet.fakes import FakeRepository

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
