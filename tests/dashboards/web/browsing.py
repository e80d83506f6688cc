"""A real browser that is signed in to the pages, and a page of somebody else beside them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from dashboards.web.site import WebServer
from tests.dashboards.browser import Page, browser
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import site


@asynccontextmanager
async def signed_in(tmp_path: Path, *feeds: MemoryFeed) -> AsyncIterator[tuple[WebServer, Page, str]]:
    """A browser that opened the link; and where the pages are."""
    async with site(tmp_path, *feeds) as server, browser(tmp_path) as page:
        await page.open(server.link("decide"))
        yield server, page, f"http://{server.address}"


@asynccontextmanager
async def another_page() -> AsyncIterator[int]:
    """The port of a server of somebody else's on this machine, with one page without any policy."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>x</title><body>hello", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
