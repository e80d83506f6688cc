"""Several commands in one box: what they share, what they do not, and who is asked again."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from anyio import create_task_group, move_on_after

from fleet.core.facts import CheckRun
from fleet.core.plan import Criterion
from tests.worktrees.conftest import Bench, OpenBench, python_shown
from tests.worktrees.test_forks import children, standing_ready
from worktrees import checks
from worktrees.box import EMPTIED
from worktrees.checks import MORE_BOXES, QUICK_S
from worktrees.serving import LONGEST

WHERE = "readlink /proc/self/ns/pid"  # names the box


def each(*commands: str, timeout_s: float = 60) -> tuple[Criterion, ...]:
    return tuple(Criterion(criterion=f"{number}", run=run, timeout_s=timeout_s) for number, run in enumerate(commands))


async def checked(bench: Bench, criteria: Sequence[Criterion], *, believe_red: bool = False) -> list[CheckRun]:
    async with bench.hands.lease(bench.base) as lease:
        runs = await lease.check(criteria, believe_red=believe_red)
    assert [run.command for run in runs] == [criterion.run for criterion in criteria]
    return list(runs)


async def test_the_checks_of_one_worktree_share_a_box_and_come_with_their_own_output(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        first, second, third = await checked(bench, each(f"echo one; {WHERE}", WHERE, f"echo three >&2; {WHERE}"))
    box = second.output
    assert box.startswith("pid:")
    assert (first.output, third.output) == (f"one\n{box}", f"three\n{box}")


async def test_nothing_goes_on_from_a_command_into_the_next_but_what_it_did_to_the_worktree(
    open_bench: OpenBench,
) -> None:
    leaves = (
        'mkdir -p /tmp/a/b /tmp/..c; touch /tmp/.d /dev/shm/e "$HOME/.f" /tmp/-rf stays; cd /tmp; FOO=1; export FOO; '
        "(trap '' TERM HUP; exec sleep 600) & (setsid sleep 600 &); readlink /proc/self/ns/pid >/repo/box"
    )
    finds = (
        'ls -A /tmp /dev/shm "$HOME" | grep -v : | grep .; echo "$PWD $FOO"; ls; '
        "cat /proc/[0-9]*/comm | grep sleep; readlink /proc/self/ns/pid | cmp - box; cat"
    )
    async with open_bench() as bench:
        _, found = await checked(bench, each(leaves, finds))
    assert found.output == "/repo \nREADME.md\nbox\nsrc\nstays\n"


async def test_a_command_is_taken_as_it_is_written(open_bench: OpenBench) -> None:
    odd = (
        "true",
        "printf '%s' 'a\\nb\\\\c\\0101 %b %d $HOME `x`'",
        "cat <<'EOF'\n  two\tlines\\\n\nEOF\n\n",
        "printf 'ü€\\\\'; exit 7",
        "echo 'no end \\'",
    )
    async with open_bench() as bench:
        runs = await checked(bench, each(*odd), believe_red=True)
    assert [run.output for run in runs] == [
        "",
        "a\\nb\\\\c\\0101 %b %d $HOME `x`",
        "  two\tlines\\\n\n",
        "ü€\\",
        "no end \\\n",
    ]
    assert [run.exit_code for run in runs] == [0, 0, 0, 7, 0]


async def test_a_red_one_that_shared_its_box_is_asked_again_in_one_of_its_own(open_bench: OpenBench) -> None:
    once = f"echo x >>tries; {WHERE}; test $(wc -l <tries) -gt 1"
    async with open_bench() as bench:
        first, second, third = await checked(bench, each(WHERE, once, WHERE))
        assert second.passed
        assert len({first.output, second.output, third.output}) == 3
        first, second, third = await checked(bench, each(WHERE, once, WHERE), believe_red=True)
        assert (first.passed, second.passed, third.passed) == (True, False, True)
        assert first.output == second.output == third.output
        [alone, _] = await checked(bench, each(once, WHERE))
        assert not alone.passed


async def test_who_ends_the_shell_that_serves_gets_a_box_of_its_own_and_so_do_those_behind_it(
    open_bench: OpenBench,
) -> None:
    async with open_bench() as bench:
        runs = await checked(
            bench, each("true", "kill -KILL -1 2>/dev/null; echo on", "kill 0", "echo after", "echo end")
        )
    assert [(run.passed, run.output) for run in runs if run.command != "kill 0"] == [
        (True, ""),
        (True, "on\n"),
        (True, "after\n"),
        (True, "end\n"),
    ]
    assert not runs[2].passed


@pytest.mark.parametrize("believe_red", [True, False])
async def test_one_that_takes_too_long_is_ended_and_the_others_go_on(open_bench: OpenBench, believe_red: bool) -> None:
    criteria = (*each("true"), *each("echo begun; sleep 600", timeout_s=0.5), *each("echo on", "exit 3"))
    async with open_bench() as bench:
        runs = await checked(bench, criteria, believe_red=believe_red)
    assert [(run.exit_code, run.timed_out) for run in runs] == [(0, False), (124, True), (0, False), (3, False)]
    assert [run.output for run in runs] == ["", "begun\n", "on\n", ""]


async def test_one_without_a_command_or_with_a_very_long_one_is_answered_too(open_bench: OpenBench) -> None:
    long = f"echo {'x' * LONGEST} | wc -c"
    criteria = (*each("true", long), Criterion(criterion="named"), *each("true"))
    async with open_bench() as bench, bench.hands.lease(bench.base) as lease:
        runs = await lease.check(criteria)
    assert [run.passed for run in runs] == [True, True, False, True]
    assert runs[1].output == f"{LONGEST + 1}\n"


async def test_each_hears_of_its_own_tests_only(open_bench: OpenBench) -> None:
    report = "<?xml version='1.0'?><testsuites><testcase file='t.py' classname='t' name='{}'/></testsuites>"
    says = 'at=${{PYTEST_ADDOPTS#*--junitxml=}}; echo "{}" >${{at%% *}}'
    commands = ("true", says.format(report.format("a")), says.format(report.format("b")), "true")
    async with open_bench() as bench:
        runs = await checked(bench, each(*commands))
    heard = [set() if run.heard is None else run.heard.passed for run in runs]
    assert heard == [set(), {"t.py::t::a"}, {"t.py::t::b"}, set()]


async def test_a_command_that_talks_without_end_is_cut_and_the_next_begins_anew(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        _, shouts, says = await checked(bench, each("true", "yes | head -c 9000000; echo end", "echo next"))
    assert shouts.output.endswith("y\nend\n")
    assert says.output == "next\n"


async def test_a_lease_tells_of_each_answer_and_takes_the_next_only_then(open_bench: OpenBench) -> None:
    story = list[str]()

    def asked() -> Iterator[Criterion]:
        for criterion in each("true", "true", "true"):
            story.append(f"asked {criterion.criterion}")
            yield criterion

    async with open_bench() as bench, bench.hands.lease(bench.base) as lease:
        await lease.check(asked(), lambda run: story.append(f"told {run.criterion}"))
    assert story == [f"{what} {number}" for number in range(3) for what in ("asked", "told")]


async def test_the_shell_that_serves_is_out_of_reach(open_bench: OpenBench) -> None:
    reaches = (
        "readlink /proc/self/fd/0; readlink /proc/$PPID/fd/0 | grep -o socket; cat /proc/$PPID/comm; "
        "for part in mem fd/0; do (exec 3<>/proc/$PPID/$part) 2>/dev/null && echo reached $part; done; true"
    )
    async with open_bench() as bench:
        _, tried = await checked(bench, each("true", reaches))
    assert tried.output == "/dev/null\nsocket\nsh\n"


async def test_without_the_filter_of_system_calls_no_box_is_shared(open_bench: OpenBench) -> None:
    async with open_bench(syscall_filter=False) as bench:
        runs = await checked(bench, each(WHERE, WHERE, WHERE))
    assert len({run.output for run in runs}) == 3


async def test_without_a_sandbox_each_runs_by_itself(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench(sandbox="none") as bench:
        runs = await checked(bench, each("echo $$", f"touch {tmp_path}/x", "exit 2"))
    assert [run.exit_code for run in runs] == [0, 0, 2]


# ---- from one worktree to the next


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
    assert shared.output == f"{first.output}True\n"
    assert second.output != first.output
    assert queued.output == f"{second.output}True\n"
    assert third.output == second.output
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
