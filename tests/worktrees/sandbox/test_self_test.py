"""The test of the sandbox finds no problem in a sound box, and names the holes of others."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from worktrees.base.settings import WorktreeSettings
from worktrees.sandbox.self_test import DEVICES, find_sandbox_problems

HOLES = {
    "--unshare-pid": "a command shares a namespace with the machine",
    "--unshare-ipc": "a command shares a namespace with the machine",
    "--disable-userns": "a command can create namespaces",
}


# A bubblewrap that has a hole: it becomes the real one without some of its options.
PROGRAM = """#!{python} -IS
import os, sys
at = sys.argv.index("--args") + 1
with open(int(sys.argv[at]), "rb", closefd=False) as listed:
    options = listed.read().split(b"\\0")[:-1]
for name, values in {without!r}.items():
    if name in options:
        start = options.index(name)
        del options[start : start + 1 + values]
fd = os.memfd_create("options", 0)
os.write(fd, b"".join(option + b"\\0" for option in options))
os.lseek(fd, 0, os.SEEK_SET)
sys.argv[at] = str(fd)
os.execv({real!r}, sys.argv)
"""


@pytest.fixture
def holed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*, without: Mapping[bytes, int]) -> None:
        """Install such a bubblewrap; `without` has the number of values of each option that it ignores."""
        real, program = shutil.which("bwrap"), tmp_path / "bin/bwrap"
        program.parent.mkdir()
        text = PROGRAM.format(python=sys.executable, without=dict(without), real=real)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    return install


async def test_a_box_without_a_hole_has_no_problems(settings: WorktreeSettings) -> None:
    assert await find_sandbox_problems(settings) == ()


@pytest.mark.parametrize("option", HOLES)
async def test_a_hole_in_the_box_is_found(settings: WorktreeSettings, holed: Callable[..., None], option: str) -> None:
    holed(without={option.encode(): 0, b"--seccomp": 1})
    problems = set(await find_sandbox_problems(settings))
    assert problems == {HOLES[option], "a command runs without the system call filter"}


def test_open_devices_of_the_machine_are_found() -> None:
    """Only root of the host can change them at all, so for other users the box is sound without the defence."""
    done = subprocess.run(["sh", "-c", DEVICES], stderr=subprocess.DEVNULL, check=False)
    assert (done.returncode == 0) == (os.geteuid() == 0)
