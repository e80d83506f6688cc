"""What a machine feeds: fewer workers where there is little, a refusal that says what to do if it is too little."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.app import capacity as module
from fleet.app.capacity import MIB, CapacityLimit, disk, inodes, limited_processes, open_files, workers_or_refuse
from fleet.errors import FleetError

OPEN_FILES = """
import json, resource, sys
from fleet.app.capacity import open_files
soft, hard, wanted = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
supply = open_files(wanted)
print(json.dumps([supply.workers, resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""
ROOT_AND_ANOTHER = """
import json, os, resource
from fleet.app.capacity import processes
resource.setrlimit(resource.RLIMIT_NPROC, (200, 200))
whys = []
if os.geteuid() == 0:
    whys.append(processes().why)
    os.setuid(12345)
print(json.dumps([*whys, processes().why]))
"""


def run_script(script: str, *arguments: str) -> Any:
    """What a process with limits of its own prints as JSON."""
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", script, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True, cwd=root, env=environment).stdout)


def status_of(*, blocks: int = 10**9, free: int = 10**9, files: int = 0, free_files: int = 0) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, 0, 255))


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
    assert run_script(OPEN_FILES, str(soft), str(hard), str(wanted)) == [workers, raised]


def test_processes_are_counted_for_who_has_a_limit() -> None:
    supply = limited_processes(200, running=100)
    assert (supply.workers, supply.why) == (
        (200 - 100 - module.OWN_PROCESSES) // module.PROCESSES,
        "the limit of processes and threads is 200, with 100 free",
    )


def test_root_has_no_limit_of_processes_and_others_have_theirs() -> None:
    whys = run_script(ROOT_AND_ANOTHER)
    assert whys[-1].startswith("the limit of processes and threads is 200")
    assert whys[:-1] == (["processes are not limited"] if os.geteuid() == 0 else [])


def test_this_users_threads_are_found() -> None:
    assert module._running(os.geteuid()) >= 1


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "workers"),
    [(100_000, 16, 1), (100_000, 512 + 640, 10), (100, 90, 1), (300, 30 + 128, 2)],
)
def test_a_small_disk_feeds_few_workers(total_mib: int, free_mib: int, workers: int) -> None:
    status = status_of(blocks=total_mib * 256, free=free_mib * 256)
    assert disk(Path("/state"), status, 512 * MIB).workers == workers


def test_a_disk_without_room_for_files_feeds_one() -> None:
    assert inodes(Path("/state"), status_of(files=1000, free_files=150)).workers == 1
    assert inodes(Path("/state"), status_of(files=0, free_files=0)).workers > 1000


def test_too_little_for_one_worker_is_refused_with_what_to_do() -> None:
    with pytest.raises(FleetError, match=r"the limit of open files is 50: .*ulimit -n"):
        workers_or_refuse(CapacityLimit(0, "the limit of open files is 50", "raise the limit: ulimit -n 4096"), 16)
    assert workers_or_refuse(CapacityLimit(7, "", ""), 16) == 7
    assert workers_or_refuse(CapacityLimit(70, "", ""), 16) == 16


def test_the_limit_of_this_process_is_kept_where_it_is_enough() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert open_files(1).workers >= 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
