"""The HTTP handlers: pages and their events, decisions, and access."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlsplit
from zlib import crc32

import anyio
from aiohttp import web
from anyio import to_thread
from markupsafe import Markup

from dashboards.address import Address, AllowedHosts
from dashboards.rendering import SHARED, environment
from dashboards.web import inbox
from dashboards.web.access import (
    HEADERS,
    MARK,
    METRICS,
    REPORT_POLICY,
    SESSION,
    SIGN_IN,
    Guard,
    Role,
    WebAccess,
    note_bug,
    refusal,
)
from dashboards.web.inbox import board_page, inbox_page
from dashboards.web.run_page import graph_part, replay_page, run_page, subtask_page, subtasks_page
from dashboards.web.shared_runs import NoSuchPageError, Reader, Shown, WebRuns, opened
from fleet.core.base.ids import SubtaskId
from fleet.core.base.output import parse_json
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.follow import FollowedRun, RunLibrary
from fleet.read.run import RunSnapshot

LARGEST_BODY = 4 * 1024 * 1024  # a plan of 10,000 subtasks fits
HERE = Path(__file__).parent
STATIC = {"style.css": (SHARED / "style.css", "text/css"), "fleet.js": (HERE / "fleet.js", "text/javascript")}
LOAD_S = 1.0  # of reading the journal before a decision
SESSION_DAYS = 30
FACTS_AT_ONCE = 1_000
ENTER = (
    '<!doctype html><meta http-equiv="refresh" content="0;url={page}"><title>fleet</title><a href="{page}">Continue</a>'
)
"""A page instead of a redirect: after a link on another site, browsers follow redirects without the new cookie."""
Change = Callable[[FollowedRun, RunSnapshot, str], str | None]
"""Sends a request to a run, or returns an error message."""
Scrape = Callable[[str], tuple[bytes, str]]
"""Returns metrics and their content type for an Accept header. Reads journals, and blocks."""
RunPage = Callable[..., str | None]
"""A page that a feature adds to a run: see `Feature.pages`. It may take seconds."""
Page = Callable[[Reader, Mapping[str, str]], Awaitable[Shown]]
PAGES: Mapping[str, Page] = {
    "/": lambda reader, _: board_page(reader),
    "/inbox": lambda reader, _: inbox_page(reader),
    "/runs/{run}": lambda reader, at: run_page(reader, at["run"]),
    "/runs/{run}/replay": lambda reader, at: replay_page(reader, at["run"]),
    "/runs/{run}/subtasks": lambda reader, at: subtasks_page(reader, at["run"]),
    "/runs/{run}/subtasks/{subtask}": lambda reader, at: subtask_page(reader, at["run"], at["subtask"]),
}


class Site:
    """The handlers of one server."""

    def __init__(
        self,
        library: RunLibrary,
        access: WebAccess,
        hosts: AllowedHosts,
        clock: Callable[[], float],
        user: str,
        *,
        read_only: bool,
        scrape: Scrape | None = None,
        pages: Mapping[str, RunPage] | None = None,
    ) -> None:
        self._pages = pages if pages is not None else feature_pages()
        self._access, self._user, self._read_only, self._scrape = access, user, read_only, scrape
        self.guard = Guard(access, hosts, "fleet")
        self._runs = WebRuns(library, clock)
        self.live = Live(self._runs)
        self._templates = environment(HERE / "templates")
        self._one_report = anyio.CapacityLimiter(1)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[self.guard.check])
        for pattern in PAGES:
            app.router.add_get(pattern, self._page)
        app.router.add_get(SIGN_IN, self._sign_in)
        app.router.add_get("/live", self._stream)
        app.router.add_get(METRICS, self._metrics)
        app.router.add_get("/static/{name}", self._static)
        for name, draw in self._pages.items():
            app.router.add_get(f"/runs/{{run}}/{name}", partial(self._feature_page, draw))
        app.router.add_get("/runs/{run}/plan", self._plan)
        app.router.add_get("/access", self._access_page)
        app.router.add_get("/{path:.*}", self._missing)
        if not self._read_only:
            app.router.add_post("/runs/{run}/requests/{kind}", self._decide)
            app.router.add_post("/runs/{run}/subtasks/{subtask}/comments", self._comment)
            app.router.add_post("/access/{what}", self._change_access)
        return app

    # ---- reading

    async def _page(self, request: web.Request) -> web.Response:
        resource = request.match_info.route.resource
        page = PAGES[resource.canonical if resource is not None else "/"]
        try:
            shown = await page(self._reader(request, request.query), request.match_info)
        except NoSuchPageError as error:
            return self._not_found(request, str(error))
        return self._html(request, shown)

    async def _missing(self, request: web.Request) -> web.Response:
        return self._not_found(request, "Page not found.")

    def _not_found(self, request: web.Request, text: str) -> web.Response:
        part = self._reader(request, request.query).part("text", text=text)
        return self._html(request, Shown("Not found", {"text": part}, is_live=False), web.HTTPNotFound.status_code)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Stream the events of a page: `/live?page=/runs/R`."""
        if self.live.streams >= MOST_STREAMS:
            return refusal(503, "Too many open pages.")
        address = urlsplit(request.query.get("page", "/"))
        found = _match(address.path)
        if found is None:
            return refusal(404, "Page not found.")
        page, at = found
        session = request[SESSION]
        reader = self._reader(request, dict(parse_qsl(address.query)))
        cookie = request.cookies.get(self.guard.cookie, "")
        return await self.live.stream(
            request,
            f"{session.role} {address.geturl()}",
            lambda: page(reader, at),
            reader.waiting,
            lambda: self._access.session(cookie) is not None,
        )

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._scrape is None:
            return self._not_found(request, "This server does not serve metrics.")
        page, content_type = await to_thread.run_sync(self._scrape, request.headers.get("Accept", ""))
        return web.Response(body=page, headers={"Content-Type": content_type})

    async def _static(self, request: web.Request) -> web.Response:
        if request.match_info["name"] not in STATIC:
            return refusal(404, "File not found.")
        path, content_type = STATIC[request.match_info["name"]]
        return web.Response(body=path.read_bytes(), content_type=content_type, charset="utf-8")

    async def _feature_page(self, draw: RunPage, request: web.Request) -> web.Response:
        run = self._runs.watched(request.match_info["run"])
        if run is None:
            return self._not_found(request, "Run not found.")
        facts, after = [], 0
        while more := run.feed.facts(after, FACTS_AT_ONCE):
            facts += [fact for _, fact in more]
            after = more[-1][0]
            await anyio.lowlevel.checkpoint()
        now, alive, back = self._runs.clock(), run.feed.alive, f"/runs/{quote(run.feed.run, safe='')}"
        drawn = partial(draw, iter(facts), now, alive=alive, back=back)
        text = await to_thread.run_sync(drawn, limiter=self._one_report)  # seconds for a wide run
        if text is None:
            return self._not_found(request, "The run is empty: it stopped before it started.")
        headers = {"Content-Security-Policy": REPORT_POLICY}
        return web.Response(text=text, content_type="text/html", headers=headers)

    async def _plan(self, request: web.Request) -> web.Response:
        """The plan file, to read or to edit."""
        reader = self._reader(request, request.query)
        try:
            run = await opened(reader, request.match_info["run"])
        except NoSuchPageError as error:
            return self._not_found(request, str(error))
        snapshot = run.snapshot
        text = inbox.plan_text(run, snapshot) if snapshot is not None and snapshot.plan.subtasks else ""
        name, version = run.feed.run, snapshot.plan.version if snapshot is not None else 0
        parts = {"title": reader.part("plan_title", run=name, version=version)}
        if snapshot is not None:
            parts["graph"] = graph_part(reader, run, snapshot)
        is_over = snapshot is not None and snapshot.figures.is_over
        parts["plan"] = reader.part("plan", text=text, run=name, version=version, is_over=is_over)
        return self._html(request, Shown(f"Plan of {name}", parts, is_live=False))

    # ---- deciding

    async def _decide(self, request: web.Request) -> web.Response:
        kind, given = request.match_info["kind"], await _json(request)
        return await self._change(request, lambda run, snapshot, by: inbox.decide(run, snapshot, kind, given, by))

    async def _comment(self, request: web.Request) -> web.Response:
        subtask, given = SubtaskId(request.match_info["subtask"]), await _json(request)
        return await self._change(request, lambda run, snapshot, by: inbox.comment(run, snapshot, subtask, given, by))

    async def _change(self, request: web.Request, change: Change) -> web.Response:
        run = self._runs.watched(request.match_info["run"])
        if run is None:
            return refusal(404, "Run not found.")
        await self._runs.load(run, LOAD_S)
        if run.loaded:
            run.catch_up(LOAD_S)
        snapshot = run.snapshot
        if snapshot is None or not run.loaded:
            return _result("Still reading the journal. Try again in a moment.")
        return _result(change(run, snapshot, f"{self._user} via web {request[SESSION].id}"))

    # ---- access

    async def _sign_in(self, request: web.Request) -> web.Response:
        if request.method == "HEAD":  # a preview does not use up the link
            return web.Response()
        started = self._access.start_session(request.query.get("token", ""))
        if started is None:
            return refusal(401, "This link is invalid, expired or already used. Restart `fleet web` for a new one.")
        secret, page = started
        answer = web.Response(text=ENTER.format(page=escape(page)), content_type="text/html")
        answer.set_cookie(
            self.guard.cookie, secret, httponly=True, samesite="Strict", path="/", max_age=SESSION_DAYS * 86_400
        )
        return answer

    async def _access_page(self, request: web.Request) -> web.Response:
        reader = self._reader(request, request.query)
        part = reader.part("access", sessions=self._access.sessions(), mine=request[SESSION], link="")
        return self._html(request, Shown("WebAccess", {"access": part}, is_live=False))

    async def _change_access(self, request: web.Request) -> web.Response:
        given = await _json(request)
        if request.match_info["what"] == "revoke":
            return _result(None if self._access.revoke(str(given.get("id"))) else "session not found")
        if request.match_info["what"] == "link":
            token = self._access.new_link("decide" if given.get("role") == "decide" else "read")
            return web.json_response(
                {"ok": True, "message": f"{request.scheme}://{request.host}{SIGN_IN}?token={token}"}
            )
        if request.match_info["what"] == "token":
            return web.json_response({"ok": True, "message": self._access.new_secret("scrape")})
        return refusal(404, "Unknown request.")

    # ---- pages

    def _reader(self, request: web.Request, query: Mapping[str, str]) -> Reader:
        may_decide = request[SESSION].role == "decide" and not self._read_only
        return Reader(self._runs, self._templates, may_decide, dict(query), pages=tuple(self._pages))

    def _html(self, request: web.Request, shown: Shown, status: int = 200) -> web.Response:
        reader = self._reader(request, request.query)
        parts = [(id_, version_of(text), Markup(text)) for id_, text in shown.parts.items()]  # noqa: S704 - rendered by templates
        text = self._templates.get_template("page.html").render(
            title=shown.title, parts=parts, waiting=reader.waiting(), may_decide=reader.may_decide, path=request.path,
            live=request.path_qs if shown.is_live and status == 200 else "", mark=MARK,  # noqa: PLR2004 - OK
        )  # fmt: skip
        return web.Response(text=text, content_type="text/html", status=status)


