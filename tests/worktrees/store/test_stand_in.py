"""The user's repository is read without its configuration, and refused where git refuses it."""

import os
import shutil
from pathlib import Path
from tempfile import gettempdir

import anyio
import pytest

from fleet.errors import UsageError
from tests.worktrees.conftest import RUN, OpenBench, fingerprint, git, make_repository
from worktrees.git.isolated_git_dir import PREFIX
from worktrees.target.target import inspect


def plant(repository: Path, marker: Path) -> None:
    """Programs in three places of a configuration: a filter, an included file, and a worktree's own settings."""
    (repository / ".gitattributes").write_text("* filter=evil\n", encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "attributes")
    more = repository.parent / "more"
    more.write_text(f'[core]\n\tfsmonitor = "touch {marker}; false"\n', encoding="utf-8")
    git(repository, "config", "extensions.worktreeConfig", "true")
    shutil.copyfile(more, repository / ".git" / "config.worktree")
    git(repository, "config", "include.path", str(more))
    git(repository, "config", "filter.evil.clean", f"touch {marker}; cat")
    git(repository, "config", "core.alternateRefsCommand", f"touch {marker}; true #")
    other = make_repository(repository.parent / "other", {"x": "x\n"})
    (repository / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n", encoding="utf-8")
    for path in repository.glob("*"):
        os.utime(path, (1, 1))


async def test_no_program_of_its_configuration_runs_from_the_first_look_to_the_result(
    repository: Path, tmp_path: Path, open_bench: OpenBench
) -> None:
    marker = tmp_path / "marker"
    plant(repository, marker)
    git(repository, "status")
    assert marker.exists(), "the attack does not work without a defence"
    marker.unlink()
    before = fingerprint(repository)
    async with open_bench(repository) as bench:
        assert bench.target.warnings == ()  # every file is as it was committed, whatever its time
        member = await bench.change("one", {"a.txt": "a\n"})
        assert await bench.worktrees.publisher.publish(RUN, tip=member.commit) is None
    assert not marker.exists()
    assert git(repository, "show", "fleet/r1:a.txt") == "a"
    assert fingerprint(repository) == before


def test_what_a_killed_process_left_is_removed_by_the_next(repository: Path, tmp_path: Path) -> None:
    gone = Path(gettempdir(), f"{PREFIX}4194305-{tmp_path.name}")  # no process has such a number
    gone.mkdir()
    target = anyio.run(inspect, repository)
    assert target.stand_in.path.parent == gone.parent
    assert not gone.exists()


@pytest.fixture
def owned_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that git takes for another user's, and the home of the one who asks."""
    folder, home = tmp_path / "bin", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    wrapper = folder / "git"
    program = f'#!/bin/sh\nGIT_TEST_ASSUME_DIFFERENT_OWNER=1 exec {shutil.which("git")} "$@"\n'
    wrapper.write_text(program, encoding="utf-8")
    wrapper.chmod(0o755)
    repository = make_repository(tmp_path / "theirs")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith("GIT_CONFIG_")]:
        monkeypatch.delenv(name)
    return repository


async def test_a_repository_of_another_user_is_refused_as_git_refuses_it(owned_by_another: Path) -> None:
    with pytest.raises(UsageError, match=r"belongs to another user.*git config --global --add safe.directory"):
        await inspect(owned_by_another)
    git(
        owned_by_another,
        "config",
        "--file",
        f"{os.environ['HOME']}/.gitconfig",
        "safe.directory",
        str(owned_by_another),
    )
    assert (await inspect(owned_by_another)).root == owned_by_another
