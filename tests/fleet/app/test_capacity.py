"""What a machine feeds: fewer workers where there is little, a refusal that says what to do if it is too little."""

import json
import os
import resource
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from fleet.app import capacity as module
from fleet.app.capacity import MIB, Supply, disk, inodes, open_files, processes, workers_or_refuse
from fleet.errors import FleetError

Disk = namedtuple("Disk", "f_blocks f_bavail f_frsize f_files f_favail")  # noqa: PYI024 - as os.statvfs gives it
OPEN_FILES = """
import json, resource, sys
from fleet.app.capacity import open_files
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
supply = open_files(wanted)
print(json.dumps([supply.workers, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "workers", "raised"),
    [
        (1024, 1024, 16, 162, 1024),
        (64, 4096, 16, 16, 144),  # raised as far as needed
        (90, 90, 16, 7, 90),
        (50, 50, 16, 0, 50),
    ],
)
def test_open_files_are_counted_and_the_limit_is_raised_as_far_as_needed(
    soft: int, hard: int, wanted: int, workers: int, raised: int
) -> None:
    command = [sys.executable, "-c", OPEN_FILES, str(soft), str(hard), str(wanted)]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command, capture_output=True, check=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert json.loads(done.stdout) == [workers, raised]


def test_processes_are_counted_for_who_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(module, "_running", lambda user: 100 if user == 12345 else 0)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 200))
    assert (processes().workers, processes().why) == (
        (200 - 100 - module.OWN_PROCESSES) // module.PROCESSES,
        "at most 200 processes and threads may run, and 100 of these are free",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert processes().workers > 1000


def test_this_users_threads_are_found() -> None:
    assert module._running(os.geteuid()) >= 1


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "workers"),
    [(100_000, 16, 1), (100_000, 512 + 640, 10), (100, 90, 1), (300, 30 + 128, 2)],
)
def test_a_small_disk_feeds_few_workers(
    monkeypatch: pytest.MonkeyPatch, total_mib: int, free_mib: int, workers: int
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(total_mib * 256, free_mib * 256, 4096, 0, 0))
    assert disk(Path("/state"), 512 * MIB).workers == workers


def test_a_disk_without_room_for_files_feeds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(10**9, 10**9, 4096, 1000, 150))
    assert inodes(Path("/state")).workers == 1
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(10**9, 10**9, 4096, 0, 0))
    assert inodes(Path("/state")).workers > 1000


def test_too_little_for_one_worker_is_refused_with_what_to_do() -> None:
    with pytest.raises(FleetError, match=r"at most 50 files may be open at once, .*ulimit -n"):
        workers_or_refuse(Supply(0, "at most 50 files may be open at once", "raise the limit: ulimit -n 4096"), 16)
    assert workers_or_refuse(Supply(7, "", ""), 16) == 7
    assert workers_or_refuse(Supply(70, "", ""), 16) == 16


def test_the_limit_of_this_process_is_kept_where_it_is_enough() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert open_files(1).workers >= 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
