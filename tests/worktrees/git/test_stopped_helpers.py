"""A helper that stands still, like one that waits for a dead disk: it is killed at a limit, and another one answers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from tests.worktrees import forest
from tests.worktrees.conftest import git
from worktrees.base.process import descendants, kill_descendants
from worktrees.git import reader
from worktrees.git.diff import PATCH, DiffProgram
from worktrees.git.object_format import FILE
from worktrees.git.objects import Objects
from worktrees.git.program import CommandTimeouts, Coprocess, CoprocessError, Git
from worktrees.git.repository import Refs

SHORT = CommandTimeouts(answer_s=1.0, end_s=0.1)  # a new program needs some of it on a busy machine


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    before = descendants()
    yield forest.new_repository(tmp_path / "store.git")
    assert not descendants() - before


def stop(name: str) -> set[int]:
    """Stop every helper of ours with this word in its command line."""
    deadline = time.monotonic() + 10
    while not (stopped := named(name)):  # a program that has just started has no command line for a moment
        assert time.monotonic() < deadline
        time.sleep(0.001)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    return stopped


def named(name: str) -> set[int]:
    return {pid for pid in descendants() if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()}


def readings(objects: Objects, tree: Sha, blob: Sha) -> dict[str, Callable[[], object]]:
    return {
        "find": lambda: objects.find(tree) is not None,
        "missing": lambda: objects.missing([tree, Sha("0" * 40)]) == ["0" * 40],
        "blobs": lambda: list(objects.blobs([blob, blob])) == [b"a\n", b"a\n"],
    }


@pytest.mark.parametrize("how", ["find", "missing", "blobs"])
def test_objects_are_read_by_another_cat_file(store: Path, how: str) -> None:
    objects = Objects(store, SHORT)
    try:
        tree = forest.plant(objects, {b"a": (FILE, b"a\n")})
        ask = readings(objects, tree, objects.put("blob", b"a\n"))[how]
        assert ask()
        stopped = stop("cat-file")
        assert ask()
        assert not stopped & descendants()
    finally:
        objects.close()


async def test_a_ref_is_moved_by_another_update_ref_and_no_lock_is_left(store: Path) -> None:
    objects, refs = Objects(store), Refs(Git(store), patience=SHORT)
    try:
        first = forest.commit(objects, forest.plant(objects, {b"a": (FILE, b"a\n")}))
        await refs.pin("refs/fleet/x", first)
        stopped = stop("update-ref")
        await refs.pin("refs/fleet/y", first)
        assert await refs.swap("refs/fleet/z", new=first, old=Sha("0" * 40))
        assert git(store, "for-each-ref", "--format=%(refname)").split() == [f"refs/fleet/{name}" for name in "xyz"]
        assert not stopped & descendants()
        assert git(store, "update-ref", "refs/fleet/x", first) == "", "no lock is left"
    finally:
        refs.close()
        objects.close()


def test_a_diff_program_is_given_up_and_the_next_question_is_answered(store: Path) -> None:
    objects, diffs = Objects(store), DiffProgram(Git(store), *PATCH, patience=SHORT)
    try:
        old, new = (forest.plant(objects, {b"a": (FILE, text)}) for text in (b"a\n", b"b\n"))
        assert b"+b" in diffs.ask(old, new)
        stop("diff-tree")
        with pytest.raises(CoprocessError, match="silent"):
            diffs.ask(old, new)
        assert b"+b" in diffs.ask(old, new)
    finally:
        diffs.close()
        objects.close()


def test_one_that_reads_nothing_can_not_hold_who_asks(store: Path) -> None:
    helper = Coprocess(store, "cat-file", "--batch-command", "--buffer", patience=SHORT)
    try:
        with helper.conversation() as talk:
            talk.send(b"flush\n")
            stop("cat-file")
            with pytest.raises(CoprocessError, match="silent"):
                talk.send(b"info " + b"0" * 40 + b"\n" + b"flush\n" * 200_000)
    finally:
        helper.close()


async def test_closing_ends_a_conversation_with_a_stopped_helper(store: Path) -> None:
    helper = Coprocess(
        store, "cat-file", "--batch-command", "--buffer", patience=CommandTimeouts(answer_s=3600.0, end_s=0.1)
    )
    asked, ended = anyio.Event(), list[CoprocessError]()

    def ask() -> None:
        try:
            with helper.conversation() as talk:
                stop("cat-file")
                anyio.from_thread.run_sync(asked.set)
                talk.send(b"info HEAD\nflush\n")
                talk.read_line()
        except CoprocessError as error:
            ended.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, ask)
        await asked.wait()
        await anyio.to_thread.run_sync(helper.close)
    assert len(ended) == 1


async def test_a_git_that_stands_still_is_killed_at_its_limit(store: Path) -> None:
    def stop_it() -> None:
        stop("cat-file")

    pipe = store / "endless"
    os.mkfifo(pipe)
    holder = os.open(pipe, os.O_RDWR)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, stop_it)
            with pytest.raises(EffectError):
                await Git(store, timeout_s=0.5).ask("-c", f"include.path={pipe}", "cat-file", "-t", "HEAD")
    finally:
        os.close(holder)


async def test_what_gitpython_waits_for_is_killed_and_asked_again(store: Path) -> None:
    objects = Objects(store)
    commit = forest.commit(objects, forest.plant(objects, {b"a": (FILE, b"a\n")}))
    objects.close()
    tries: list[int] = []

    def question(repo: Any) -> str:
        started = repo.git.cat_file("--batch", istream=PIPE, as_process=True)  # ends its process with itself
        with started.proc as answering:
            tries.append(answering.pid)
            if len(tries) == 1:
                os.kill(answering.pid, signal.SIGSTOP)
            answering.stdin.write(commit.encode() + b"\n")
            answering.stdin.flush()
            return str(answering.stdout.readline().split()[1], "utf-8")

    assert await reader.read(Git(store), question, answer_s=1.0) == "commit"
    assert len(tries) == 2
    tries.clear()

    def never(repo: Any) -> str:
        tries.clear()
        return question(repo)

    with pytest.raises(EffectError, match="did not answer within"):
        await reader.read(Git(store), never, answer_s=1.0)


def test_only_those_that_are_marked_are_killed() -> None:
    assert not kill_descendants(marked=b"NO_SUCH_MARK=1")


def test_helpers_may_clean_up_before_they_are_killed(tmp_path: Path) -> None:
    tidy = f"trap 'touch {tmp_path}/tidied; exit 0' TERM; touch {tmp_path}/$$; while :; do sleep 0.01; done"
    deaf = f"trap '' TERM; touch {tmp_path}/$$; while :; do sleep 0.01; done"
    asks = (
        "from worktrees.base.process import *; import subprocess, sys, time, os, pathlib\n"
        "started = [subprocess.Popen(['sh', '-c', line]) for line in sys.argv[2:]]\n"
        "while not all((pathlib.Path(sys.argv[1]) / str(each.pid)).exists() for each in started): time.sleep(0.01)\n"
        "os.kill(started[0].pid, 19)\n"
        "end_descendants(2.0)\n"
        "print(*(each.wait() for each in started))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", asks, str(tmp_path), tidy, deaf], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "-9"]
    assert (tmp_path / "tidied").exists()
