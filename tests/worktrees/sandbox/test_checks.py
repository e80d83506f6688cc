"""Checks on real checkouts: their logs, and a bisect with a real gate."""

from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun
from fleet.core.plans.plan import Criterion
from fleet.engine.checks import Checks, Gate, NodeTrust
from fleet.engine.landing import Lander
from fleet.engine.this_machine import ThisMachine
from fleet.ports.worktrees import Lease
from tests.fleet.core.pretend import subtask_of
from tests.fleet.hands import Clock, queued
from tests.worktrees.conftest import RUN, OpenBench

TALKS = Criterion(criterion="talks", run="seq 100000; exit 7")


def numbered(*commands: str) -> tuple[Criterion, ...]:
    return tuple(Criterion(criterion=f"{number}", run=command) for number, command in enumerate(commands))


async def run_all(lease: Lease, criteria: tuple[Criterion, ...]) -> list[CheckRun]:
    """Run checks one after another in one worktree."""
    return [await lease.check(criterion) for criterion in criteria]


async def test_each_check_has_a_box_of_its_own_and_finds_only_what_an_earlier_one_did_to_the_worktree(
    open_bench: OpenBench,
) -> None:
    leaves = (
        'mkdir -p /tmp/a/b; touch /dev/shm/e "$HOME/.f" stays; cd /tmp; FOO=1; export FOO; ulimit -n 50; '
        "(setsid sleep 600 &); readlink /proc/self/ns/pid >/repo/box"
    )
    finds = (
        'ls -A /tmp /dev/shm "$HOME" | grep -v : | grep .; echo "$PWD $FOO"; ls; '
        "cat /proc/[0-9]*/comm | grep sleep; readlink /proc/self/ns/pid | cmp -s - box; echo $?"
    )
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        first, second, third = await run_all(lease, numbered("echo before >&2; exit 3", leaves, finds))
    assert (first.exit_code, first.output) == (3, "before\n")
    assert (second.passed, second.output) == (True, "")
    assert third.output == "/repo \nREADME.md\nbox\nsrc\nstays\n1\n"


async def test_what_a_check_does_to_its_output_is_gone_for_the_next(open_bench: OpenBench, tmp_path: Path) -> None:
    """A pipe that does not wait makes `! grep` pass: grep ends with an error as soon as the pipe is full."""
    spoils = "import fcntl; fcntl.fcntl(1, fcntl.F_SETFL, 2048); fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 4096)"
    floods = "! seq 300000"
    async with open_bench(check_logs=tmp_path / "checks") as bench, bench.worktrees.lease(bench.base) as lease:
        runs = await run_all(lease, numbered(f"/usr/bin/env python3 -c '{spoils}' || exit 3", floods))
    assert (runs[0].passed, runs[1].exit_code) == (True, 1)
    assert "\n299999\n300000\n" in (tmp_path / runs[1].log).read_text()


