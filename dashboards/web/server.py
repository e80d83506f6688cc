"""The server for pages, and where it listens.

It reads journals and puts requests into inboxes, as every other client does. When it ends, no run notices.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from aiohttp import web

from dashboards.http.address import Address, AllowedHosts
from dashboards.runs.ports import Library
from dashboards.web.access import Access, Role
from dashboards.web.guard import SIGN_IN
from dashboards.web.site import Scrape, Site
from fleet.errors import FleetError

STOP_S = 1.0


@dataclass(frozen=True, slots=True)
class WebServer:
    """A server that listens."""

    address: Address
    access: Access

    def link(self, role: Role, page: str = "/") -> str:
        """A link that signs one browser in, and leads to a page."""
        host = "127.0.0.1" if self.address.host in {"0.0.0.0", "::"} else self.address.host  # noqa: S104 - compared, not bound
        return f"http://{Address(host, self.address.port)}{SIGN_IN}?token={self.access.new_link(role, page)}"


@asynccontextmanager
async def serving(
    library: Library,
    access: Access,
    address: Address,
    clock: Callable[[], float],
    user: str,
    *,
    hosts: Collection[str] = (),
    read_only: bool = False,
    scrape: Scrape | None = None,
) -> AsyncIterator[WebServer]:
    """Serve the pages, and metrics if there is a `scrape`, while the block lasts; port 0 chooses a free one.

    Raises `FleetError`.
    """
    site = Site(library, access, AllowedHosts(address, hosts), clock, user, read_only=read_only, scrape=scrape)
    runner = web.AppRunner(site.app(), access_log=None, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, address.host, address.port)
        try:
            await tcp.start()
        except OSError as error:
            raise FleetError(
                f"can't serve pages on {address}: {error.strerror}", hint="choose another port, or 0 for a free one"
            ) from error
        port = runner.addresses[0][1]
        site.guard.cookie = f"fleet-{port}"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.live.keep_up)
            yield WebServer(Address(address.host, port), access)
            site.live.end()
            tasks.cancel_scope.cancel()
    finally:
        await runner.cleanup()
