"""Boxes that stay: what they show of each worktree, that nothing is left for the next one, and when they go."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from anyio import create_task_group, move_on_after

from fleet.core.facts import CheckRun
from tests.worktrees.conftest import Bench, OpenBench, python_shown
from tests.worktrees.test_forks import children, standing_ready
from tests.worktrees.test_serving import WHERE, each
from worktrees import checks
from worktrees.box import EMPTIED
from worktrees.checks import MORE_BOXES, QUICK_S


async def one_by_one(bench: Bench, *commands: str, base: str = "") -> list[CheckRun]:
    """Each alone, on a worktree of its own, and known to be quick."""
    runs = list[CheckRun]()
    for [criterion] in (each(command) for command in commands):
        bench.hands.checker.took[criterion.run or ""] = 0.0
        async with bench.hands.lease(base or bench.base) as lease:
            runs += await lease.check([criterion])
    return runs


async def test_a_box_that_stays_shows_each_lease_its_own_worktree_repository_and_port(open_bench: OpenBench) -> None:
    look = (
        f"{WHERE}; git log -1 --format=%H; git status --porcelain; ls; echo $FLEET_PORT; echo x >README.md; touch new"
    )
    async with open_bench() as bench, bench.hands.lease(bench.base):  # which has the first port
        other = (await bench.change("other", {"other.txt": "1\n"})).commit
        first, *_ = await one_by_one(bench, look, f"{look}; true")
        second, *_ = await one_by_one(bench, f"{look}; true; true", base=other)
        async with bench.hands.lease(bench.base):
            [third] = await one_by_one(bench, f"{look}; exit 0")
    box, *lines = first.output.split("\n")
    assert lines[:3] == [bench.base, "README.md", "src"]
    assert second.output.split("\n")[:-2] == [box, other, "README.md", "other.txt", "src"]
    assert third.output.split("\n")[:-2] == [box, *lines[:3]]
    assert third.output.split("\n")[-2] != lines[3]


async def test_nothing_is_left_in_a_box_that_stays(open_bench: OpenBench) -> None:
    leaves = (
        "touch secret; touch /tmp/a /dev/shm/a /run/a $HOME/a $HOME/../a; (setsid sleep 600 &); "
        "ulimit -n 50; export A=1; cd /proc/$PPID/cwd 2>/dev/null && touch here 2>/dev/null && echo reached; "
        "umount /repo 2>/dev/null; true"
    )
    finds = (
        "ls -A /tmp /dev/shm /home $HOME /fleet/mqueue | grep -v -e : -e worker | grep .; ls /run | grep -v report; "
        "cat /proc/[0-9]*/comm | grep sleep; ls -A; ulimit -n; echo $A; grep -c /repo /proc/self/mountinfo"
    )
    async with open_bench() as bench:
        before, left, after = await one_by_one(bench, finds, leaves, f"{finds}; {WHERE} >/dev/null")
    assert before.output == after.output
    assert left.output == ""


async def test_one_that_is_red_in_a_box_that_others_used_finds_its_worktree_as_it_was(open_bench: OpenBench) -> None:
    once = f"{WHERE}; mkdir made"
    async with open_bench() as bench:
        fresh, used = await one_by_one(bench, f"{WHERE}; exit 3", once)
        assert not fresh.passed
        assert used.passed  # no second try
        assert used.output == fresh.output
        [red] = await one_by_one(bench, f"{WHERE}; test -e made && exit 0; mkdir made; exit 4")
    assert (red.exit_code, red.passed) == (4, False)
    assert red.output != used.output


async def test_only_what_was_quick_is_given_to_a_box_that_others_used(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first, *_ = await one_by_one(bench, WHERE)
        boxes = [first.output]
        for took in (0.0, QUICK_S + 0.1, None, 0.2):
            bench.hands.checker.took.clear()
            if took is not None:
                bench.hands.checker.took[WHERE] = took
            async with bench.hands.lease(bench.base) as lease:
                [run] = await lease.check(each(WHERE))
            boxes.append(run.output)
    assert boxes[1] == boxes[0] == boxes[4]
    assert len({boxes[0], boxes[2], boxes[3]}) == 3


async def test_a_box_in_which_something_could_last_is_not_used_again(open_bench: OpenBench) -> None:
    python = {"read_only": python_shown(), "path": (Path(sys.prefix, "bin"),)}
    call = "python -c 'import ctypes; print(ctypes.CDLL(None).{} >= 0)'"
    memory, queue = call.format("shmget(1, 4096, 0o1600)"), call.format('mq_open(b"/q", 0o102, 0o600, None)')
    async with open_bench(**python) as bench:
        first, shared, second, queued, third, fourth = await one_by_one(
            bench,
            WHERE,
            f"{WHERE}; {memory}",
            f"true; {WHERE}",
            f"{WHERE}; {queue}",
            f"ls /fleet/mqueue; {WHERE}",
            memory,
        )
    assert shared.output.endswith("True\n")
    assert second.output not in {first.output, shared.output.removesuffix("True\n")}
    assert queued.output.endswith("True\n")
    assert "q\n" not in third.output
    assert fourth.output == "True\n"


@pytest.mark.parametrize("place", EMPTIED)
async def test_a_box_with_a_place_that_was_closed_is_not_used_again(open_bench: OpenBench, place: str) -> None:
    async with open_bench() as bench:
        first, closed, second = await one_by_one(bench, WHERE, f"{WHERE}; chmod 000 {place}", f"true; {WHERE}")
    assert (closed.passed, closed.output) == (True, first.output)
    assert second.output not in {first.output, ""}


async def test_who_closes_the_channel_of_reports_closes_it_for_himself(open_bench: OpenBench) -> None:
    at = "at=${PYTEST_ADDOPTS#*--junitxml=}; at=${at%% *}"
    report = "<?xml version='1.0'?><testsuites><testcase file='t.py' classname='t' name='a'/></testsuites>"
    async with open_bench() as bench:
        first, closes, says = await one_by_one(
            bench, WHERE, f"{at}; chmod 000 $at; {WHERE}", f'{at}; echo "{report}" >$at; {WHERE}'
        )
    assert first.output == closes.output == says.output
    assert says.heard is not None


LASTING = {
    "a file in a folder that can't be emptied": "mkdir -p /tmp/a/b; touch /tmp/a/b/c; chmod 555 /tmp/a/b",
    "limits of the one who serves": "prlimit --pid $PPID --nofile=20:20",
    "its nice value": "renice -n 5 -p $PPID",
    "its processors": "taskset -pc 0 $PPID",
    "its scheduler": "chrt -i -p 0 $PPID",
    "no terminals": "chmod 000 /dev/pts/ptmx",
}


@pytest.mark.parametrize("deed", LASTING)
async def test_a_box_that_was_changed_for_good_is_not_used_again(open_bench: OpenBench, deed: str) -> None:
    async with open_bench() as bench:
        first, done, second = await one_by_one(bench, WHERE, f"{WHERE}; {LASTING[deed]} >/dev/null", f"true; {WHERE}")
    assert (done.passed, done.output) == (True, first.output)  # it could be done
    assert second.output not in {first.output, ""}


@pytest.mark.parametrize("deed", ["chmod 700 /tmp $HOME", "chmod 1777 /dev/shm /run"])
async def test_places_are_as_new_with_each_worktree(open_bench: OpenBench, deed: str) -> None:
    look = "stat -c '%n %a %U' /tmp /dev/shm /run /home $HOME"
    async with open_bench() as bench:
        before, done, after = await one_by_one(bench, f"{look}; {WHERE}", f"{WHERE}; {deed}", f"{look}; {WHERE}; true")
        [alone] = await one_by_one(bench, f"false; {look}; false")
    assert done.passed
    assert after.output == before.output
    assert before.output.startswith(alone.output)


async def test_whoever_is_killed_is_gone_before_the_next_begins(open_bench: OpenBench) -> None:
    """A process with much memory takes its time to go, and is there until it is gone."""
    async with open_bench() as bench:
        large = "(head -c 300000000 /dev/zero | tail >/dev/null; sleep 60) & sleep 0.3"
        runs = await one_by_one(
            bench, WHERE, f"{large}; {WHERE}", "cat /proc/[0-9]*/comm | grep -v -e bwrap -e sh -e cat -e grep; true"
        )
    assert runs[2].output == ""


async def test_nothing_can_be_left_below_the_worktree(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        _, tried = await one_by_one(
            bench, WHERE, "touch /proc/1/cwd/x 2>/dev/null && echo reached; ls -d /proc/1/cwd/repo"
        )
    assert tried.output == "/proc/1/cwd/repo\n"


async def test_a_box_that_is_gone_is_replaced(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first, gone, second = await one_by_one(bench, WHERE, "kill -KILL $PPID; sleep 0.2", f"true; {WHERE}")
    assert gone.passed  # alone there is nobody who serves
    assert second.output not in {first.output, ""}


@pytest.mark.parametrize("used", [True, False])
async def test_one_that_is_quick_no_more_is_broken_off_and_asked_by_itself(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch, used: bool
) -> None:
    monkeypatch.setattr(checks, "PATIENCE_S", 0.3)
    async with open_bench() as bench:
        if used:
            await one_by_one(bench, WHERE)
        slow = "test -e begun && exit 5; touch begun; sleep 0.6; echo end"
        [run] = await one_by_one(bench, slow)
        assert (run.passed, run.output) == (True, "end\n")
        assert bench.hands.checker.took[slow] > 0.5


async def test_breaking_off_takes_the_box_with_it_and_leaves_a_worktree_that_can_go(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await one_by_one(bench, WHERE)
        for delay in range(8):
            with move_on_after(delay * 0.003):
                await one_by_one(bench, "touch x; sleep 2147482")
        [after] = await one_by_one(bench, f"{WHERE}; ls")
        assert after.output.endswith("README.md\nsrc\n")
        assert _sleeping("2147482") == 0


async def test_checks_go_on_without_the_process_that_mounts(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        await one_by_one(bench, WHERE)
        for _ in range(2):
            for pid in standing_ready():
                os.kill(pid, signal.SIGKILL)
            [run] = await one_by_one(bench, f"{WHERE}; cat README.md")
            assert run.output.endswith("hello\n")


async def test_a_hundred_checks_take_few_boxes_and_leave_none(open_bench: OpenBench) -> None:
    boxes = set[str]()

    async def check(number: int) -> None:
        [run] = await one_by_one(bench, f"{WHERE}; : {number}")
        boxes.add(run.output)

    async with open_bench() as bench:
        async with create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(check, number)
        most = bench.settings.check_slots + MORE_BOXES
        assert len(boxes) <= most
    assert children() == []


def _sleeping(word: str) -> int:
    """How many sleep for so long, once they had time to end."""
    until = monotonic() + 20.0
    while (found := sum(word in line for line in _command_lines())) and monotonic() < until:
        sleep(0.01)
    return found


def _command_lines() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_text(encoding="utf-8", errors="replace")
