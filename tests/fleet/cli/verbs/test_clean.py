"""`fleet clean`: what goes, of which kind, in which order, and what never does."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fleet.cli.verbs.clean import Cleaned, CleanOptions, clean_up, clean_view, text_lines
from fleet.core.base.ids import RunId, SubtaskId, attempt_ref, taken_ref
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.base_view import dump_view
from fleet.runs.journal import Journal
from fleet.runs.run_folder import runs_dir
from tests.fleet.processes import LIMIT_S, clean_environment
from tests.worktrees.conftest import git, make_repository, sha_at
from worktrees.leases.gc import IDLE_S, remove_store
from worktrees.store.store import Store, begin_run, delete_branch, fetch, open_store, result_branches, try_lock
from worktrees.target.publish import published_ref
from worktrees.target.target import inspect

LOST = SubtaskId("lost")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - the one other file system that every Linux has
    with TemporaryDirectory(prefix="fleet-test-", dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder, "state")


async def a_store(state: Path) -> Store:
    repository = state.with_name("project")
    target = await inspect(repository if repository.exists() else make_repository(repository))
    return await open_store(state, target, target.base)


async def a_run(
    state: Path, name: str, *, ending: str | None = "landed", stray: bool = False, age_s: float = 0
) -> Store:
    """One that left a pool worktree, overlays, a journal, a transcript and a log."""
    run, store = RunId(name), await a_store(state)
    base = sha_at(state.with_name("project"))
    await begin_run(store, run, base)
    await store.git("update-ref", published_ref(run), base)
    if stray:
        tree = await store.git.line("rev-parse", f"{base}^{{tree}}")
        who = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        commit = await store.git.line("commit-tree", tree, "-p", base, env=who, data=run.encode())
        await store.git("update-ref", attempt_ref(run, LOST, 1), commit)
    slots = store.home / "slots" / run
    slots.mkdir(parents=True)
    slots.with_name(f"{run}.lock").touch()
    for part in ("1", "overlays/bases/1/tree", "overlays/layers/2", "overlays/leases/3", "overlays/setups/1"):
        (slots / part).mkdir(parents=True)
        (slots / part / "file").write_bytes(b"x" * 100_000)
    folder = runs_dir(state) / run
    for part in ("transcripts", "checks"):
        (folder / part).mkdir(parents=True)
        (folder / part / "one").write_bytes(b"x" * 50_000)
    now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    started = f.RunStarted(
        at=now,
        run=run,
        goal="x",
        repository="project",
        base=base,
        base_name="main",
        result_branch=f"fleet/{run}",
        policy=Policy(),
    )
    facts: list[f.Fact] = [started]
    if ending is not None:
        facts.append(f.RunEnded.model_validate({"at": now, "ending": ending, "why": "x"}))
    with Journal.create(folder / "journal.db") as journal:
        journal.append(facts)
    used = time.time() - age_s
    os.utime(folder / "journal.db", (used, used))
    return store


def kinds(cleaned: Cleaned) -> dict[str, int]:
    return {part.kind: part.number for part in cleaned.kinds}


WORKTREES = {"pool worktrees": 1, "base layers": 1, "diff layers": 1, "overlay leases": 1, "set-up layers": 1}
MEMORIES = {"journals": 1, "transcripts": 1, "logs of checks": 1}


async def test_it_says_by_kind_what_would_go_and_removes_just_that(state: Path) -> None:
    store = await a_run(state, "r1")
    seen = await clean_up(state, CleanOptions())
    assert kinds(seen) == WORKTREES
    assert 500_000 <= seen.size < seen.total
    assert (store.home / "slots/r1/1").exists()
    assert await clean_up(state, CleanOptions(apply=True)) == seen
    assert not (store.home / "slots/r1").exists()
    assert (runs_dir(state) / "r1/journal.db").exists()
    assert (await clean_up(state, CleanOptions())).leftovers == ()


async def test_a_run_that_landed_is_forgotten_and_then_its_store_may_go(state: Path) -> None:
    store = await a_run(state, "r1")
    gone = await clean_up(state, CleanOptions(apply=True, runs=True))
    assert kinds(gone) == {**WORKTREES, **MEMORIES, "refs of landed work": 3}
    assert not (runs_dir(state) / "r1").exists()
    assert (await clean_up(state, CleanOptions())).leftovers == (), "a run may just be about to use it"
    before = time.time() - IDLE_S - 1
    os.utime(store.home / "lock", (before, before))
    assert kinds(await clean_up(state, CleanOptions(apply=True))) == {"stores": 1}
    assert not store.home.exists()
    again = await a_store(state)
    assert await again.git.sha(git(state.with_name("project"), "rev-parse", "HEAD"))


async def test_a_store_that_is_wanted_again_meanwhile_stays(state: Path) -> None:
    store = await a_store(state)
    assert not await remove_store(store.home, set)
    await begin_run(store, RunId("r2"), sha_at(state.with_name("project")))
    assert not await remove_store(store.home, lambda: {RunId("r2")}, idle_s=-1)
    assert store.git_dir.exists()


async def test_a_store_of_deleted_runs_that_left_no_work_goes_also_if_its_repository_is_gone(state: Path) -> None:
    store = await a_store(state)
    await begin_run(store, RunId("refused"), sha_at(state.with_name("project")))
    before = time.time() - IDLE_S - 1
    os.utime(store.home / "lock", (before, before))
    shutil.rmtree(state.with_name("project"))
    assert kinds(await clean_up(state, CleanOptions(apply=True))) == {"stores": 1}
    assert not store.home.exists()


async def test_the_store_of_a_repository_that_is_gone_goes_with_its_work_if_that_is_asked_and_nothing_else_does(
    state: Path,
) -> None:
    store = await a_run(state, "r1", stray=True)
    project = state.with_name("project")
    gone = CleanOptions(apply=True, gone=True)
    await clean_up(state, gone)
    assert store.git_dir.exists(), "its repository is there"
    project.rename(project.with_name("moved"))
    [kept] = [left for left in (await clean_up(state, CleanOptions(apply=True, ended=True))).leftovers if not left.goes]
    assert f"its repository {project} is gone, with work of r1 (use --gone to delete it)" in kept.kept
    with try_lock(store.home / "slots/r1.lock"):
        await clean_up(state, gone)
        assert store.git_dir.exists(), "a run is at work in it"
    lines = text_lines(await clean_up(state, CleanOptions(gone=True)), CleanOptions(gone=True))
    assert lines[-1].endswith("fleet clean --apply --gone")
    assert kinds(await clean_up(state, gone)) == {"stores": 1}
    assert not store.home.exists()
    assert (await clean_up(state, gone)).leftovers == ()


async def test_result_branches_go_where_they_are_merged_and_nowhere_else(state: Path, tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "work")
    await a_run(state, "merged")
    project = state.with_name("project")
    for name in ("merged", "copied", "open", "here"):
        git(project, "checkout", "--quiet", "-b", f"fleet/{name}", "main")
        git(project, "commit", "--quiet", "--allow-empty", "-m", name)
    merged, copied = sha_at(project, "fleet/merged"), sha_at(project, "fleet/copied")
    git(project, "branch", "--force", "main", "fleet/merged")
    git(project, "checkout", "--quiet", "-b", "other", "main")
    git(project, "commit", "--quiet", "--allow-empty", "-m", "a copy")
    copy = sha_at(project, "other")
    git(project, "checkout", "--quiet", "fleet/here")
    store = await a_store(state)
    await fetch(store, await inspect(project), copy)
    await store.git("update-ref", taken_ref(RunId("copied"), copied, merged), copy)
    found = await result_branches(project, state, set())
    assert {branch.name: branch.kept for branch in found} == {
        "fleet/copied": "",
        "fleet/here": "it is checked out",
        "fleet/merged": "",
        "fleet/open": "it is not merged into another branch",
    }
    assert [b.kept for b in await result_branches(project, state, {RunId("merged")}) if b.name == "fleet/merged"] == [
        "its run has not ended"
    ]
    git(project, "branch", "--force", "fleet/merged", "fleet/open")  # moved since it was looked at
    for branch in found:
        if not branch.kept:
            await delete_branch(branch)
    left = git(project, "for-each-ref", "--format=%(refname:short)", "refs/heads/fleet").splitlines()
    assert left == ["fleet/here", "fleet/merged", "fleet/open"]
    assert await result_branches(tmp_path / "gone", state, set()) == []
    assert await result_branches(repository, state, set()) == []


@pytest.mark.parametrize("ending", ["partial", "cancelled", "failed"])
async def test_other_ended_runs_are_forgotten_only_when_that_is_asked_and_their_commits_stay(
    state: Path, ending: str
) -> None:
    store = await a_run(state, "r1", ending=ending, stray=True)
    await clean_up(state, CleanOptions(apply=True, runs=True))
    assert (runs_dir(state) / "r1/journal.db").exists()
    gone = await clean_up(state, CleanOptions(apply=True, ended=True))
    assert MEMORIES.items() <= kinds(gone).items()
    assert not (runs_dir(state) / "r1").exists()
    assert await store.git.sha(attempt_ref(RunId("r1"), LOST, 1)) is not None
    before = time.time() - IDLE_S - 1
    os.utime(store.home / "lock", (before, before))
    after = await clean_up(state, CleanOptions(apply=True, ended=True))
    assert "r1" in after.leftovers[0].kept, "the output still names their store"
    assert str(store.git_dir) in after.leftovers[0].kept
    assert store.git_dir.exists()


async def test_what_is_in_use_or_has_not_ended_is_left_alone(state: Path) -> None:
    options = CleanOptions(apply=True, runs=True, ended=True)
    store = await a_run(state, "r1", ending=None)
    with try_lock(store.home / "slots/r1.lock") as ours:
        assert ours
        assert (await clean_up(state, options)).leftovers[0].kept == "its worktrees are in use"
    assert (store.home / "slots/r1/1/file").exists()
    await clean_up(state, options)
    assert (runs_dir(state) / "r1/journal.db").exists(), "it can be resumed"


async def test_to_fit_a_limit_the_longest_idle_go_first_and_no_more_than_needed(state: Path) -> None:
    await a_run(state, "young", age_s=10)
    await a_run(state, "old", age_s=1000)
    store = await a_run(state, "middle", age_s=500, stray=True)
    total = (await clean_up(state, CleanOptions())).total
    options = CleanOptions(apply=True, runs=True, max_bytes=total - 700_000)
    seen = await clean_up(state, options)
    assert [leftover.name for leftover in seen.leftovers if leftover.goes] == ["run old", "run middle"]
    assert {path.name for path in runs_dir(state).iterdir()} == {"young", "middle"}
    assert (store.home / "slots/young/1").exists()
    assert await store.git.sha(attempt_ref(RunId("middle"), LOST, 1)) is not None
    assert (await clean_up(state, CleanOptions(max_bytes=10**12))).kinds == ()
    tight = await clean_up(state, CleanOptions(max_bytes=0))
    assert "over the limit: the rest is in use" in text_lines(tight, CleanOptions(max_bytes=0))[-1]


async def test_the_limit_is_a_matter_of_configuration_and_the_flag_has_the_last_word(state: Path) -> None:
    await a_run(state, "r1")
    environment = clean_environment(
        FLEET_STATE_DIR=str(state), XDG_CONFIG_HOME=str(state / "config"), FLEET_STATE_MAX_GB="5"
    )

    def clean(*arguments: str) -> str:
        command = [sys.executable, "-m", "fleet", "clean", *arguments]
        done = subprocess.run(
            command, cwd=state, env=environment, capture_output=True, text=True, check=True, timeout=LIMIT_S
        )
        return done.stdout

    assert "1 set-up layer kept, within the limit" in clean()
    assert "1 set-up layer would be deleted" in clean("--max-gb", "0")


async def test_the_result_is_printed_for_people_and_for_scripts(state: Path) -> None:
    await a_run(state, "r1", ending="partial", stray=True)
    options = CleanOptions(runs=True)
    seen = await clean_up(state, options)
    lines = text_lines(seen, options)
    assert lines[0].startswith("run r1: 1 base layer, 1 diff layer")
    [ended] = (await clean_up(state, CleanOptions(ended=True))).leftovers
    assert ended.kept.startswith("4 refs of work that has not landed, in ")
    assert lines[0].endswith("would be deleted")
    assert lines[-1].endswith(". To delete them: fleet clean --apply --runs")
    data = json.loads(json.dumps(dump_view(clean_view(seen, options))))
    assert {each["kind"] for each in data["kinds"]} == set(WORKTREES)
    assert data["left"][0]["deleted"]
    assert text_lines(Cleaned((), 0), options) == ["nothing to clean"]
