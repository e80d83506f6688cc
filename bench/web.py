"""The cost of the web pages: a real `fleet web`, five readers and a real browser, with generated journals.

*Busy*: a thousand working agents and a thousand facts per second, with five open pages of the run: the server's share
of one core, and the time from a fact to a browser's document. *Wide*: the first paint of a run of 10,000 subtasks,
divided by that of a run without any. *Weight*: the size of a page's styles and scripts.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio

import dashboards.web
from bench.side_by_side import Extent, processor_ms_of
from bench.terminal import AGENTS, FACTS_PER_S, RUN, appending, first_facts, journal_at, subtask_ids
from bench.wide_run import Width, write_journal
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from scripts.frame import Figure, progress, temporary_folder
from tests.dashboards.browser import Page, browser

READERS = 5
MARK_S = 0.6  # between two facts whose way to the page is measured
LOADED_S = 120.0
PAINTS = 7
SEEN = """new Promise(seen => { const name = NAME;
  const look = () => document.body.innerText.includes(name) && (done.disconnect(), seen(Date.now()));
  const done = new MutationObserver(look);
  done.observe(document.body, {subtree: true, childList: true, characterData: true}); look(); })"""


async def web_figures(extent: Extent) -> list[Figure]:
    progress("pages: their weight")
    static = Path(dashboards.web.__file__).parent / "static"
    weight = sum(path.stat().st_size for path in static.iterdir()) / 1024
    figures = [Figure("pages: style and script, KiB", "every page", weight, wanted=60)]
    progress("pages: a thousand agents")
    figures += await _busy(extent)
    progress("pages: a wide run")
    return [*figures, await _paint(extent)]


@dataclass
class Server:
    """A separate `fleet web`."""

    process: subprocess.Popen[str]
    url: str
    link: str


@contextmanager
def web_server(state_dir: Path) -> Iterator[Server]:
    environment = {name: os.environ[name] for name in ("PATH",)} | {
        "HOME": str(state_dir), "LANG": "C.UTF-8", "FLEET_STATE_DIR": str(state_dir),
    }  # fmt: skip
    command = [sys.executable, "-m", "fleet", "web", "--json"]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        text = ""
        while not text.endswith("}\n"):
            text += process.stdout.readline()
        said = json.loads(text)
        yield Server(process, said["url"].rstrip("/"), said["link"])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@asynccontextmanager
async def reading(server: Server, cookies: dict[str, str]) -> AsyncIterator[None]:
    """A reader that takes every event of the run's page, while the block lasts."""

    async def read() -> None:
        jar = aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(cookie_jar=jar, timeout=aiohttp.ClientTimeout(total=None)) as http:
            cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
            async with http.get(f"{server.url}/live?page=/runs/{RUN}", headers={"Cookie": cookie}) as answer:
                async for _ in answer.content.iter_any():
                    pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield
        tasks.cancel_scope.cancel()


async def _cookies(page: Page) -> dict[str, str]:
    found = (await page.call("Network.getAllCookies"))["cookies"]
    return {cookie["name"]: cookie["value"] for cookie in found}


async def _loaded(page: Page, server: Server) -> None:
    """Open the page of the run, and wait until its whole journal was read."""
    with anyio.fail_after(LOADED_S):
        while True:
            await page.open(f"{server.url}/runs/{RUN}")
            text = await page.evaluate("document.body.innerText")
            if "At work" in text and "still being read" not in text:
                return
            await anyio.sleep(0.2)


async def _busy(extent: Extent) -> list[Figure]:
    """With four readers and a browser."""
    with temporary_folder() as folder, journal_at(folder) as journal:
        journal.append(first_facts(AGENTS, at=time.time()))
        with web_server(folder) as server:
            async with browser(folder) as page, AsyncExitStack() as readers:
                await page.open(server.link)
                await _loaded(page, server)
                for _ in range(READERS - 1):
                    await readers.enter_async_context(reading(server, await _cookies(page)))
                with appending(journal, subtask_ids(AGENTS)):
                    await anyio.sleep(2.0)
                    before, started = processor_ms_of(server.process.pid), time.perf_counter()
                    await anyio.sleep(extent.screen_s)
                    share = (processor_ms_of(server.process.pid) - before) / 1e3 / (time.perf_counter() - started)
                    waits = [await _seen_after(page, journal, number) for number in range(extent.keys // 2)]
    ordered = sorted(waits)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    note = f"{FACTS_PER_S:,} facts a second, {READERS} pages open"
    return [
        Figure("pages: the server's share of one core", f"{AGENTS:,} agents", share, wanted=0.30, note=note),
        Figure(
            "pages: from fact to document, p95, ms", f"{AGENTS:,} agents", p95, wanted=500.0,
            note=f"median {statistics.median(ordered):.0f}",
        ),
    ]  # fmt: skip


async def _seen_after(page: Page, journal: Journal, number: int) -> float:
    """Milliseconds from a fact to a browser's document that shows it."""
    await anyio.sleep(MARK_S + number % 7 * 0.037)  # at a changing distance from the server's rounds
    text = f"mark number {number} of these"
    waiting = SEEN.replace("NAME", json.dumps(text))
    await page.evaluate(f"window.seen = {waiting}; 1")
    written = time.time() * 1e3
    await anyio.to_thread.run_sync(_mark, journal.path, text)
    answer = await page.call("Runtime.evaluate", expression="window.seen", awaitPromise=True, returnByValue=True)
    return float(answer["result"]["value"]) - written


def _mark(path: Path, text: str) -> None:
    """Write a fact through a separate connection, because the other one belongs to the appending thread."""
    with Journal(path) as journal:
        journal.append([f.WarningNoted(at=time.time(), text=text)])


async def _paint(extent: Extent) -> Figure:
    wide, empty = await _first_paint(Width(extent.wide, 5 * extent.wide)), await _first_paint(None)
    note = f"{wide:.0f} of {empty:.0f} ms"
    return Figure(
        "pages: first paint of a run, over an empty one", f"{extent.wide:,} subtasks", wide / empty, wanted=3, note=note
    )


async def _first_paint(width: Width | None) -> float:
    """Milliseconds from the request to the first paint of the run's page, typically."""
    with temporary_folder() as folder:
        if width is not None:
            write_journal(folder, width)
        else:
            with journal_at(folder) as journal:
                journal.append(first_facts(0, at=time.time()))
        with web_server(folder) as server:
            async with browser(folder) as page:
                await page.open(server.link)
                await _loaded(page, server)
                return statistics.median([await _painted(page, server) for _ in range(PAINTS)])


async def _painted(page: Page, server: Server) -> float:
    await page.open(f"{server.url}/runs/{RUN}")
    entry = "performance.getEntriesByName('first-contentful-paint')[0]"
    with anyio.fail_after(LOADED_S):
        while not await page.evaluate(f"Boolean({entry})"):  # noqa: ASYNC110 - the page has no event for us
            await anyio.sleep(0.02)
    assert re.search("Subtasks", await page.evaluate("document.body.innerText"))
    return float(await page.evaluate(f"{entry}.startTime"))
