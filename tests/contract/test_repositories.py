"""The guarantees of a read-only commit that planners rely on: of one in git, and of the one in their tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.ports.agents import PlannerRepository, WorkspaceError
from tests.fleet.eyes import Files
from tests.worktrees.conftest import RUN, make_repository, product_settings
from worktrees.leases.run_worktrees import open_worktrees
from worktrees.target.target import inspect

FILES = {"README.md": "# hello\n", "src/a.py": "one = 1\ntwo = 2\n", "src/b.py": "three = 3\n"}


@pytest.fixture(params=["fake", "store"])
async def repository(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PlannerRepository]:
    if request.param == "fake":
        yield Files(FILES)
        return
    target = await inspect(make_repository(tmp_path / "project", FILES))
    settings = product_settings(tmp_path / "state")
    async with open_worktrees(target, settings, RUN, target.base) as opened:
        yield opened.at(target.base)


async def test_files_are_listed_by_the_patterns_of_subtasks(repository: PlannerRepository) -> None:
    assert list(await repository.list_files()) == sorted(FILES)
    assert list(await repository.list_files("src/**")) == ["src/a.py", "src/b.py"]
    assert list(await repository.list_files("docs/**")) == []


async def test_a_file_is_read_as_it_is_and_a_missing_one_is_an_error_for_the_reader(
    repository: PlannerRepository,
) -> None:
    assert await repository.read_file("src/a.py") == FILES["src/a.py"]
    with pytest.raises(WorkspaceError, match="does not exist"):
        await repository.read_file("src/c.py")


async def test_a_search_names_the_file_and_the_line_and_says_so_if_it_finds_nothing(
    repository: PlannerRepository,
) -> None:
    assert await repository.search("two") == "src/a.py:2: two = 2"
    assert await repository.search("=", "src/b.py") == "src/b.py:1: three = 3"
    assert await repository.search("four") == "nothing found"


async def test_history_is_text(repository: PlannerRepository) -> None:
    assert (await repository.history(limit=3)).strip()
    assert (await repository.history("src/a.py", limit=3)).strip()