async def test_what_is_shown_below_a_folder_of_the_boxs_own_is_there_for_each_check(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    tool = tmp_path / "tools" / "tool"
    tool.parent.mkdir()
    tool.write_text("echo here\n", encoding="utf-8")
    assert tool.is_relative_to("/dev/shm") or tool.is_relative_to("/tmp")  # noqa: S108 - both are the box's own
    async with open_bench(read_only=(tool.parent,)) as bench, bench.worktrees.lease(bench.base) as lease:
        runs = await run_all(lease, numbered(f"sh {tool}", f"sh {tool}"))
    assert [run.output for run in runs] == ["here\n", "here\n"]


async def test_a_check_is_credited_with_its_own_tests_only(open_bench: OpenBench) -> None:
    report = "<?xml version='1.0'?><testsuites><testcase file='t.py' classname='t' name='{}'/></testsuites>"
    writes = 'at=${{PYTEST_ADDOPTS#*--junitxml=}}; echo "{}" >${{at%% *}}'
    commands = ("true", *(writes.format(report.format(name)) for name in "ab"), "true")
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        runs = await run_all(lease, numbered(*commands))
    passed = [set() if run.ran_tests is None else run.ran_tests.passed for run in runs]
    assert passed == [set(), {"t.py::t::a"}, {"t.py::t::b"}, set()]


async def test_a_check_that_runs_out_of_time_or_has_no_command_does_not_stop_the_next(open_bench: OpenBench) -> None:
    slow = Criterion(criterion="slow", run="echo begun; sleep 600", timeout_s=0.5)
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        runs = await run_all(lease, (slow, Criterion(criterion="named"), *numbered("exit 3")))
    assert [(run.exit_code, run.timed_out, run.passed) for run in runs] == [
        (124, True, False),
        (None, False, False),
        (3, False, False),
    ]
    assert runs[0].output == "begun\n"


async def test_without_a_sandbox_each_check_runs_by_itself(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench(sandbox="none") as bench, bench.worktrees.lease(bench.base) as lease:
        runs = await run_all(lease, numbered("echo $$", f"touch {tmp_path}/x", "exit 2"))
    assert [run.exit_code for run in runs] == [0, 0, 2]


async def test_the_whole_output_of_a_check_is_kept_in_a_file_that_its_result_names(
    open_bench: OpenBench, tmp_path: Path
) -> None:
    logs = tmp_path / "checks"
    async with open_bench(check_logs=logs) as bench, bench.worktrees.lease(bench.base) as lease:
        first = await lease.check(TALKS)
        second = await lease.check(TALKS)
    text = (tmp_path / first.log).read_text()
    assert text.startswith("$ seq 100000; exit 7\n1\n2\n3\n")
    assert text.splitlines()[-2] == "100000"
    assert text.splitlines()[-1].startswith("[exit code 7, ")
    assert first.log != second.log
    assert (tmp_path / first.log).stat().st_mode & 0o777 == 0o600


async def test_a_log_is_cut_in_its_middle_when_a_check_prints_too_much(open_bench: OpenBench, tmp_path: Path) -> None:
    shouts = Criterion(criterion="shouts", run="yes | head -c 9000000; echo end")
    async with open_bench(check_logs=tmp_path / "checks") as bench, bench.worktrees.lease(bench.base) as lease:
        run = await lease.check(shouts)
    assert run.passed
    log = (tmp_path / run.log).read_bytes()
    assert len(log) < 3 * 1024 * 1024
    assert b"bytes left out" in log
    assert b"\nend\n" in log


@pytest.mark.parametrize("place", ["file", "missing/folder"])
async def test_a_log_that_cannot_be_written_fails_no_check(open_bench: OpenBench, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    async with open_bench(check_logs=tmp_path / place / "x") as bench, bench.worktrees.lease(bench.base) as lease:
        run = await lease.check(TALKS.model_copy(update={"run": "true"}))
    assert (run.passed, run.log) == (True, "")


async def test_without_a_folder_for_logs_there_are_none(open_bench: OpenBench) -> None:
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        run = await lease.check(TALKS)
    assert run.log == ""


async def test_a_bisect_on_a_real_repository_lands_the_innocent_in_order_and_every_tip_is_green(
    open_bench: OpenBench,
) -> None:
    gate = Criterion(criterion="no bomb", run="! grep -rq bomb --include=*.txt .", fails_before=False)
    async with open_bench() as bench:
        members = [await bench.change(id_, {f"{id_}.txt": "bomb\n" if id_ == "d" else "fine\n"}) for id_ in "abcdef"]
        commits = {member.subtask: member.commit for member in members}
        book = queued("abcdef", base=bench.base, commits=commits, check="test -f {}.txt")
        tips: list[Sha] = []
        checks = Checks(
            book,
            bench.worktrees,
            bench.worktrees,
            Clock(),
            Gate(criteria=(gate,), reruns=0),
            ThisMachine(bench.worktrees.lease),
            NodeTrust(book, Clock()),
        )
        work = Lander(book, bench.worktrees.integrator, checks, Clock())
        await book.record()
        while probes := book.state.landing.open_batches:
            await work.test_batch(probes[0].number)
            tips.append(await bench.worktrees.integrator.tip(RUN))
        store = bench.worktrees.store.git
        listed = (await store("log", "--reverse", "--format=%s", f"{bench.base}..{tips[-1]}")).decode().split("\n")
        assert [line for line in listed if line] == ["Do the thing"] * 5
        names = (await store("ls-tree", "--name-only", tips[-1])).decode().split()
        assert [name for name in names if len(name) == 5] == ["a.txt", "b.txt", "c.txt", "e.txt", "f.txt"]
        for tip in dict.fromkeys(tips):
            node, trust = ThisMachine(bench.worktrees.lease), NodeTrust(book, Clock())
            checks = Checks(book, bench.worktrees, bench.worktrees, Clock(), Gate(), node, trust)
            [run] = await checks.on(tip, [gate])
            assert run.passed
        assert book.state.tip == tips[-1]
    failure = subtask_of(book.state, "d").attempts[0].failure
    assert failure is not None
    assert failure.kind == "integration"
