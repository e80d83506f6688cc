"""Patches from a program that stays: the same as those of a git of its own."""

import pytest
from anyio import create_task_group

from fleet.core.facts import Member
from tests.worktrees.conftest import Bench, OpenBench
from worktrees.patches import PATCH
from worktrees.service import Service


async def by_git(bench: Bench, member: Member, cap: int) -> str:
    return (await bench.hands.store.git(*PATCH, bench.base, member.commit, cap=cap)).decode("utf-8", "replace")


async def test_a_patch_is_what_git_makes_of_it_whatever_the_files_hold(open_bench: OpenBench) -> None:
    files = {
        "odd 'name": "end of it\n" + f"{'0' * 40} {'1' * 40}\n" * 2 + "no newline",
        "ünï/deep": "\r\n\x0b\x85\u2028",
        "README.md": "",
        "bytes": "\0\x01",
    }
    async with open_bench() as bench:
        patches = bench.hands.store.patches
        for number, (name, content) in enumerate(files.items()):
            member = await bench.change(f"s{number}", {name: content})
            assert await patches.between(bench.base, member.commit, cap=10**6) == await by_git(bench, member, 10**6)
        assert await patches.between(bench.base, bench.base, cap=10**6) == ""


async def test_one_that_is_too_long_is_cut_in_its_middle_and_the_next_is_whole(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        patches = bench.hands.store.patches
        long = await bench.change("long", {"long.txt": "line\n" * 10_000})
        short = await bench.change("short", {"short.txt": "line\n"})
        assert "bytes left out" in await patches.between(bench.base, long.commit, cap=1000)
        assert await patches.between(bench.base, short.commit, cap=1000) == await by_git(bench, short, 1000)


async def test_a_hundred_patches_take_one_program(open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = list[Service]()
    start = Service._start

    def counted(service: Service) -> None:
        if service._child is None:
            begun.append(service)
        start(service)

    async with open_bench() as bench:
        member = await bench.change("one", {"one.txt": "1\n"})
        await bench.hands.diff(bench.base, bench.base)
        monkeypatch.setattr(Service, "_start", counted)
        for _ in range(100):
            assert "+1" in await bench.hands.diff(bench.base, member.commit)
    assert begun == []


async def test_many_who_ask_at_once_each_get_their_own(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        members = [await bench.change(f"s{number}", {f"{number}.txt": f"{number}\n" * 60}) for number in range(5)]
        found = dict[tuple[int, int], str]()

        async def ask(number: int, cap: int) -> None:
            found[number, cap] = await bench.hands.store.patches.between(bench.base, members[number].commit, cap=cap)

        async with create_task_group() as group:
            for cap in (100, 10_000):
                for number in range(5):
                    group.start_soon(ask, number, cap)
        for number, member in enumerate(members):
            assert found[number, 10_000] == await by_git(bench, member, 10_000)
            assert "bytes left out" in found[number, 100]
