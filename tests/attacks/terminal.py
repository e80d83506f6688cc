"""Started with a terminal of its own: runs a program in the box, or without one, as the manager in a terminal would."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from worktrees.box import Box, Place
from worktrees.desk import exit_code
from worktrees.settings import HandSettings


async def boxed(home: Path, script: str) -> int:
    (home / "tree").mkdir()
    settings = HandSettings(home, read_only=(Path(sys.prefix),), path=(Path(sys.prefix, "bin"),))
    done = await Box(settings).run(
        Place(home / "tree", home / "scratch", "terminal"), ("sh", "-c", script), timeout_s=50, cap=4096
    )
    return exit_code(done)


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
