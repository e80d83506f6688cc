"""A worker's git: it reads like the repository at the lease's base, and takes whatever is done to it."""

from pathlib import Path
from typing import Literal

import pytest

from fleet.core.base.ids import Sha, SubtaskId, attempt_ref
from fleet.core.plans.plan import Criterion
from fleet.ports.worktrees import Change, Lease
from tests.worktrees.conftest import RUN, Bench, OpenBench, git, make_repository
from worktrees.base.settings import LeaseKind
from worktrees.sandbox.box import Decoys


@pytest.fixture(params=["overlay", "pool"])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind | Literal["auto"]:
    return request.param  # type: ignore[no-any-return]


async def run(lease: Lease, script: str) -> str:
    result = await lease.workspace.run(script, timeout_s=60)
    assert result.exit_code == 0, result.output
    return result.output


async def test_reading_works_and_shows_the_base_and_what_changed_since(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        assert (
            await run(lease, "git rev-parse HEAD; git status --short; git for-each-ref | wc -l") == f"{bench.base}\n1\n"
        )
        assert await run(lease, "git log --format=%s; git show --format= --name-only HEAD") == (
            "start\n.gitignore\nREADME.md\nsrc/one.py\n"
        )
        assert "Ada" in await run(lease, "git blame src/one.py")
        await run(lease, "echo more >> README.md; echo n > new; echo n > noted.log; rm src/one.py")
        assert await run(lease, "git status --short") == " M README.md\n D src/one.py\n?? new\n"
        assert "+more\n" in await run(lease, "git diff README.md")
        assert await run(lease, "mkdir -p src && cd src && git rev-parse --show-prefix") == "src/\n"


async def test_a_later_base_near_an_older_one_is_shown_as_it_is(bench: Bench) -> None:
    first = await bench.change("one", {"src/one.py": "ONE = 11\n", "added.py": "A = 1\n"})
    async with bench.worktrees.lease(bench.base), bench.worktrees.lease(first.commit) as lease:
        shown = await run(lease, "git status --short; git ls-files; git diff --stat HEAD; git rev-parse HEAD HEAD~1")
        assert shown == f".gitignore\nREADME.md\nadded.py\nsrc/one.py\n{first.commit}\n{bench.base}\n"
        assert await run(lease, "echo x >> added.py; git status --short") == " M added.py\n"


async def test_what_a_worker_does_with_git_lasts_between_its_commands_and_stays_in_its_lease(bench: Bench) -> None:
    store = bench.worktrees.store.git
    before = await store("for-each-ref")
    async with bench.worktrees.lease(bench.base) as lease:
        await run(lease, "echo mine > mine.txt; git add -A; git commit -qm mine; echo y > y; git stash -qu")
        later = await run(lease, "git log --format=%s; git stash list --format=%gd; ls")
        assert later == "mine\nstart\nstash@{0}\nREADME.md\nmine.txt\nsrc\n"
        await run(lease, "git stash pop -q; git branch -f other HEAD~1; git tag t; git update-ref -d refs/heads/other")
        change = await bench.commit(lease)
    assert isinstance(change, Change)
    assert change.paths == ("mine.txt", "y")
    after = {line.split("\t")[1] for line in (await store("for-each-ref")).decode().splitlines()}
    assert after - {line.split("\t")[1] for line in before.decode().splitlines()} == {
        attempt_ref(RUN, SubtaskId("one"), 1)
    }
    assert await store.line("log", "-1", "--format=%P", change.commit) == bench.base


async def test_a_ruined_decoy_ruins_nothing_else(bench: Bench) -> None:
    marker = "/repo/marker"
    async with bench.worktrees.lease(bench.base) as lease:
        ruin = f"""
        printf '[core]\\nfsmonitor = "touch {marker}"\\nhooksPath = /repo\\n[alias]\\nstatus = !touch {marker}\\n' \
            >> /fleet/git/config
        mkdir /fleet/git/hooks; ln -s /etc/passwd /fleet/git/x; ln -sfn / /fleet/git/refs/loop
        chmod 000 /fleet/git/refs
        echo broken > /fleet/git/HEAD; echo x > /fleet/git/index; mkfifo /fleet/git/pipe; touch /fleet/git/index.lock
        echo done > done.txt; rm -f /repo/marker
        """
        await lease.workspace.run(ruin, timeout_s=20)
        assert (
            await lease.workspace.run("rm -f /fleet/objects/0/*/* /fleet/index /fleet/bin/git", timeout_s=20)
        ).exit_code != 0
        change = await bench.commit(lease)
        assert isinstance(change, Change)
        assert change.paths == ("done.txt",)
    assert (await bench.worktrees.store.git("fsck", "--strict")) == b""
    async with bench.worktrees.lease(bench.base) as lease:
        assert await run(lease, "git status --short; git log --format=%s") == "start\n"
    assert list(bench.settings.state_dir.rglob("marker")) == []


async def test_no_ref_of_another_attempt_or_run_is_visible(bench: Bench) -> None:
    other = await bench.change("secret-subtask", {"a": "1\n"})
    async with bench.worktrees.lease(bench.base) as lease:
        output = await run(
            lease, "git for-each-ref; git log --all --format=%H; grep -r secret-subtask /fleet/git || true"
        )
    assert other.commit not in output
    assert "secret-subtask" not in output


async def test_objects_borrowed_from_another_repository_are_shown_too(open_bench: OpenBench, tmp_path: Path) -> None:
    first = make_repository(tmp_path / "first")
    git(tmp_path, "clone", "-q", "--shared", str(first), "second")
    second = tmp_path / "second"
    (second / "own.txt").write_text("x\n", encoding="utf-8")
    git(second, "add", "-A")
    git(second, "commit", "-qm", "own")
    async with open_bench(second) as bench, bench.worktrees.lease(bench.base) as lease:
        assert len(Decoys.of(bench.worktrees.store.git_dir).objects) == 2
        assert await run(lease, "git log --format=%s; git fsck; git status --short") == "own\nstart\n"


async def test_a_shallow_repository_ends_where_it_ends(open_bench: OpenBench, repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "--allow-empty", "-qm", "later")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{repository}", "shallow")
    async with open_bench(tmp_path / "shallow") as bench, bench.worktrees.lease(bench.base) as lease:
        assert await run(lease, "git log --format=%s") == "later\n"


def test_both_kinds_of_object_ids_are_read(tmp_path: Path) -> None:
    decoys = Decoys((tmp_path / "objects",), b"", b"")
    for letters, kind in ((40, "sha1"), (64, "sha256")):
        folder = tmp_path / kind
        decoys.decoy(folder, Sha("a" * letters), index=tmp_path / "index", exact=True).make()
        assert git(folder, "--git-dir=.", "rev-parse", "--show-object-format") == kind


async def test_checks_see_the_same_repository(bench: Bench) -> None:
    clean = Criterion(criterion="clean", run="git diff --quiet HEAD && git describe --always && git tag seen")
    async with bench.worktrees.lease(bench.base) as lease:
        await run(lease, "git commit -qm more --allow-empty; echo x > README.md")
        await run(lease, "git checkout -q README.md")
        first, second = await lease.check(clean), await lease.check(clean)
    assert first.passed, first.output
    assert second.passed, "a check left a tag behind"
    assert bench.base.startswith(first.output.strip()), "a check sees what the worker committed"
