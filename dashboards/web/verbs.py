"""The verb that serves the runs to a browser."""

import signal
import sys
import time
import webbrowser
from typing import Annotated

import anyio
import typer

from dashboards.address import parse_address
from dashboards.web.beside import access_of, scrape_of
from dashboards.web.site import serving
from fleet.cli import common
from fleet.cli.common import AsJson
from fleet.cli.terminal_data import FolderLibrary, library_of
from fleet.cli.verbosity import show_note
from fleet.config import environment
from fleet.read.base_view import WebView

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def web(
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 chooses a free one.")
    ] = "127.0.0.1:0",
    host: Annotated[
        list[str] | None, typer.Option("--allow-host", metavar="NAME", help="Answer requests for this host name, too.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the link in a browser.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no decisions, from anybody.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show all runs in a browser, and decide there.

    Runs of this machine, live and ended: what waits for you, subtasks, conversations, diffs, answers. It prints a link
    that signs one browser in. It listens on this machine only; for others, name an address, and put TLS in front of it.

    \b
    Examples:
      fleet web --open
      fleet web --read-only
      fleet web --listen 0.0.0.0:8080 --allow-host fleet.example
    """
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
            note = "" if address.is_loopback else "; without TLS in front of it, others can read along"
            show_note(f"runs in {state_dir} at http://{server.address}/; Ctrl-C stops, and no run notices{note}")
            if open_browser:
                webbrowser.open(link)
            with anyio.open_signal_receiver(*STOPS) as signals:
                async for _ in signals:
                    break

    with library_of(state_dir) as library:
        common.run_async(lambda: serve(library))
