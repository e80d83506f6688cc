"""The pages of a run in a browser, beside its engine: a process of its own, so that no run notices when it breaks.

python -m dashboards.web.beside RUN-FOLDER     prints the link as its first line; ends when the run is no longer at work
"""

import select
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import cast

import anyio
import typer

from dashboards.address import Address
from dashboards.web.access import Access
from dashboards.web.site import Scrape, serving
from fleet.cli.common import Pause, run_async
from fleet.cli.terminal_data import library_of
from fleet.config.environment import user
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.runs.run_folder import RunFolder

LOG = "pages.log"
START_S = 30.0  # how long the pages, or the engine, may take to begin
SESSIONS = "web-sessions.json"
POLL_S = 0.25
LAST_S = 2.0  # so long after its end, open pages have shown how it ended


def access_of(state_dir: Path) -> Access:
    """Who may open the pages: the same browsers whichever process serves them."""
    return Access(state_dir / SESSIONS, time.time)


def scrape_of(state_dir: Path) -> Scrape | None:
    """What answers scrapes of all runs: a feature, which is imported at the first one."""
    places = [feature.scrape for feature in FEATURES.values() if feature.scrape]
    load = cache(lambda: load_part(places[0])(state_dir))

    def scrape(accept: str) -> tuple[bytes, str]:
        return cast("tuple[bytes, str]", load()(accept))

    return scrape if places else None


def start_pages(folder: RunFolder) -> None:
    """Serve the pages while a run is at work, and print the link. A run does not stop because they can't be served."""
    command = [sys.executable, "-P", "-m", "dashboards.web.beside", str(folder.path)]
    try:
        with (folder.path / LOG).open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/"
            )
    except OSError as error:
        typer.echo(f"{folder.run}: no pages: {error.strerror}", err=True)
        return
    link = ""
    if process.stdout is not None:
        with process.stdout as out:
            if select.select([out], [], [], START_S)[0]:
                link = out.readline().decode().strip()
    if link:
        typer.echo(f"{folder.run}: pages until the run stops, for one browser: {link}", err=True)
    else:
        why = (folder.path / LOG).read_text(encoding="utf-8", errors="replace").strip()[-500:]
        typer.echo(f"{folder.run}: no pages: {why or 'they did not start in time'}", err=True)


# ---- the process ----------------------------------------------------------------------------------------------------


async def serve(folder: RunFolder) -> None:
    state_dir = folder.path.parent.parent
    access, scrape = access_of(state_dir), scrape_of(state_dir)
    with library_of(state_dir) as library:
        async with serving(library, access, Address("127.0.0.1", 0), time.time, user(), scrape=scrape) as server:
            link = server.link("decide", f"/runs/{folder.run}")
            print(link, flush=True)  # noqa: T201 - to the process that started this one
            await wait_over(folder)


async def wait_over(folder: RunFolder, *, start_s: float = START_S, pause: Pause = anyio.sleep) -> None:
    """Wait until no engine works on a run that one worked on, or should by now."""
    until, was_alive = time.monotonic() + start_s, False
    while (alive := folder.alive) or (not was_alive and time.monotonic() < until):
        was_alive |= alive
        await pause(POLL_S)
    await pause(LAST_S)


def main() -> int:
    try:
        run_async(lambda: serve(RunFolder(Path(sys.argv[1]))))
    except FleetError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
