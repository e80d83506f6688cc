"""A worktree that is leased again is like a fresh checkout, whatever the last tenant did."""

import os
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from anyio import CancelScope, sleep, to_thread
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change
from tests.effort import examples
from tests.worktrees.conftest import Bench, OpenBench, added_by_git, git, make_repository, sha_at
from worktrees.base.settings import LeaseKind
from worktrees.leases.pool import Slot

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
Content = dict[str, tuple[int, bytes]]


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


def content_of(tree: Path) -> Content:
    content_by_path: Content = {}
    for folder, folders, names in os.walk(os.fsencode(tree)):
        for name in (*folders, *names):
            path = os.path.join(folder, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)  # noqa: PTH115
            elif stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            content_by_path[os.fsdecode(os.path.relpath(path, os.fsencode(tree)))] = (status.st_mode, content)
    content_by_path.pop(".git")
    return content_by_path


def fresh(bench: Bench, commit: Sha) -> Content:
    """The content of a new checkout of this commit."""
    at = bench.repository.with_name(f"fresh-{commit}")
    if not at.exists():
        git(bench.repository, "worktree", "add", "--quiet", "--detach", str(at), commit)
    return content_of(at)


def line(bench: Bench) -> list[Sha]:
    return [Sha(id_) for id_ in git(bench.repository, "rev-list", "--reverse", "HEAD").split()[-3:]]


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
tenancies = st.tuples(st.integers(0, 2), st.lists(edits, max_size=5), st.booleans())


@given(visits=st.lists(tenancies, min_size=1, max_size=3))
@examples(60)
async def test_a_lease_is_a_fresh_checkout_and_a_commit_is_what_git_would_add(
    bench: Bench, visits: list[tuple[int, list[str], bool]]
) -> None:
    for at, steps, then_commit in visits:
        base = line(bench)[at]
        async with bench.worktrees.leases.pool.lease(base) as slot:
            assert content_of(slot.tree) == fresh(bench, base)
            await to_thread.run_sync(shell, "\n".join(f"({step})" for step in steps), slot.tree)
            if then_commit:
                await commits_like_git(bench, slot, base)
    base = line(bench)[visits[0][0]]
    async with bench.worktrees.leases.pool.lease(base) as slot:
        assert content_of(slot.tree) == fresh(bench, base)


async def commits_like_git(bench: Bench, slot: Slot, base: Sha) -> None:
    change = await bench.commit_slot(slot, base, touches=("**", ".gitattributes"))
    if isinstance(change, Change):
        tree = await bench.worktrees.store.git.line("rev-parse", f"{change.commit}^{{tree}}")
        assert tree == await added_by_git(slot, base, bench.settings.state_dir / "index")
    else:
        assert isinstance(change, Failure)


async def test_attributes_that_are_changed_count_in_gits_order_whatever_was_written_before(bench: Bench) -> None:
    first, second, _ = line(bench)
    async with bench.worktrees.leases.pool.lease(second):
        pass
    async with bench.worktrees.leases.pool.lease(first) as slot:
        await to_thread.run_sync(
            shell, "printf 'a\\r\\nb\\r\\n' > six; rm .gitattributes; ln -s a/one .gitattributes", slot.tree
        )
        await commits_like_git(bench, slot, first)


async def test_a_folder_of_another_commit_is_removed_although_a_tenant_emptied_it(bench: Bench) -> None:
    first, _, third = line(bench)
    async with bench.worktrees.leases.pool.lease(third) as slot:
        await to_thread.run_sync(shell, "rm -r new/deep", slot.tree)
    async with bench.worktrees.leases.pool.lease(first) as slot:
        assert content_of(slot.tree) == fresh(bench, first)


async def test_a_file_that_is_ignored_stays_out_although_another_commit_has_it(bench: Bench) -> None:
    first, second, _ = line(bench)
    async with bench.worktrees.leases.pool.lease(first):
        pass
    async with bench.worktrees.leases.pool.lease(second) as slot:
        await to_thread.run_sync(shell, "echo '*' > .gitignore; echo 1 > six", slot.tree)
        await commits_like_git(bench, slot, second)


