"""Runs a program in the box, or without one, from a terminal of its own, as a manager in a terminal would."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from tests.worktrees.conftest import product_settings
from worktrees.sandbox.box import Box, Place


async def boxed(home: Path, script: str) -> int:
    (home / "tree").mkdir()
    settings = product_settings(home, read_only=(Path(sys.prefix),), path=(Path(sys.prefix, "bin"),))
    done = await Box(settings).run(
        Place(home / "tree", home / "scratch", "terminal"), ("sh", "-c", script), timeout_s=50, cap=4096
    )
    return done.shell_code


def main(how: str, script: str) -> int:
    os.setsid()
    _, ours = os.openpty()
    os.close(os.open(os.ttyname(ours), os.O_RDWR))  # the leader of a session gets it as its terminal
    if how == "without":
        return subprocess.run(["sh", "-c", script], check=False).returncode
    with TemporaryDirectory(prefix="fleet-test-") as folder:
        return anyio.run(boxed, Path(folder), script)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
