"""A manager to be killed: starts one command in a box in the folder it is given, and says so."""

import sys
from pathlib import Path

import anyio

from worktrees.box import Box, Place
from worktrees.forks import forks
from worktrees.marks import this_manager
from worktrees.settings import HandSettings


async def main(folder: Path, sandbox: str, script: str) -> None:
    settings = HandSettings(state_dir=folder, sandbox="none" if sandbox == "none" else "bubblewrap")
    with forks(this_manager()) as starter:
        await work(Box(settings, starter=starter), folder, script)


async def work(box: Box, folder: Path, script: str) -> None:
    sys.stdout.write(f"{box.manager.mark('')}\n")
    sys.stdout.flush()
    await box.run(Place(folder / "tree", folder / "scratch", "victim"), box.shell(script), timeout_s=600, cap=4096)


anyio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
