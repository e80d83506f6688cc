"""The layers that overlays share: as little as possible is checked out, and nothing in use ever moves."""

from pathlib import Path
from typing import Any

import pytest
from anyio import Event, create_task_group, fail_after

from tests.worktrees.conftest import Bench, make_repository
from worktrees.base.fs import wipe
from worktrees.base.settings import LeaseKind
from worktrees.git.diff import Diff
from worktrees.leases import base_layers
from worktrees.leases.base_layers import MAX_LAYERS, Base, BaseLayers, Checkout, foundation, make_diff_layer
from worktrees.leases.ignored import BaseFiles
from worktrees.leases.union_view import View
from worktrees.store.store import Store

MANY = 40


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "overlay"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {f"src/{number}.txt": f"{number}\n" * 1_000 for number in range(2_000)}
    return make_repository(tmp_path / "project", files)


def base_layers_of(bench: Bench) -> BaseLayers:
    assert bench.worktrees.overlays is not None
    return bench.worktrees.overlays.base_layers


def folders(bench: Bench, name: str) -> list[str]:
    return sorted(path.name for path in (base_layers_of(bench).home / name).glob("*"))


async def commits(bench: Bench, number: int) -> list[str]:
    """A line of commits, each of which changes a file, adds one and removes one."""
    tip, line = bench.base, []
    for at in range(number):
        async with bench.worktrees.lease(tip) as lease:
            script = f"echo new > src/{at}.txt; echo new > new-{at}.txt; rm src/{1000 + at}.txt"
            await lease.workspace.run(script, timeout_s=60)
            change = await bench.commit(lease, f"at-{at}")
        tip = change.commit  # type: ignore[union-attr]
        line.append(tip)
    return line


def bytes_below(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


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
        shown = await last.workspace.run("cat src/0.txt new-4.txt; ls src/1003.txt; ls src | wc -l", timeout_s=60)
        assert shown.output.splitlines()[:2] == ["new", "new"]
        assert "No such file" in shown.output
        assert shown.output.splitlines()[-1] == "1995"
        assert (await first.workspace.run("cat src/0.txt | head -1; ls new-4.txt", timeout_s=60)).output.startswith(
            "0\nls:"
        )
        assert folders(bench, "bases") == ["1"]


async def test_idle_layers_are_removed_and_the_ones_in_use_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_layers, "IDLE_LAYERS", 1)
    monkeypatch.setattr(base_layers, "MAX_LAYERS", 2)
    line = await commits(bench, 12)
    async with bench.worktrees.lease(line[0]) as first:
        for commit in line[1:]:
            async with bench.worktrees.lease(commit):
                pass
        assert len(folders(bench, "layers")) <= 6
        assert (
            await first.workspace.run("cat new-0.txt; ls new-1.txt 2>&1 | wc -l", timeout_s=60)
        ).output == "new\n1\n"


def nothing_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NEAR": 2, "NEAR_PART": 10_000}.items():
        monkeypatch.setattr(base_layers, name, value)


