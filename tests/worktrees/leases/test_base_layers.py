"""The layers that overlays share: as little as possible is checked out, and nothing in use ever moves."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after

from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from tests.worktrees.conftest import Bench, make_repository
from worktrees.base.fs import wipe
from worktrees.base.settings import LeaseKind
from worktrees.git.diff import DiffEntry
from worktrees.leases.overlay import MAX_LAYERS, Base, BaseLayers, LayerCheckout, foundation
from worktrees.leases.union_view import BaseFiles, TreeView
from worktrees.store.store import Store

FILES = 400
MANY = 40


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "overlay"


@pytest.fixture
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    many = getattr(request, "param", FILES)
    files = {f"src/{number}.txt": f"{number}\n" * 1_000 for number in range(many)}
    return make_repository(tmp_path / "project", files)


def base_layers_of(bench: Bench) -> BaseLayers:
    assert bench.worktrees.leases.overlays is not None
    return bench.worktrees.leases.overlays.base_layers


def folders(bench: Bench, name: str) -> list[str]:
    return folders_of(base_layers_of(bench), name)


def folders_of(layers: BaseLayers, name: str) -> list[str]:
    return sorted(path.name for path in (layers.home / name).glob("*"))


async def commits(bench: Bench, number: int) -> list[Sha]:
    """A line of commits, each of which changes a file, adds one and removes one."""
    tip, line = bench.base, []
    for at in range(number):
        async with bench.worktrees.lease(tip) as lease:
            script = f"echo new > src/{at}.txt; echo new > new-{at}.txt; rm src/{200 + at}.txt"
            await lease.workspace.run(script, timeout_s=60)
            change = await bench.commit(lease, f"at-{at}")
        tip = change.commit  # type: ignore[union-attr]
        line.append(tip)
    return line


@asynccontextmanager
async def used(layers: BaseLayers, commit: Sha) -> AsyncIterator[Base]:
    base = await layers.take(commit)
    try:
        yield base
    finally:
        layers.leave(base)


def text_of(base: Base, path: str) -> str:
    found = base.below.view.find(path)
    assert found is not None, path
    return found[0].read_text(encoding="utf-8")


def number_of_files(base: Base, folder: str = "src") -> int:
    return len(list(base.below.view.files(folder)))


def bytes_below(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


@pytest.mark.parametrize("repository", [2_000], indirect=True)
async def test_a_hundred_leases_take_hardly_more_space_than_one_checkout(bench: Bench) -> None:
    line = await commits(bench, 4)
    sizes: list[int] = []
    holders, everyone = list[int](), Event()

    async def tenant(number: int) -> None:
        async with bench.worktrees.lease([bench.base, *line][number % 5]) as lease:
            await lease.workspace.run(f"echo {number} > mine.txt", timeout_s=60)
            holders.append(number)
            if len(holders) == 100:
                sizes.append(bytes_below(base_layers_of(bench).home))
                everyone.set()
            await everyone.wait()

    async with bench.worktrees.lease(bench.base), create_task_group() as group:
        one_checkout = bytes_below(base_layers_of(bench).home / "bases")
        for number in range(100):
            group.start_soon(tenant, number)
    assert len(folders(bench, "bases")) == 1
    assert sizes[0] < 1.2 * one_checkout


async def test_commits_near_each_other_share_a_checkout(bench: Bench) -> None:
    line = await commits(bench, 5)
    async with bench.worktrees.lease(bench.base) as first, bench.worktrees.lease(line[-1]) as last:
        shown = await last.workspace.run("cat src/0.txt new-4.txt; ls src/203.txt; ls src | wc -l", timeout_s=60)
        assert shown.output.splitlines()[:2] == ["new", "new"]
        assert "No such file" in shown.output
        assert shown.output.splitlines()[-1] == f"{FILES - 5}"
        assert (await first.workspace.run("cat src/0.txt | head -1; ls new-4.txt", timeout_s=60)).output.startswith(
            "0\nls:"
        )
        assert folders(bench, "bases") == ["1"]


async def test_idle_layers_are_removed_and_the_ones_in_use_stay(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 12)
    layers = BaseLayers(tmp_path / "own", bench.worktrees.store, max_layers=2, idle_layers=1)
    async with used(layers, line[0]) as first:
        for commit in line[1:]:
            async with used(layers, commit):
                pass
        assert len(folders_of(layers, "layers")) <= 6
        assert text_of(first, "new-0.txt") == "new\n"
        assert first.below.view.find("new-1.txt") is None


def with_nothing_near(bench: Bench, tmp_path: Path) -> BaseLayers:
    return BaseLayers(tmp_path / "own", bench.worktrees.store, near=2, near_part=10_000)


async def test_an_idle_checkout_moves_by_the_difference(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 3)
    layers = with_nothing_near(bench, tmp_path)
    async with used(layers, bench.base) as base:
        untouched = base.checkout.tree / "src/300.txt"
    written = untouched.stat().st_mtime_ns
    async with used(layers, line[2]) as base:
        assert folders_of(layers, "bases") == [base.checkout.name.removeprefix("bases/")]
        assert folders_of(layers, "layers") == []
        assert (text_of(base, "new-2.txt"), number_of_files(base)) == ("new\n", FILES - 3)
    assert untouched.stat().st_mtime_ns == written


async def test_a_checkout_in_use_never_moves(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 3)
    layers = with_nothing_near(bench, tmp_path)
    async with used(layers, bench.base) as first:
        async with used(layers, line[2]) as second:
            assert len(folders_of(layers, "bases")) == 2
            assert (number_of_files(first), number_of_files(second)) == (FILES, FILES - 3)
        async with used(layers, line[0]):
            assert len(folders_of(layers, "bases")) == 2
    async with used(layers, line[1]) as base:
        assert number_of_files(base) == FILES - 2


async def test_a_checkout_that_was_tampered_with_is_made_again(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 2)
    layers = with_nothing_near(bench, tmp_path)
    async with used(layers, bench.base) as base:
        (base.checkout.tree / "src/0.txt").write_text("tampered with\n", encoding="utf-8")
    async with used(layers, line[1]) as base:
        assert text_of(base, "src/0.txt") == "new\n"


async def test_many_different_commits_at_once_each_show_their_own_files(bench: Bench) -> None:
    line = await commits(bench, 6)
    counts: dict[int, str] = {}

    async def tenant(number: int) -> None:
        async with bench.worktrees.lease(line[number % 6]) as lease:
            counts[number] = (await lease.workspace.run("ls new-*.txt | wc -l", timeout_s=60)).output

    async with create_task_group() as group:
        for number in range(MANY):
            group.start_soon(tenant, number)
    assert counts == {number: f"{number % 6 + 1}\n" for number in range(MANY)}


@dataclass(frozen=True)
class Watched:
    """A store that calls a function after each checkout of the files of a layer."""

    store: Store
    written: Callable[[], Awaitable[None]]

    @property
    def git_dir(self) -> Path:
        return self.store.git_dir

    @property
    def repository(self) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store.repository, name)

    async def check_out(self, folder: Path, commit: Sha, files: Sequence[DiffEntry], *, converts: bool) -> None:
        await self.store.repository.check_out(folder, commit, files, converts=converts)
        await self.written()


async def test_layers_for_different_commits_are_made_side_by_side(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 3)
    writing, all_write = list[str](), Event()
    shown = dict[str, int]()

    async def wait_for_all() -> None:
        writing.append("")
        if len(writing) == len(line):
            all_write.set()
        await all_write.wait()

    store: Any = Watched(bench.worktrees.store, wait_for_all)
    layers = BaseLayers(tmp_path / "own", store)

    async def tenant(commit: Sha) -> None:
        async with used(layers, commit) as base:
            shown[commit] = sum(name.startswith("new-") for name in base.below.view.files(""))

    async with used(layers, bench.base):
        with fail_after(60):
            async with create_task_group() as group:
                for commit in line:
                    group.start_soon(tenant, commit)
    assert shown == dict(zip(line, [1, 2, 3], strict=True))


async def test_a_commit_gets_one_base_however_many_ask(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 3)
    layers = BaseLayers(tmp_path / "own", bench.worktrees.store)

    async def tenant() -> None:
        async with used(layers, line[2]) as base:
            bases.append(base)
            if len(bases) == MANY:
                made.extend(folders_of(layers, "layers"))
                everyone.set()
            await everyone.wait()

    bases, made, everyone = list[Base](), list[str](), Event()
    async with used(layers, bench.base), create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(tenant)
    assert (len(set(bases)), bases[0].entries, len(made)) == (1, 9, 1)


async def test_a_layer_is_put_on_what_its_commit_was_made_of(bench: Bench) -> None:
    line = await commits(bench, 6)
    async with bench.worktrees.lease(line[5]), bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("echo mine > mine.txt", timeout_s=60)
        change = await bench.commit(lease, "mine")
        async with used(base_layers_of(bench), change.commit) as base:  # type: ignore[union-attr]
            assert base.entries == 1


def test_a_change_is_written_a_few_times_however_long_the_line(tmp_path: Path) -> None:
    """Each commit of a thousand changes one file."""
    checkout, written = LayerCheckout(tmp_path, "bases/1"), 0
    below = BaseFiles(Sha("0"), TreeView((tmp_path,)), frozenset())
    newest = Base(below, checkout)
    at = {newest: 0}
    for number in range(1, 1_001):
        parent = foundation(newest)
        entries = number - at[parent]
        newest = Base(below, checkout, (f"layers/{number}", *parent.layers), parent, entries)
        assert len(newest.layers) <= MAX_LAYERS
        at[newest] = number
        written += entries
    assert written < 6 * 1_000


async def test_a_layer_above_a_checkout_that_is_deleted_meanwhile_is_not_used(bench: Bench, tmp_path: Path) -> None:
    line = await commits(bench, 2)
    deleted = list[Path]()

    async def delete() -> None:
        if not deleted:
            deleted.append(layers.home / "bases")
            await wipe(deleted[0])
            async with used(layers, bench.base):  # who comes meanwhile finds out that it is gone
                pass

    store: Any = Watched(bench.worktrees.store, delete)
    layers = BaseLayers(tmp_path / "own", store)
    async with used(layers, bench.base), used(layers, line[1]) as base:
        assert (text_of(base, "new-1.txt"), number_of_files(base)) == ("new\n", FILES - 2)
    assert deleted


@pytest.mark.parametrize("deleted", ["bases", "layers", "."])
async def test_deleted_layers_are_made_again_for_the_next_tenant(bench: Bench, deleted: str) -> None:
    [first, second] = await commits(bench, 2)
    await wipe(base_layers_of(bench).home / deleted)
    for commit, file in ((first, "new-0.txt"), (second, "new-1.txt"), (bench.base, "src/0.txt")):
        async with bench.worktrees.lease(commit) as lease:
            done = await lease.workspace.run(f"cat {file}; ls src | wc -l", timeout_s=60)
        assert done.exit_code == 0, done.output
    assert len(folders(bench, "bases")) == 1


LEAVES = {
    "nothing": ("true", True),
    "a file": ("echo x > new", False),
    "a file deleted again": ("echo x > new; rm new", True),
    "a whiteout": ("rm src/1.txt", False),
    "a mode": ("chmod 700 .", True),
    "a fifo": ("mkfifo pipe", False),
    "a tag": ("git tag seen", True),
}


@pytest.mark.parametrize("kind", LEAVES)
async def test_a_checks_folder_is_used_again_only_where_it_left_nothing(bench: Bench, kind: str) -> None:
    command, is_used_again = LEAVES[kind]
    async with bench.worktrees.lease(bench.base) as lease:
        first = await lease.check(Criterion(criterion="first", run=command))
        (folder,) = (bench.worktrees.leases.overlays.home / "leases").iterdir()  # type: ignore[union-attr]
        assert first.passed, first.output
    assert folder.exists() == is_used_again
    look = "git status --short; git tag; stat -c %a .; ls | wc -l"
    async with bench.worktrees.lease(bench.base) as lease:
        second = await lease.check(Criterion(criterion="second", run=look))
        assert folder.exists() == is_used_again
    async with bench.worktrees.lease(bench.base), bench.worktrees.lease(bench.base) as fresh:
        third = await fresh.check(Criterion(criterion="third", run=look))
    assert second.output == third.output