NO_LONGER_YOUNG_S = 1.1  # of a file that is as young as its index, git compares only the content
HOSTILE = {
    "same size, same time of modification": "cp -p six keep; printf '7\\n' > six; touch -r keep six; rm keep",
    "the mode alone": "chmod 4777 run; chmod 666 six; chmod 777 a",
    "a mode that closes": "chmod 000 a/one a/b a",
    "attributes of a folder": "setfattr -n user.x -v y a",
    "attributes of a file": "setfattr -n user.x -v y a/one",
    "a hard link to a file of the tree": "ln -f a/one a/b/two; echo evil >> a/one; rm a/b/two",
    "a second name of a file": "ln six ../kept-outside || ln six x.log",
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
    "attributes that read other bytes for the same": (
        "echo '* working-tree-encoding=IBM037' > .gitattributes; printf '\\366\\045' > six; touch -r a/one six"
    ),
    "attributes that were there": "echo '* text eol=crlf' > .gitattributes; touch -d @1 .gitattributes",
    "empty folders": "mkdir -p a/e/f/g h",
    "more than is removed at once": "mkdir a/many; touch $(seq -f a/many/%g 700)",
    "a closed folder": "mkdir a/shut; echo x > a/shut/x; chmod 000 a/shut",
    "deeper than anything": "for i in $(seq 300); do mkdir d; cd d; done",
    "nothing left": "rm -rf a 'd e' six run link .git*",
    "a touch": "touch a/one; touch a",
}


def sampled(first: int) -> list[ParameterSet]:
    """All deeds, of which `make test` tries every other one: a tenant does the one half, a cancelled one the other."""
    return [
        pytest.param(deed, marks=[] if number % 2 == first else pytest.mark.thorough)
        for number, deed in enumerate(HOSTILE)
    ]


@pytest.mark.parametrize("deed", sampled(0))
async def test_nothing_that_a_tenant_did_outlives_it(bench: Bench, deed: str) -> None:
    first, second, _ = line(bench)
    for base, age_s in ((first, 0), (second, 0), (first, NO_LONGER_YOUNG_S)):
        async with bench.worktrees.leases.pool.lease(first) as slot:
            await sleep(age_s)
            await to_thread.run_sync(shell, HOSTILE[deed], slot.tree)
        async with bench.worktrees.leases.pool.lease(base) as slot:
            assert content_of(slot.tree) == fresh(bench, base)
            tracked = [path for path in slot.tree.rglob("*") if not path.is_symlink()]
            assert not any(name == "user.x" for path in (slot.tree, *tracked) for name in os.listxattr(path))
            assert all(path.stat().st_nlink == 1 for path in tracked if path.is_file())


@pytest.mark.parametrize("deed", sampled(1))
async def test_nothing_that_a_cancelled_tenant_did_outlives_it(bench: Bench, deed: str) -> None:
    first, second, _ = line(bench)
    for base in (first, second):
        with CancelScope() as scope:
            async with bench.worktrees.leases.pool.lease(first) as slot:
                await to_thread.run_sync(shell, HOSTILE[deed], slot.tree)
                scope.cancel()
        async with bench.worktrees.leases.pool.lease(base) as slot:
            assert content_of(slot.tree) == fresh(bench, base)


async def test_a_change_in_the_very_tick_of_the_hand_over_is_seen(bench: Bench) -> None:
    base, moved, _ = line(bench)
    for number in range(30):
        async with bench.worktrees.leases.pool.lease((base, moved)[number % 2]) as slot:
            six = next(path for path in (slot.tree / "six", slot.tree / "seven") if path.exists())
            six.chmod(0o666) if number % 3 else six.write_text("7\n", encoding="utf-8")
            (slot.tree / "a/b/two").write_text("9\n", encoding="utf-8")
            (slot.tree / f"a/{number}").touch()
        async with bench.worktrees.leases.pool.lease(base) as slot:
            assert content_of(slot.tree) == fresh(bench, base)


async def test_a_decoy_shows_a_clean_status(bench: Bench) -> None:
    first, second, _ = line(bench)
    async with bench.worktrees.lease(first):
        pass
    async with bench.worktrees.lease(second) as lease:
        shown = await lease.workspace.run("git status --porcelain; git log -1 --format=%H", timeout_s=60)
        assert shown.output == f"{second}\n"


@pytest.mark.parametrize("what", ["a submodule", "a filter", "line endings"])
async def test_what_only_git_can_write_is_written_by_git(repository: Path, open_bench: OpenBench, what: str) -> None:
    head = sha_at(repository)
    if what == "a submodule":
        git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    else:
        rule = "*.x filter=lfs\n" if what == "a filter" else "* text eol=crlf\n"
        (repository / ".gitattributes").write_text(rule, encoding="utf-8")
        git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message", what)
    async with open_bench() as bench:
        for base in (head, bench.base, head, bench.base):
            async with bench.worktrees.leases.pool.lease(base) as slot:
                assert content_of(slot.tree) == fresh(bench, base)
                shell("echo x > a/one; touch x", slot.tree)


async def test_without_a_box_nothing_outlives_a_tenant_either(open_bench: OpenBench) -> None:
    async with open_bench(sandbox="none") as bench:
        for _ in range(3):
            async with bench.worktrees.leases.pool.lease(bench.base) as slot:
                assert content_of(slot.tree) == fresh(bench, bench.base)
                shell("echo x > a/one; chmod 666 six; touch x", slot.tree)