async def test_an_idle_checkout_moves_by_the_difference(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await commits(bench, 3)
    nothing_is_near(monkeypatch)
    untouched = base_layers_of(bench).home / "bases/1/tree/src/500.txt"
    written = untouched.stat().st_mtime_ns
    async with bench.worktrees.lease(line[2]) as lease:
        assert folders(bench, "bases") == ["1"]
        assert folders(bench, "layers") == []
        assert (await lease.workspace.run("cat new-2.txt; ls src | wc -l", timeout_s=60)).output == "new\n1997\n"
    assert untouched.stat().st_mtime_ns == written


async def test_a_checkout_in_use_never_moves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await commits(bench, 3)
    nothing_is_near(monkeypatch)
    async with bench.worktrees.lease(bench.base) as first:
        async with bench.worktrees.lease(line[2]) as second:
            assert len(folders(bench, "bases")) == 2
            assert (await second.workspace.run("ls src | wc -l", timeout_s=60)).output == "1997\n"
            assert (await first.workspace.run("ls src | wc -l", timeout_s=60)).output == "2000\n"
        async with bench.worktrees.lease(line[0]):
            assert len(folders(bench, "bases")) == 2
    async with bench.worktrees.lease(line[1]) as lease:
        assert (await lease.workspace.run("ls src | wc -l", timeout_s=60)).output == "1998\n"


async def test_a_checkout_that_was_tampered_with_is_made_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await commits(bench, 2)
    nothing_is_near(monkeypatch)
    (base_layers_of(bench).home / "bases/1/tree/src/0.txt").write_text("tampered with\n", encoding="utf-8")
    async with bench.worktrees.lease(line[1]) as lease:
        assert (await lease.workspace.run("cat src/0.txt", timeout_s=60)).output == "new\n"


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


class Maker:
    """Makes diff layers as the product does, and counts their entries; the first ones wait until so many were begun."""

    def __init__(self, together: int = 0) -> None:
        self.entries = list[int]()
        self._together = together
        self._begun = 0
        self._all_begun = Event()

    async def __call__(
        self, store: Store, layer: Path, old: str, new: str, *, most: int, converts: bool
    ) -> Diff | None:
        self._begun += 1
        if self._begun >= self._together:
            self._all_begun.set()
        await self._all_begun.wait()
        diff = await make_diff_layer(store, layer, old, new, most=most, converts=converts)
        self.entries.append(len(diff.entries) if diff is not None else -1)
        return diff


async def test_layers_for_different_commits_are_made_side_by_side(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await commits(bench, 3)
    await wipe(base_layers_of(bench).home)
    shown = dict[str, str]()

    async def tenant(commit: str) -> None:
        async with bench.worktrees.lease(commit) as lease:
            shown[commit] = (await lease.workspace.run("ls new-*.txt | wc -l", timeout_s=60)).output

    async with bench.worktrees.lease(bench.base):
        monkeypatch.setattr(base_layers, "make_diff_layer", Maker(together=3))
        with fail_after(60):
            async with create_task_group() as group:
                for commit in line:
                    group.start_soon(tenant, commit)
    assert shown == dict(zip(line, ["1\n", "2\n", "3\n"], strict=True))


async def test_a_commit_gets_one_base_however_many_ask(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await commits(bench, 3)
    await wipe(base_layers_of(bench).home)
    monkeypatch.setattr(base_layers, "make_diff_layer", maker := Maker())

    async def tenant() -> None:
        async with bench.worktrees.lease(line[2]):
            pass

    async with bench.worktrees.lease(bench.base), create_task_group() as group:
        for _ in range(MANY):
            group.start_soon(tenant)
    assert maker.entries == [9]


async def test_a_layer_is_put_on_what_its_commit_was_made_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    line = await commits(bench, 6)
    async with bench.worktrees.lease(line[5]), bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("echo mine > mine.txt", timeout_s=60)
        change = await bench.commit(lease, "mine")
        monkeypatch.setattr(base_layers, "make_diff_layer", maker := Maker())
        async with bench.worktrees.lease(change.commit):  # type: ignore[union-attr]
            assert maker.entries == [1]


def test_a_change_is_written_a_few_times_however_long_the_line(tmp_path: Path) -> None:
    """Each commit of a thousand changes one file."""
    checkout, written = Checkout(tmp_path, "bases/1"), 0
    below = BaseFiles("0", View((tmp_path,)), frozenset())
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


async def test_a_layer_above_a_checkout_that_is_deleted_meanwhile_is_not_used(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = await commits(bench, 2)
    home = base_layers_of(bench).home
    await wipe(home)
    make = Maker()

    async def make_and_delete(*args: Any, **options: Any) -> Diff | None:
        diff = await make(*args, **options)
        if len(make.entries) == 1:
            await wipe(home / "bases")
            async with bench.worktrees.lease(bench.base):  # who comes meanwhile finds out that it is gone
                pass
        return diff

    async with bench.worktrees.lease(bench.base):
        monkeypatch.setattr(base_layers, "make_diff_layer", make_and_delete)
        async with bench.worktrees.lease(line[1]) as lease:
            assert (await lease.workspace.run("cat new-1.txt; ls src | wc -l", timeout_s=60)).output == "new\n1998\n"


@pytest.mark.parametrize("deleted", ["bases", "layers", "."])
async def test_deleted_layers_are_made_again_for_the_next_tenant(bench: Bench, deleted: str) -> None:
    [first, second] = await commits(bench, 2)
    await wipe(base_layers_of(bench).home / deleted)
    for commit, file in ((first, "new-0.txt"), (second, "new-1.txt"), (bench.base, "src/0.txt")):
        async with bench.worktrees.lease(commit) as lease:
            done = await lease.workspace.run(f"cat {file}; ls src | wc -l", timeout_s=60)
        assert done.exit_code == 0, done.output
    assert len(folders(bench, "bases")) == 1
