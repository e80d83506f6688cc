"""`fleet clean`: what goes, of which kind, in which order, and what never does."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fleet.cli.tidy import Tidied, Wanted, as_data, shown, tidy
from fleet.core import facts as f
from fleet.core.ids import attempt_ref
from fleet.core.policy import Policy
from fleet.folders import runs_dir
from fleet.journal import Journal
from tests.fleet.processes import LIMIT_S, clean_environment
from tests.worktrees.conftest import git, make_repository
from worktrees.clean import IDLE_S, remove_store
from worktrees.publish import published_ref
from worktrees.store import Store, begin_run, open_store, try_lock
from worktrees.target import inspect


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
    state: Path, run: str, *, ending: str | None = "landed", stray: bool = False, age_s: float = 0
) -> Store:
    """One that left a pool worktree, overlays, a journal, a transcript and a log."""
    store = await a_store(state)
    base = git(state.with_name("project"), "rev-parse", "HEAD")
    await begin_run(store, run, base)
    await store.git("update-ref", published_ref(run), base)
    if stray:
        tree = await store.git.line("rev-parse", f"{base}^{{tree}}")
        who = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        commit = await store.git.line("commit-tree", tree, "-p", base, env=who, data=run.encode())
        await store.git("update-ref", attempt_ref(run, "lost", 1), commit)
    slots = store.home / "slots" / run
    slots.mkdir(parents=True)
    slots.with_name(f"{run}.lock").touch()
    for name in ("1", "overlays/bases/1/tree", "overlays/layers/2", "overlays/leases/3", "overlays/dresses/1"):
        (slots / name).mkdir(parents=True)
        (slots / name / "file").write_bytes(b"x" * 100_000)
    folder = runs_dir(state) / run
    for name in ("transcripts", "checks"):
        (folder / name).mkdir(parents=True)
        (folder / name / "one").write_bytes(b"x" * 50_000)
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


def kinds(tidied: Tidied) -> dict[str, int]:
    return {part.kind: part.number for part in tidied.kinds}


WORKTREES = {"pool worktrees": 1, "overlay grounds": 1, "overlay layers": 1, "overlay leases": 1, "set-ups": 1}
MEMORIES = {"journals": 1, "transcripts": 1, "logs of checks": 1}


async def test_it_says_by_kind_what_would_go_and_removes_just_that(state: Path) -> None:
    store = await a_run(state, "r1")
    seen = await tidy(state, Wanted())
    assert kinds(seen) == WORKTREES
    assert 500_000 <= seen.size < seen.total
    assert (store.home / "slots/r1/1").exists()
    assert await tidy(state, Wanted(apply=True)) == seen
    assert not (store.home / "slots/r1").exists()
    assert (runs_dir(state) / "r1/journal.db").exists()
    assert (await tidy(state, Wanted())).left == ()


async def test_a_run_that_landed_is_forgotten_and_then_its_store_may_go(state: Path) -> None:
    store = await a_run(state, "r1")
    gone = await tidy(state, Wanted(apply=True, runs=True))
    assert kinds(gone) == {**WORKTREES, **MEMORIES, "refs of landed work": 3}
    assert not (runs_dir(state) / "r1").exists()
    assert (await tidy(state, Wanted())).left == (), "somebody may just be about to use it"
    before = time.time() - IDLE_S - 1
    os.utime(store.home / "lock", (before, before))
    assert kinds(await tidy(state, Wanted(apply=True))) == {"stores": 1}
    assert not store.home.exists()
    again = await a_store(state)
    assert await again.git.sha(git(state.with_name("project"), "rev-parse", "HEAD"))


async def test_a_store_that_is_wanted_again_meanwhile_stays(state: Path) -> None:
    store = await a_store(state)
    assert not await remove_store(store.home)
    await begin_run(store, "r2", git(state.with_name("project"), "rev-parse", "HEAD"))
    assert not await remove_store(store.home, idle_s=-1)
    assert store.git_dir.exists()


@pytest.mark.parametrize("ending", ["partial", "cancelled", "failed"])
async def test_other_ended_runs_are_forgotten_only_when_that_is_asked_and_their_commits_stay(
    state: Path, ending: str
) -> None:
    store = await a_run(state, "r1", ending=ending, stray=True)
    await tidy(state, Wanted(apply=True, runs=True))
    assert (runs_dir(state) / "r1/journal.db").exists()
    gone = await tidy(state, Wanted(apply=True, ended=True))
    assert MEMORIES.items() <= kinds(gone).items()
    assert not (runs_dir(state) / "r1").exists()
    assert await store.git.sha(attempt_ref("r1", "lost", 1)) is not None
    before = time.time() - IDLE_S - 1
    os.utime(store.home / "lock", (before, before))
    after = await tidy(state, Wanted(apply=True, ended=True))
    assert "r1" in after.left[0].kept, "it is still said where they are"
    assert str(store.git_dir) in after.left[0].kept
    assert store.git_dir.exists()


async def test_what_is_in_use_or_has_not_ended_is_left_alone(state: Path) -> None:
    wanted = Wanted(apply=True, runs=True, ended=True)
    store = await a_run(state, "r1", ending=None)
    with try_lock(store.home / "slots/r1.lock") as ours:
        assert ours
        assert (await tidy(state, wanted)).left[0].kept == "its worktrees are in use"
    assert (store.home / "slots/r1/1/file").exists()
    await tidy(state, wanted)
    assert (runs_dir(state) / "r1/journal.db").exists(), "it can be resumed"


async def test_to_fit_a_limit_the_longest_idle_go_first_and_no_more_than_needed(state: Path) -> None:
    await a_run(state, "young", age_s=10)
    await a_run(state, "old", age_s=1000)
    store = await a_run(state, "middle", age_s=500, stray=True)
    total = (await tidy(state, Wanted())).total
    wanted = Wanted(apply=True, runs=True, max_bytes=total - 700_000)
    seen = await tidy(state, wanted)
    assert [left.of for left in seen.going] == ["run old", "run middle"]
    assert {path.name for path in runs_dir(state).iterdir()} == {"young", "middle"}
    assert (store.home / "slots/young/1").exists()
    assert await store.git.sha(attempt_ref("middle", "lost", 1)) is not None
    assert (await tidy(state, Wanted(max_bytes=10**12))).going == ()
    tight = await tidy(state, Wanted(max_bytes=0))
    assert "more than wanted are in use" in shown(tight, Wanted(max_bytes=0))[-1]


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

    assert "1 set-up stays, there is room" in clean()
    assert "1 set-up would go" in clean("--max-gb", "0")


async def test_it_is_told_to_people_and_to_scripts(state: Path) -> None:
    await a_run(state, "r1", ending="partial", stray=True)
    wanted = Wanted(runs=True)
    seen = await tidy(state, wanted)
    lines = shown(seen, wanted)
    assert lines[0].startswith("run r1: 1 overlay ground, 1 overlay layer")
    [ended] = (await tidy(state, Wanted(ended=True))).left
    assert ended.kept.startswith("4 refs of work that has not landed, in ")
    assert lines[0].endswith("would go")
    assert lines[-1].endswith("in all; `fleet clean --apply --runs` removes it")
    data = json.loads(json.dumps(as_data(seen, wanted)))
    assert {each["kind"] for each in data["kinds"]} == set(WORKTREES)
    assert data["left"][0]["goes"]
    assert shown(Tidied((), 0), wanted) == ["nothing was left behind"]
