"""The `web` verb."""

import select
import signal
import subprocess
import sys
import time
import webbrowser
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import anyio
import typer

from dashboards.address import Address, parse_address
from fleet.cli import common
from fleet.cli.common import AsJson, Pause, run_async
from fleet.cli.terminal_data import FolderLibrary, library_of
from fleet.cli.verbosity import show_note
from fleet.config import environment
from fleet.config.environment import user
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.base_view import WebView
from fleet.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from dashboards.web.access import WebAccess
    from dashboards.web.site import Scrape

# ---- beside ----------------------------------------------------------------------------------------------------------
# The pages of a single run, in a separate process beside its engine, so that an error there can't affect the run.
#
#     python -m dashboards.web.verbs RUN-FOLDER     prints the link on its first line, and exits after the run


LOG = "pages.log"
START_S = 30.0  # time limit for the start of the pages or the engine
SESSIONS = "web-sessions.json"
POLL_S = 0.25
LAST_S = 2.0  # delay after the end of the run, so that open pages show its ending


def access_of(state_dir: Path) -> "WebAccess":
    """The access rules, shared by all processes that serve pages."""
    from dashboards.web.access import WebAccess  # noqa: PLC0415 - aiohttp is slow to import, and help does not need it

    return WebAccess(state_dir / SESSIONS, time.time)


def scrape_of(state_dir: Path) -> "Scrape | None":
    """The scrape function for all runs. Metrics are a feature, which is imported at the first scrape."""
    places = [feature.scrape for feature in FEATURES.values() if feature.scrape]
    load = cache(lambda: load_part(places[0])(state_dir))

    def scrape(accept: str) -> tuple[bytes, str]:
        return cast("tuple[bytes, str]", load()(accept))

    return scrape if places else None


def start_pages(folder: RunFolder) -> None:
    """Serve the pages of a run while it is running, and print the link. A failure does not stop the run."""
    command = [sys.executable, "-P", "-m", "dashboards.web.verbs", str(folder.path)]
    try:
        with (folder.path / LOG).open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd="/"
            )
    except OSError as error:
        typer.echo(f"{folder.run}: web UI not started: {error.strerror}", err=True)
        return
    link = ""
    if process.stdout is not None:
        with process.stdout as out:
            if select.select([out], [], [], START_S)[0]:
                link = out.readline().decode().strip()
    if link:
        typer.echo(f"{folder.run}: web UI until the run stops, for one browser: {link}", err=True)
    else:
        why = (folder.path / LOG).read_text(encoding="utf-8", errors="replace").strip()[-500:]
        typer.echo(f"{folder.run}: web UI not started: {why or 'timed out'}", err=True)


# ---- the process ----------------------------------------------------------------------------------------------------


async def serve(folder: RunFolder) -> None:
    state_dir = folder.path.parent.parent
    from dashboards.web.site import serving  # noqa: PLC0415

    access, scrape = access_of(state_dir), scrape_of(state_dir)
    with library_of(state_dir) as library:
        async with serving(library, access, Address("127.0.0.1", 0), time.time, user(), scrape=scrape) as server:
            link = server.link("decide", f"/runs/{folder.run}")
            print(link, flush=True)  # noqa: T201 - to the process that started this one
            await wait_over(folder)


async def wait_over(folder: RunFolder, *, start_s: float = START_S, pause: Pause = anyio.sleep) -> None:
    """Wait until the engine of a run has stopped, or did not start in time."""
    until, was_alive = time.monotonic() + start_s, False
    while (alive := folder.alive) or (not was_alive and time.monotonic() < until):
        was_alive |= alive
        await pause(POLL_S)
    await pause(LAST_S)


def main() -> int:
    try:
        run_async(lambda: serve(RunFolder(Path(sys.argv[1]))))
    except FleetError as error:
        sys.stderr.write(f"{error.text}\n")
        return error.exit_code
    return 0


# ---- the verb --------------------------------------------------------------------------------------------------------


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def web(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="The address to listen on. Port 0 chooses a free port.")
    ] = "127.0.0.1:0",
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Also accept requests for this host name. Can be used multiple times."
        ),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in a browser.")] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show runs only. Requests that change a run are rejected.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve the web UI for all runs.

    Shows live and ended runs, their subtasks, conversations and diffs, and lets you approve plans and answer questions.
    It prints a link that signs in one browser. It listens on localhost. To serve other machines, set --listen and use
    a proxy with TLS.

    \b
    Examples:
      fleet web --open
      fleet web --read-only
      fleet web --listen 0.0.0.0:8080 --allow-host fleet.example
    """
    from dashboards.web.site import serving  # noqa: PLC0415

    address, state_dir = parse_address(listen), common.state_dir()
    access = access_of(state_dir)

    async def serve(library: FolderLibrary) -> None:
        user, hosts, scrape = environment.user(), host or (), scrape_of(state_dir)
        pages = serving(library, access, address, time.time, user, hosts=hosts, read_only=read_only, scrape=scrape)
        async with pages as server:
            link = server.link("read" if read_only else "decide")
            if as_json:
                common.show_json(WebView(f"http://{server.address}/", link))
                sys.stdout.flush()
            else:
                typer.echo(f"open {link}")
            note = "" if address.is_loopback else ". Without TLS, anyone on the network path can read the traffic"
            show_note(f"serving runs in {state_dir} at http://{server.address}/ (press Ctrl-C to stop){note}")
            if open_browser:
                webbrowser.open(link)
            with anyio.open_signal_receiver(*STOPS) as signals:
                async for _ in signals:
                    break

    with library_of(state_dir) as library:
        common.run_async(lambda: serve(library))


if __name__ == "__main__":
    sys.exit(main())
