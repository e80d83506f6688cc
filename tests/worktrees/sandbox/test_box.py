"""What a worker can do in its box, and what it can't."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from anyio import create_task_group

from fleet.core.plans.plan import Criterion
from fleet.ports.agents import Extras, WorkspaceError
from fleet.ports.worktrees import EffectError
from tests.worktrees.conftest import Bench, OpenBench, python_shown
from worktrees.base.settings import MIB, BoxLimits


async def test_the_home_the_state_and_other_worktrees_are_not_there(bench: Bench, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("secret", encoding="utf-8")
    async with bench.worktrees.lease(bench.base) as lease, bench.worktrees.lease(bench.base):
        for hidden in (canary, Path.home(), bench.settings.state_dir, Path("/etc/shadow"), Path(__file__)):
            assert (await lease.workspace.run(f"test ! -e '{hidden}'", timeout_s=20)).exit_code == 0, hidden
        assert (await lease.workspace.run("ls -A", timeout_s=20)).output.split() == [
            ".git",
            ".gitignore",
            "README.md",
            "src",
        ]


async def test_the_environment_is_ours_alone(open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary")
    async with open_bench(environment={"COLOUR": "blue"}) as bench, bench.worktrees.lease(bench.base) as lease:
        everything = await lease.workspace.run("env; cat /proc/*/environ | tr '\\0' '\\n'", timeout_s=20)
        assert "canary" not in everything.output
        shown = await lease.workspace.run("echo $PWD $HOME $COLOUR ${FLEET_BOX#*/}; id -u", timeout_s=20)
        assert shown.output == "/repo /home/worker blue r1/1\n1000\n"


async def test_there_is_no_network_not_even_our_own_loopback(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with bench.worktrees.lease(bench.base) as lease:
            connect = await lease.workspace.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}", timeout_s=20)
    assert connect.exit_code != 0


async def test_only_the_worktree_and_sized_folders_can_be_written(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        for place in ("/x", "/usr/x", "/etc/x", "/dev/x", "/repo/.git", "/etc/passwd", "/fleet/bin/git", "/fleet/x"):
            assert (await lease.workspace.run(f"echo x > {place}", timeout_s=20)).exit_code != 0, place
        for place in ("/repo/x", "$TMPDIR/x", "/home/worker/x", "/dev/shm/x"):  # noqa: S108 - inside the box
            assert (await lease.workspace.run(f"echo x > {place}", timeout_s=20)).exit_code == 0, place
        assert (await lease.workspace.run("rm -rf .git || mv .git x", timeout_s=20)).exit_code != 0


async def test_the_limits_of_a_process_hold_for_the_command_and_cannot_be_raised(open_bench: OpenBench) -> None:
    roomy = 8192 * MIB
    limits = BoxLimits(memory_bytes=roomy, disk_bytes=roomy, processes=200, open_files=100, file_bytes=8 * MIB)
    async with open_bench(limits=limits) as bench, bench.worktrees.lease(bench.base) as lease:
        limit = "for kind in u n f c; do ulimit -S$kind; ulimit -H$kind; done"
        shown = await lease.workspace.run(limit, timeout_s=20)
        assert shown.output.split() == ["200"] * 2 + ["100"] * 2 + ["8192"] * 2 + ["0"] * 2
        assert (await lease.workspace.run("ulimit -n 101", timeout_s=20)).exit_code != 0


async def test_a_command_that_ignores_signals_or_hides_is_killed_at_its_limit(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        stubborn = "trap '' TERM INT HUP; (setsid sleep 599 &); echo started; while :; do sleep 1; done"
        result = await lease.workspace.run(stubborn, timeout_s=1)
        assert (result.timed_out, result.exit_code, result.output) == (True, 124, "started\n")
        assert (await lease.workspace.run("setsid sleep 598 & echo on", timeout_s=60)).output == "on\n"
    assert not {b"sleep\x00599\x00", b"sleep\x00598\x00"} & set(commands_running())


def commands_running() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes()


async def test_a_flood_of_output_is_capped(open_bench: OpenBench) -> None:
    async with open_bench(output_bytes=2000) as bench, bench.worktrees.lease(bench.base) as lease:
        result = await lease.workspace.run("yes | head -c 20000000; echo; echo end", timeout_s=60)
    assert result.exit_code == 0
    assert len(result.output) < 2200
    assert result.output.endswith("\nend\n")


async def test_files_are_read_written_and_listed_inside_the_box(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        workspace = lease.workspace
        await workspace.write("/repo/new dir/ünï.bin", bytes(range(256)))
        assert await workspace.read("new dir/ünï.bin") == bytes(range(256))
        assert list(await workspace.list("/repo")) == [
            *(".gitignore", "README.md", "new dir/", "new dir/ünï.bin", "src/", "src/one.py"),
        ]
        for path, says in {"gone": "does not exist", "src": "is a folder", "../x": "is outside /repo"}.items():
            with pytest.raises(WorkspaceError, match=says):
                await workspace.read(path)
        with pytest.raises(WorkspaceError, match="is outside /repo"):
            await workspace.write("/etc/passwd", b"x")
        with pytest.raises(WorkspaceError, match="is not a folder"):
            await workspace.list("README.md")


async def test_a_link_never_leads_the_manager_outside(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("secret", encoding="utf-8")
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run(f"ln -s '{outside}' link; mkfifo pipe", timeout_s=20)
        with pytest.raises(WorkspaceError, match="does not exist"):
            await lease.workspace.read("link")
        with pytest.raises(WorkspaceError):
            await lease.workspace.write("link", b"overwritten")
        with pytest.raises(WorkspaceError, match="not a regular file"):
            await lease.workspace.write("pipe", b"x")
    assert outside.read_text(encoding="utf-8") == "secret"


async def test_a_shown_virtual_environment_runs(open_bench: OpenBench) -> None:
    changes = {"read_only": python_shown(), "path": (Path(sys.prefix, "bin"),)}
    async with open_bench(**changes) as bench, bench.worktrees.lease(bench.base) as lease:
        result = await lease.workspace.run("python -c 'import anyio, sys; print(sys.prefix)'", timeout_s=60)
        assert result.output == f"{sys.prefix}\n"
        assert (await lease.workspace.run(f"touch '{sys.prefix}/x'", timeout_s=20)).exit_code != 0


async def test_checks_say_what_happened_and_keep_the_end_of_the_output(bench: Bench) -> None:
    criteria = [
        Criterion(criterion="greets", run="grep -q hello README.md"),
        Criterion(criterion="talks", run="seq 100000; exit 7"),
        Criterion(criterion="ends", run="sleep 600", timeout_s=0.5),
        Criterion(criterion="named"),
    ]
    async with bench.worktrees.lease(bench.base) as lease:
        greets, talks, ends, named = [await lease.check(criterion) for criterion in criteria]
    assert (greets.passed, greets.exit_code, greets.command) == (True, 0, "grep -q hello README.md")
    assert (talks.passed, talks.exit_code, len(talks.output)) == (False, 7, 4000)
    assert talks.output.endswith("\n100000\n")
    assert (ends.passed, ends.timed_out) == (False, True)
    assert (named.passed, named.exit_code) == (False, None)


async def test_waiting_for_a_slot_does_not_count_as_a_checks_time(open_bench: OpenBench) -> None:
    criterion = Criterion(criterion="naps", run="sleep 0.4", timeout_s=1.5)
    passed: list[bool] = []
    async with open_bench(slots=1) as bench:

        async def tenant() -> None:
            async with bench.worktrees.lease(bench.base) as lease:
                passed.append((await lease.check(criterion)).passed)

        async with create_task_group() as group:
            for _ in range(6):
                group.start_soon(tenant)
    assert passed == [True] * 6


async def test_a_box_that_cannot_be_made_is_not_a_failed_command(open_bench: OpenBench, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "bwrap").write_text("#!/bin/sh\necho 'bwrap: no namespaces here' >&2; exit 1\n", encoding="utf-8")
    (broken / "bwrap").chmod(0o755)
    async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{broken}:{os.environ['PATH']}")
            with pytest.raises(EffectError) as caught:
                await lease.workspace.run("true", timeout_s=20)
    assert caught.value.failure.kind == "infrastructure"
    assert "no namespaces here" in caught.value.failure.evidence


async def test_without_a_sandbox_the_workspace_is_the_worktree_itself(
    open_bench: OpenBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary")
    async with open_bench(sandbox="none") as bench, bench.worktrees.lease(bench.base) as lease:
        workspace = lease.workspace
        assert (await workspace.run("pwd; env | grep -c canary", timeout_s=20)).output == f"{workspace.root}\n0\n"
        await workspace.write(f"{workspace.root}/a.txt", b"a")
        assert await workspace.read("a.txt") == b"a"
        await workspace.run("ln -s /etc/passwd link; ln -s /etc folder", timeout_s=20)
        for path in ("link", "folder/passwd", "/etc/passwd"):
            with pytest.raises(WorkspaceError, match="outside"):
                await workspace.read(path)
        background = await workspace.run("sleep 600 & echo on", timeout_s=60)
        assert background.output == "on\n"


async def test_extras_hold_for_their_command_alone(open_bench: OpenBench, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "greet").write_text("#!/bin/sh\necho hello $WHOM\n")
    (tools / "greet").chmod(0o755)
    extras = Extras(read_only=(str(tools),), path=(str(tools),), environment={"WHOM": "you"})
    async with open_bench(environment={"WHOM": "all"}) as bench, bench.worktrees.lease(bench.base) as lease:
        assert (await lease.workspace.run("greet", timeout_s=20, extras=extras)).output == "hello you\n"
        assert (await lease.workspace.run(f"echo x > {tools}/greet", timeout_s=20, extras=extras)).exit_code != 0
        assert (await lease.workspace.run(f"echo $WHOM; test ! -e {tools}", timeout_s=20)).output == "all\n"


async def test_the_network_can_be_opened_or_closed_for_one_command(open_bench: OpenBench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connect = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]}"
        async with open_bench() as bench, bench.worktrees.lease(bench.base) as lease:
            assert (await lease.workspace.run(connect, timeout_s=20, extras=Extras(network=True))).exit_code == 0
            assert (await lease.workspace.run(connect, timeout_s=20)).exit_code != 0
        async with open_bench(network=True) as bench, bench.worktrees.lease(bench.base) as lease:
            assert (await lease.workspace.run(connect, timeout_s=20, extras=Extras(network=False))).exit_code != 0
            assert (await lease.workspace.run(connect, timeout_s=20)).exit_code == 0
