"""Checks on real checkouts: their logs, and a bisect with a real gate."""

from pathlib import Path

import pytest

from fleet.checking import Checks, Gate
from fleet.core.plan import Criterion
from fleet.landing import Lander
from tests.fleet.hands import Clock, queued
from tests.worktrees.conftest import RUN, OpenBench

TALKS = Criterion(criterion="talks", run="seq 100000; exit 7")


async def test_all_that_a_check_printed_is_kept_in_a_file_that_its_result_names(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    logs = tmp_path / "checks"
    async with open_bench(check_logs=logs) as bench, bench.hands.lease(bench.base) as lease:
        [first] = await lease.check([TALKS])
        [second] = await lease.check([TALKS])
    text = (tmp_path / first.log).read_text()
    assert text.startswith("$ seq 100000; exit 7\n1\n2\n3\n")
    assert text.splitlines()[-2] == "100000"
    assert text.splitlines()[-1].startswith("[exit code 7, ")
    assert first.log != second.log
    assert (tmp_path / first.log).stat().st_mode & 0o777 == 0o600


async def test_a_log_is_cut_in_its_middle_when_a_check_will_not_stop_talking(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    shouts = Criterion(criterion="shouts", run="yes | head -c 9000000; echo end")
    async with open_bench(check_logs=tmp_path / "checks") as bench, bench.hands.lease(bench.base) as lease:
        [run] = await lease.check([shouts])
    assert run.passed
    log = (tmp_path / run.log).read_bytes()
    assert len(log) < 3 * 1024 * 1024
    assert b"bytes left out" in log
    assert b"\nend\n" in log


@pytest.mark.parametrize("place", ["file", "missing/folder"])
async def test_a_log_that_can_not_be_written_fails_no_check(open_bench: OpenBench, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    async with open_bench(check_logs=tmp_path / place / "x") as bench, bench.hands.lease(bench.base) as lease:
        [run] = await lease.check([TALKS.model_copy(update={"run": "true"})])
    assert (run.passed, run.log) == (True, "")


async def test_without_a_place_for_logs_there_are_none(open_bench: OpenBench) -> None:
    async with open_bench() as bench, bench.hands.lease(bench.base) as lease:
        [run] = await lease.check([TALKS])
    assert run.log == ""


async def test_a_bisect_on_a_real_repository_lands_the_innocent_in_order_and_every_tip_it_stood_at_is_green(
    open_bench: OpenBench,
) -> None:
    gate = Criterion(criterion="no bomb", run="! grep -rq bomb --include=*.txt .", fails_before=False)
    async with open_bench() as bench:
        members = [await bench.change(id_, {f"{id_}.txt": "bomb\n" if id_ == "d" else "fine\n"}) for id_ in "abcdef"]
        commits = {member.subtask: member.commit for member in members}
        book = queued("abcdef", base=bench.base, commits=commits, check="test -f {}.txt")
        stood: list[str] = []
        checks = Checks(book, bench.hands, Clock(), Gate(criteria=(gate,), reruns=0))
        work = Lander(book, bench.hands, checks, Clock())
        await book.record()
        while probes := book.state.landing.probes:
            await work.probe(probes[0].number)
            stood.append(await bench.hands.tip(RUN))
        store = bench.hands.store.git
        listed = (await store("log", "--reverse", "--format=%s", f"{bench.base}..{stood[-1]}")).decode().split("\n")
        assert [line for line in listed if line] == ["Do the thing"] * 5
        names = (await store("ls-tree", "--name-only", stood[-1])).decode().split()
        assert [name for name in names if len(name) == 5] == ["a.txt", "b.txt", "c.txt", "e.txt", "f.txt"]
        for tip in dict.fromkeys(stood):
            [run] = await Checks(book, bench.hands, Clock(), Gate()).on(tip, [gate])
            assert run.passed
        assert book.state.tip == stood[-1]
    failure = book.state.subtasks["d"].attempts[0].failure
    assert failure is not None
    assert failure.kind == "integration"
