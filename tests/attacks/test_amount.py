"""Using too much: processes, memory, files, disk space. The amounts are small, and so are the limits."""

import shutil
from dataclasses import replace

import pytest

from tests.attacks.conftest import Arena, bare
from worktrees.base.settings import MIB, BoxLimits

TIGHT = BoxLimits(
    processes=60,
    file_bytes=MIB,
    tmp_bytes=MIB,
    home_bytes=MIB,
    memory_bytes=100 * MIB,
    disk_bytes=20 * MIB,
    disk_files=1000,
    free_bytes=0,
)
FORKS = 'for i in $(seq "$1"); do sleep 20 & done; sleep 1; jobs -p | wc -l; kill $(jobs -p)'
MEMORY = (
    "python -c 'import sys, time; held = bytearray(int(sys.argv[1]) << 20); print(len(held)); time.sleep(2)' \"$1\""
)
UNMAPPED = (
    "python -c 'import os, sys, time\n"
    'fd = os.memfd_create("x")\nfor _ in range(int(sys.argv[1])): os.write(fd, bytes(1 << 20))\n'
    'held = bytearray(110 << 20); print(os.fstat(fd).st_size); time.sleep(2)\' "$1"'
)
MANY_BYTES = 'for i in $(seq 40); do head -c 1000000 /dev/zero > "$i" || exit 1; done; ls | wc -l'
MANY_FILES = "mkdir many; cd many; seq 3000 | xargs touch; ls | wc -l"
FILL = 'head -c 3000000 /dev/zero > "$1/much"'


async def test_12_a_fork_bomb(arena: Arena) -> None:
    assert (await arena.without(FORKS, 150)).output.splitlines()[0] == "150"
    bomb = await arena.within(FORKS, 150, limits=TIGHT)
    assert "more than 60 processes" in bomb.output or "temporarily unavailable" in bomb.output
    assert "150" not in bomb.output
    assert (await arena.within("echo others start", limits=TIGHT)).output == "others start\n"


async def test_12_a_fork_bomb_that_never_stops(arena: Arena) -> None:
    endless = "bomb() { sleep 0.05; bomb & bomb & wait; }; bomb"
    bomb = await arena.within(endless, limits=TIGHT, timeout_s=10)
    assert bomb.timed_out or not bomb.worked


async def test_13_a_memory_bomb(arena: Arena) -> None:
    assert (await arena.without(MEMORY, 200)).output.split() == [str(200 * MIB)]
    bomb = await arena.within(MEMORY, 200, limits=TIGHT)
    assert "[ended by the sandbox: it used more than 100 MiB of memory]" in bomb.output


async def test_13_memory_that_lies_in_files_without_a_name(arena: Arena) -> None:
    """It is counted when there is a reason to: private memory above the limit, or a machine with hardly any left."""
    limits = replace(arena.settings.limits, memory_bytes=100 * MIB, free_bytes=0)
    assert (await arena.without(UNMAPPED, 50)).output.split() == [str(50 * MIB)]
    assert "of memory]" in (await arena.within(UNMAPPED, 50, limits=limits)).output


async def test_14_one_huge_file(arena: Arena) -> None:
    assert (await arena.without(FILL, ".")).worked
    assert (arena.tree / "much").stat().st_size == 3_000_000
    (arena.tree / "much").unlink()
    assert not (await arena.within(FILL, ".", limits=TIGHT)).worked
    assert (arena.tree / "much").stat().st_size == TIGHT.file_bytes


@pytest.mark.parametrize(
    ("script", "says"), [(MANY_BYTES, "used more than 20 MiB on disk"), (MANY_FILES, "created more than 1000 files")]
)
async def test_15_many_files_that_are_small(arena: Arena, script: str, says: str) -> None:
    assert (await arena.without(script)).output.strip() in {"40", "3000"}
    for path in arena.tree.iterdir():  # files that exist at the first look do not count as the command's
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    ended = await arena.within(f"sleep 1; {script}; sleep 20", limits=TIGHT)
    assert f"ended by the sandbox: it {says}]" in ended.output


FOLDERS = ("/tmp", "/dev", "/dev/shm")  # noqa: S108 - inside


@pytest.mark.parametrize("folder", FOLDERS)
async def test_16_memory_is_filled_through_folders_that_lie_in_it(arena: Arena, folder: str) -> None:
    script = FILL.replace("$1", folder)
    assert bare("sh", "-c", f"mkdir -p {folder}; {script}").returncode == 0
    limits = replace(arena.settings.limits, tmp_bytes=MIB, home_bytes=MIB)
    for filled in (folder, "/home/worker"):
        size = await arena.within(f'({FILL}) 2>/dev/null || stat -c %s "$1/much" || echo 0', filled, limits=limits)
        assert int(size.output.split()[-1]) <= MIB
