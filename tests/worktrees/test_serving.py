"""Several commands in one box: what they share, what they do not, and who is asked again."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fleet.core.facts import CheckRun
from fleet.core.plan import Criterion
from tests.worktrees.conftest import Bench, OpenBench
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
