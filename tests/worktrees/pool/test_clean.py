"""A worktree that is leased again, the quick way: as a fresh checkout would be, whatever the last tenant did."""

import os
import shlex
import stat
import subprocess
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Literal

import pytest
from anyio import CancelScope, current_time, sleep, to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.facts import Failure
from fleet.ports import Change
from tests.worktrees.conftest import Bench, OpenBench, added_by_git, git, make_repository, sign
from worktrees import commits, slots, warm
from worktrees.commits import commit_slot
from worktrees.handover import HandOver
from worktrees.settings import LeaseKind
from worktrees.slot import Slot
from worktrees.store import Store
from worktrees.strays import Odd

FILES = {
    ".gitignore": "*.log\n",
    ".gitattributes": "* text=auto\n",
    "a/one": "1\n",
    "a/b/two": "2\n",
    "a/b/c/three": "3\n",
    "d e/four": "4\n",
    "six": "6\n",
}
NAMES = ("a", "b", "c", "one", "two", "d e", "six", "x.log", "ü", ":(top)", "link", "run", "new", "deep")
TEXTS = ("1\n", "2\n", "*\n", "a\r\nb\r\n", "")
Where = dict[str, tuple[int, bytes]]


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "pool"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    at = make_repository(tmp_path / "project", FILES)
    (at / "run").write_text("#!/bin/sh\n", encoding="utf-8")
    (at / "run").chmod(0o755)
    (at / "link").symlink_to("a/b")
    git(at, "add", "--all")
    git(at, "commit", "--quiet", "--message", "one")
    for script in (
        "echo 22 > a/b/two; git mv six seven; rm link; mkdir link; echo x > link/x; chmod -x run",
        "git rm -rq a/b; echo b > a/b; git mv 'd e' d; mkdir -p new/deep; echo n > new/deep/file",
    ):
        shell(script, at)
        git(at, "add", "--all")
        git(at, "commit", "--quiet", "--message", script)
    return at


