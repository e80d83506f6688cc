"""A manager to be killed: starts one command in a box in the folder it is given, and prints its ownership tag.

Its settings come from a file, because reading the product's configuration takes longer than everything else here.
"""

import pickle
import sys
from contextlib import closing
from pathlib import Path

import anyio

from worktrees.base.settings import WorktreeSettings
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.launcher import Launcher


async def main(folder: Path, script: str) -> None:
    settings: WorktreeSettings = pickle.loads((folder / "settings").read_bytes())  # noqa: S301 - written by the test
    with closing(Launcher()) as launcher:
        await work(Box(settings, starter=launcher), folder, script)


async def work(box: Box, folder: Path, script: str) -> None:
    sys.stdout.write(f"{box.manager.tag('')}\n")
    sys.stdout.flush()
    await box.run(Place(folder / "tree", folder / "scratch", "victim"), box.shell(script), timeout_s=600, cap=4096)


anyio.run(main, Path(sys.argv[1]), sys.argv[2])