def feature_pages() -> dict[str, RunPage]:
    """The pages that features add to a run, by the last part of their address. Loaded on first use."""

    def lazily(place: str) -> RunPage:
        return lambda *arguments, **options: cast("str | None", load_part(place)(*arguments, **options))

    return {name: lazily(place) for feature in FEATURES.values() for name, place in feature.pages.items()}


def _match(path: str) -> tuple[Page, dict[str, str]] | None:
    """The page at a path, and the values in the path."""
    steps = path.strip("/").split("/")
    for pattern, page in PAGES.items():
        wanted = pattern.strip("/").split("/")
        if len(steps) == len(wanted) and all(w == s or w.startswith("{") for w, s in zip(wanted, steps, strict=True)):
            return page, {w[1:-1]: s for w, s in zip(wanted, steps, strict=True) if w.startswith("{")}
    return None


async def _json(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request. Empty if the body is not a JSON object."""
    try:
        given = await request.json(loads=parse_json)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _result(problem: str | None) -> web.Response:
    if problem is None:
        return web.json_response({"ok": True, "message": "Sent. The run will apply it shortly."})
    return web.json_response({"ok": False, "message": problem}, status=409)


# ---- server ----------------------------------------------------------------------------------------------------------
# The server for pages, and its address.
#
# Like every other client, it reads journals and puts requests into inboxes. Runs do not depend on it.


STOP_S = 1.0


@dataclass(frozen=True, slots=True)
class WebServer:
    """A listening server."""

    address: Address
    access: WebAccess

    def link(self, role: Role, page: str = "/") -> str:
        """A link that signs in one browser and opens a page."""
        host = "127.0.0.1" if self.address.host in {"0.0.0.0", "::"} else self.address.host  # noqa: S104 - compared, not bound
        return f"http://{Address(host, self.address.port)}{SIGN_IN}?token={self.access.new_link(role, page)}"


@asynccontextmanager
async def serving(
    library: RunLibrary,
    access: WebAccess,
    address: Address,
    clock: Callable[[], float],
    user: str,
    *,
    hosts: Collection[str] = (),
    read_only: bool = False,
    scrape: Scrape | None = None,
    pages: Mapping[str, RunPage] | None = None,
) -> AsyncIterator[WebServer]:
    """Serve the pages, and metrics if `scrape` is given, inside the block. Port 0 chooses a free port.

    `pages` replaces the pages that features add to each run.

    Raises `FleetError`.
    """
    site = Site(
        library, access, AllowedHosts(address, hosts), clock, user, read_only=read_only, scrape=scrape, pages=pages
    )
    runner = web.AppRunner(site.app(), access_log=None, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, address.host, address.port)
        try:
            await tcp.start()
        except OSError as error:
            raise FleetError(
                f"can't serve pages on {address}: {error.strerror}", hint="choose another port, or 0 for any free port"
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


def version_of(html: str) -> str:
    """A short digest of a part of a page. The part is sent again only if it changes."""
    return f"{crc32(html.encode('utf-8', 'replace')):08x}"


# ---- live ------------------------------------------------------------------------------------------------------------
# Updates open pages: reads journals a few times a second, and sends changed parts.
#
# A page is rendered once for all browsers that show it. A reconnected browser gets every part that is out of date.


Draw = Callable[[], Awaitable[Shown]]
TICK_S = 0.25
READ_S = 0.1  # of each tick, at most, for reading
AGES_S = 1.0  # interval for updating ages on a page without news
PING_TICKS = 60
MOST_STREAMS = 64  # over all pages


@dataclass(slots=True)
class OpenPage:
    """A page that is open in at least one browser."""

    draw: Draw
    count: Callable[[], int]
    readers: int = 0
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The version and the text of each part."""
    title: str = ""
    waiting: int = 0
    """The number of pending requests to a person, over all runs."""
    drawn_at: float = 0.0
    missing: bool = False


class Live:
    """The open pages."""

    def __init__(self, runs: WebRuns) -> None:
        self._runs = runs
        self._pages: dict[str, OpenPage] = {}
        self._drawn = anyio.Event()
        self._is_over = False

    @property
    def streams(self) -> int:
        return sum(page.readers for page in self._pages.values())

    async def keep_up(self) -> None:
        """Follow the runs while the server is running."""
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
        """Close the event streams, because the server stops."""
        self._is_over = True
        self._drawn.set()

    async def stream(
        self, request: web.Request, key: str, draw: Draw, count: Callable[[], int], may_go_on: Callable[[], bool]
    ) -> web.StreamResponse:
        """Send changed parts of a page until the browser disconnects or its session ends."""
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
        except Exception as bug:  # noqa: BLE001 - an error in one page must not affect other pages or the server
            note_bug(bug)
            page.missing = True
            return
        page.title = shown.title
        page.parts = {id_: (version_of(text), str(text)) for id_, text in shown.parts.items()}