def shell(script: str, at: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    subprocess.run(["sh", "-c", script], cwd=at, env=env, check=False, capture_output=True, timeout=60)


def everything(tree: Path) -> Where:
    found: Where = {}
    for folder, folders, names in os.walk(os.fsencode(tree)):
        for name in (*folders, *names):
            path = os.path.join(folder, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            found[os.fsdecode(os.path.relpath(path, os.fsencode(tree)))] = (status.st_mode, content)
    found.pop(".git")
    return found


def fresh(bench: Bench, commit: str) -> Where:
    """What a checkout of nothing but this commit holds."""
    at = bench.repository.with_name(f"fresh-{commit}")
    if not at.exists():
        git(bench.repository, "worktree", "add", "--quiet", "--detach", str(at), commit)
    return everything(at)


def line(bench: Bench) -> list[str]:
    return git(bench.repository, "rev-list", "--reverse", "HEAD").split()[-3:]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each slot was put in order, and made ready again."""
    went: list[str] = []

    async def watched(store: Store, slot: Slot, handed: HandOver, base: str, *, tidied: bool = False) -> HandOver:
        try:
            new = await warm.move(store, slot, handed, base, tidied=tidied)
        except BaseException as error:
            went.append(repr(error))
            raise
        went.append("settled" if new.settled else "quick")
        return new

    monkeypatch.setattr(slots, "move", watched)
    return went


async def settled(bench: Bench, base: str) -> None:
    """Until the index is older than a second, and no file in it of the second it was written in."""
    while True:
        async with bench.hands.pool.lease(base) as slot:
            handed = bench.hands.pool.handed(slot)
            assert handed is not None
            if handed.settled:
                return
        await sleep(0.1)


paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join) | st.sampled_from([*FILES])
quoted = paths.map(shlex.quote)
edits = st.one_of(
    st.builds("mkdir -p $(dirname {0}); printf %s {1} > {0}".format, quoted, st.sampled_from(TEXTS).map(shlex.quote)),
    st.builds("printf %s {1} > {0}; touch -r run {0}".format, quoted, st.sampled_from(TEXTS).map(shlex.quote)),
    st.builds("rm -rf {}".format, quoted),
    st.builds("mv -T {} {}".format, quoted, quoted),
    st.builds("mv -T {0} swap; mv -T {1} {0}; mv -T swap {1}".format, quoted, quoted),
    st.builds("cp -a {} {}".format, quoted, quoted),
    st.builds("ln -f {} {}".format, quoted, quoted),
    st.builds("chmod {} {}".format, st.sampled_from(("+x", "-x", "000", "4755", "2777")), quoted),
    st.builds("rm -f {1}; ln -sfn {0} {1}".format, st.sampled_from(("one", "six", "..", "../../out")), quoted),
    st.builds("rm -rf {0}; ln -s run {0}".format, quoted),  # git itself loses track behind a link to itself
    st.builds("mkdir -p {0}/.git; echo x > {0}/.git/HEAD".format, quoted),
    st.builds("mkdir -p {0}; touch {0}/x.log".format, quoted),
)
tenancies = st.tuples(st.integers(0, 2), st.lists(edits, max_size=5), st.sampled_from(["commit", "both", "nothing"]))


@given(visits=st.lists(tenancies, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_a_lease_is_a_fresh_checkout_and_a_commit_is_what_git_would_add(
    bench: Bench, visits: list[tuple[int, list[str], str]]
) -> None:
    for at, steps, then in visits:
        base = line(bench)[at]
        async with bench.hands.pool.lease(base) as slot:
            assert everything(slot.tree) == fresh(bench, base)
            await to_thread.run_sync(shell, "\n".join(f"({step})" for step in steps), slot.tree)
            if then != "nothing":
                await commits_like_git(bench, slot, base, also="complete" if then == "both" else "")
    base = line(bench)[visits[0][0]]
    async with bench.hands.pool.lease(base) as slot:
        assert everything(slot.tree) == fresh(bench, base)


async def commits_like_git(bench: Bench, slot: Slot, base: str, *, also: Literal["complete", ""]) -> None:
    handed = bench.hands.pool.handed(slot)
    ours = await committed(bench, slot, base, handed)
    if isinstance(ours, Change):
        tree = await bench.hands.store.git.line("rev-parse", f"{ours.commit}^{{tree}}")
        assert tree == await added_by_git(slot, base, bench.settings.state_dir / "index")
    if also:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commits, "left_by", refuse)
            theirs = await committed(bench, slot, base, handed)
        assert said(ours) == said(theirs)


async def test_attributes_that_are_changed_count_in_gits_order_whatever_was_written_before(bench: Bench) -> None:
    first, second, _ = line(bench)
    await settled(bench, second)
    async with bench.hands.pool.lease(first) as slot:  # six is of the kind that the index knows nothing of
        await to_thread.run_sync(
            shell, "printf 'a\\r\\nb\\r\\n' > six; rm .gitattributes; ln -s a/one .gitattributes", slot.tree
        )
        await commits_like_git(bench, slot, first, also="complete")


async def test_a_folder_that_another_commit_has_goes_although_a_tenant_emptied_it(
    bench: Bench, quick: list[str]
) -> None:
    first, _, third = line(bench)
    await settled(bench, third)
    async with bench.hands.pool.lease(third) as slot:
        await to_thread.run_sync(shell, "rm -r new/deep", slot.tree)
        quick.clear()
    async with bench.hands.pool.lease(first) as slot:
        assert everything(slot.tree) == fresh(bench, first)
        assert quick == ["settled", "settled"]


async def test_a_file_that_is_ignored_stays_out_although_another_commit_has_it(bench: Bench) -> None:
    first, second, _ = line(bench)
    await settled(bench, first)
    async with bench.hands.pool.lease(second) as slot:  # the index still knows of six
        await to_thread.run_sync(shell, "echo '*' > .gitignore; echo 1 > six", slot.tree)
        await commits_like_git(bench, slot, second, also="complete")


async def committed(bench: Bench, slot: Slot, base: str, handed: HandOver | None) -> Change | Failure:
    return await commit_slot(
        bench.hands.store,
        slot,
        base,
        handed,
        signature=sign(),
        touches=("**", ".gitattributes"),
        settings=bench.settings,
        most_files=1000,
    )


async def refuse(*_: object, **__: object) -> None:
    raise Odd("as the test wants it")


def said(found: Change | Failure) -> object:
    return (found.kind, sorted(found.evidence.splitlines())) if isinstance(found, Failure) else found.paths


HOSTILE = {
    "same size, same time of modification": "cp -p six keep; printf '7\\n' > six; touch -r keep six; rm keep",
    "the mode alone": "chmod 4777 run; chmod 666 six; chmod 777 a",
    "a mode that closes": "chmod 000 a/one a/b a",
    "attributes of a folder": "setfattr -n user.x -v y a",
    "a hard link to a file of the tree": "ln -f a/one a/b/two; echo evil >> a/one; rm a/b/two",
    "a file moved over another of its size": "mv six a/one",
    "a folder for a link to it": "mv a z; ln -s z a; echo evil > z/one",
    "a folder for a link to itself": "rm -rf a; ln -s a a",
    "a link for a link to itself": "rm link; ln -s link link",
    "a folder for a link out": "rm -rf a; ln -s /etc a",
    "folders swapped": "mv a z; mv 'd e' a; mv z 'd e'",
    "special files": "mkfifo a/pipe; rm six; mkfifo six",
    "repositories inside": "mkdir a/.git; mkdir -p x/.git; echo '[core]' > x/.git/config; echo gitdir: x > a/b/.GIT",
    "rules that hide": "mkdir hid; echo '*' > hid/.gitignore; echo x > hid/x; echo x > a/x.log; rm .gitignore",
    "attributes that hide": "echo '* text' > a/.gitattributes; printf '1\\r\\n' > a/one; touch -r six a/one",
    "attributes that were there": "echo '* text eol=crlf' > .gitattributes; touch -d @1 .gitattributes",
    "empty folders": "mkdir -p a/e/f/g h",
    "more than is removed at once": "mkdir a/many; touch $(seq -f a/many/%g 700)",
    "a folder nobody can enter": "mkdir a/shut; echo x > a/shut/x; chmod 000 a/shut",
    "deeper than anything": "for i in $(seq 300); do mkdir d; cd d; done",
    "nothing left": "rm -rf a 'd e' six run link .git*",
    "a touch": "touch a/one; touch a",
}
ODD = {"attributes that were there", "nothing left"}  # these are gone through whole


@pytest.mark.parametrize("deed", HOSTILE)
async def test_no_deed_outlives_its_tenant(bench: Bench, deed: str, quick: list[str]) -> None:
    first, second, _ = line(bench)
    await settled(bench, first)
    for base in (first, second, first):
        async with bench.hands.pool.lease(first) as slot:
            await to_thread.run_sync(shell, HOSTILE[deed], slot.tree)
            quick.clear()
        async with bench.hands.pool.lease(base) as slot:
            assert everything(slot.tree) == fresh(bench, base)
            assert "user.x" not in os.listxattr(slot.tree / "a")
            assert deed in ODD or quick == ["settled", "settled"]


@pytest.mark.parametrize("deed", HOSTILE)
async def test_no_deed_of_one_who_was_broken_off_outlives_him(
    bench: Bench, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Giving back was cancelled, at once or half way: then the next tenant waits for all of it."""
    first, second, _ = line(bench)
    await settled(bench, first)

    async def half(turn: warm._Turn, slot: Slot) -> HandOver:
        await to_thread.run_sync(turn.begin)
        await sleep(60)
        raise AssertionError(slot)

    for base, broken_off in ((first, False), (second, True), (first, True)):
        with monkeypatch.context() as patched, CancelScope() as scope:
            async with bench.hands.pool.lease(first) as slot:
                await to_thread.run_sync(shell, HOSTILE[deed], slot.tree)
                if broken_off:
                    patched.setattr(warm, "_without_traces", half)
                    scope.deadline = current_time() + 0.3
                else:
                    scope.cancel()
        async with bench.hands.pool.lease(base) as slot:
            assert everything(slot.tree) == fresh(bench, base)


async def test_a_deed_in_the_very_tick_of_the_hand_over_is_seen(bench: Bench) -> None:
    base, moved, _ = line(bench)
    for number in range(30):
        async with bench.hands.pool.lease((base, moved)[number % 2]) as slot:
            six = next(path for path in (slot.tree / "six", slot.tree / "seven") if path.exists())
            six.chmod(0o666) if number % 3 else six.write_text("7\n", encoding="utf-8")
            (slot.tree / "a/b/two").write_text("9\n", encoding="utf-8")
            (slot.tree / f"a/{number}").touch()
        async with bench.hands.pool.lease(base) as slot:
            assert everything(slot.tree) == fresh(bench, base)


async def test_a_clock_that_is_set_back_hides_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seals are compared, never ordered; and what seems to lie ahead gets none."""
    base = line(bench)[0]
    await settled(bench, base)
    monkeypatch.setattr("worktrees.warm.clock", lambda: time_ns() - 3600 * 10**9)
    for _ in range(2):
        async with bench.hands.pool.lease(base) as slot:
            assert everything(slot.tree) == fresh(bench, base)
            (slot.tree / "a/b/two").write_text("9\n", encoding="utf-8")
            (slot.tree / "a/b/new").touch()


async def test_the_index_is_brought_up_to_date_before_it_lags_too_far(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "LAG", 3)
    several = line(bench)
    await settled(bench, several[0])
    lags = []
    for number in range(9):
        async with bench.hands.pool.lease(several[number % 3]) as slot:
            handed = bench.hands.pool.handed(slot)
            lags.append(len(handed.written) if handed else 0)
            assert everything(slot.tree) == fresh(bench, several[number % 3])
            await to_thread.run_sync(shell, "echo x > a/one", slot.tree)
        await sleep(0.3)
    assert any(later < before for before, later in pairwise(lags)), lags


async def test_a_decoy_shows_a_clean_status_although_the_index_lags(bench: Bench) -> None:
    first, second, _ = line(bench)
    await settled(bench, first)
    async with bench.hands.lease(second) as lease:
        seen = await lease.desk.run("git status --porcelain; git log -1 --format=%H", timeout_s=60)
        assert seen.output == f"{second}\n"


@pytest.mark.parametrize("what", ["a submodule", "a filter", "line endings"])
async def test_what_only_git_can_write_is_written_by_git(
    repository: Path, open_bench: OpenBench, quick: list[str], what: str
) -> None:
    head = git(repository, "rev-parse", "HEAD")
    if what == "a submodule":
        git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    else:
        rule = "*.x filter=lfs\n" if what == "a filter" else "* text eol=crlf\n"
        (repository / ".gitattributes").write_text(rule, encoding="utf-8")
        git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", what)
    async with open_bench() as bench:
        for base in (head, bench.base, head, bench.base):
            async with bench.hands.pool.lease(base) as slot:
                assert everything(slot.tree) == fresh(bench, base)
                shell("echo x > a/one; touch x", slot.tree)
    assert "settled" not in quick


async def test_without_a_box_everything_is_gone_through(open_bench: OpenBench, quick: list[str]) -> None:
    async with open_bench(sandbox="none") as bench:
        for _ in range(3):
            async with bench.hands.pool.lease(bench.base) as slot:
                assert bench.hands.pool.handed(slot) is None
    assert quick == []
