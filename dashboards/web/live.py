"""Keeps open pages up to date: reads journals a few times a second, and sends the parts of a page that changed.

A page is drawn once for all browsers that show it. A browser that was away gets every part whose version it lacks.
"""

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import anyio
from aiohttp import web

from dashboards.web.followed import FollowedRuns
from dashboards.web.guard import HEADERS, note_bug
from dashboards.web.pages.page import NoSuchPageError, Shown
from dashboards.web.rendering import version_of

Draw = Callable[[], Awaitable[Shown]]
TICK_S = 0.25
READ_S = 0.1  # of each tick at most goes into reading
AGES_S = 1.0  # how often a page is drawn without news: ages grow
PING_TICKS = 60
MOST_STREAMS = 64  # in all


@dataclass(slots=True)
class OpenPage:
    """A page that at least one browser shows."""

    draw: Draw
    count: Callable[[], int]
    readers: int = 0
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The version and the text of each part, as last drawn."""
    title: str = ""
    waiting: int = 0
    """How many things wait for a person, in all runs."""
    drawn_at: float = 0.0
    missing: bool = False


class Live:
    """The pages that are open."""

    def __init__(self, runs: FollowedRuns) -> None:
        self._runs = runs
        self._pages: dict[str, OpenPage] = {}
        self._drawn = anyio.Event()
        self._is_over = False

    @property
    def streams(self) -> int:
        return sum(page.readers for page in self._pages.values())

    async def keep_up(self) -> None:
        """Follow the runs while the server works."""
        while True:
            news = bool(self._runs.look(READ_S))
            now = anyio.current_time()
            for page in list(self._pages.values()):
                if news or now - page.drawn_at >= AGES_S:
                    await self._draw(page, now)
            drawn, self._drawn = self._drawn, anyio.Event()
            drawn.set()
            await anyio.sleep(TICK_S)

    def end(self) -> None:
        """Take leave of the browsers, since the server stops."""
        self._is_over = True
        self._drawn.set()

    async def stream(
        self, request: web.Request, key: str, draw: Draw, count: Callable[[], int], may_go_on: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send the parts of a page as they change, until the browser or its session is gone."""
        page = self._pages.setdefault(key, OpenPage(draw, count))
        page.readers += 1
        try:
            return await self._send(request, page, may_go_on)
        finally:
            page.readers -= 1
            if not page.readers:
                self._pages.pop(key, None)

    async def _send(self, request: web.Request, page: OpenPage, may_go_on: Callable[[], bool]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        if not page.parts:
            await self._draw(page, anyio.current_time())
        sent: dict[str, str] = {}
        waiting = -1
        with suppress(ConnectionError):
            await answer.prepare(request)
            for tick in count(1):
                if self._is_over:
                    await answer.write(b"event: over\ndata: {}\n\n")
                if self._is_over or not may_go_on() or page.missing:
                    break
                changed = [
                    (id_, version, text) for id_, (version, text) in page.parts.items() if sent.get(id_) != version
                ]
                if changed or waiting != page.waiting:
                    waiting = page.waiting
                    news = {"title": page.title, "waiting": waiting, "parts": changed}
                    event = json.dumps(news, ensure_ascii=False)
                    await answer.write(f"data: {event}\n\n".encode("utf-8", "replace"))
                    sent |= {id_: version for id_, version, _ in changed}
                elif tick % PING_TICKS == 0:
                    await answer.write(b": still here\n\n")
                await self._drawn.wait()
        return answer

    async def _draw(self, page: OpenPage, now: float) -> None:
        page.drawn_at = now
        try:
            shown = await page.draw()
            page.waiting = page.count()
        except NoSuchPageError:  # the run was cleaned away
            page.missing = True
            return
        except Exception as bug:  # noqa: BLE001 - a page that can't be drawn ends alone: other pages, and the server, continue
            note_bug(bug)
            page.missing = True
            return
        page.title = shown.title
        page.parts = {id_: (version_of(text), str(text)) for id_, text in shown.parts.items()}
