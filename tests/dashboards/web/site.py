"""The server for pages over runs in memory, and clients that behave like browsers, and unlike them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp

from dashboards.address import Address
from dashboards.web.access import Role, WebAccess
from dashboards.web.site import RunPage, WebServer, serving
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from tests.dashboards.feeds import MemoryFeed, MemoryLibrary
from tests.fleet.core.story import Story, plan_of

PATCH = """diff --git a/shop/vat.py b/shop/vat.py
index 1..2 100644
--- a/shop/vat.py
+++ b/shop/vat.py
@@ -1,2 +1,3 @@ def vat
 one
-two
+zwei <b>größer</b> 🚀
+three
"""
DECIDES = {"Content-Type": "application/json", "X-Fleet-Request": "1", "Sec-Fetch-Site": "same-origin"}


def story() -> Story:
    """A run in which something landed, something failed, and a person is asked."""
    run = Story(
        Policy(workers=8, max_attempts=1),
        plan_of("schema", "store needs schema", "api", "docs", "cli", "site needs docs"),
    )
    run.landed("schema")
    run.attempt_fails("docs")
    run.work_is_done("api")
    run.happens(
        f.QuestionAsked(at=run.now, about="docs", question="Which tax rate?", options=("7 %", "19 %"), evidence="E")
    )
    return run


def unapproved() -> Story:
    """A run whose plan waits for approval."""
    return Story(Policy(workers=8, review=True), plan_of("one", "two"))


@dataclass
class Client:
    """A browser that is signed in, without its rules: it can send what it likes."""

    server: WebServer
    http: aiohttp.ClientSession
    role: Role = "decide"
    cookies: dict[str, str] = field(default_factory=dict)

    async def sign_in(self) -> None:
        status, headers, _ = await self.get(self.server.link(self.role).partition(str(self.server.address))[2])
        assert status == 200
        self.cookies = {name: morsel.value for name, morsel in SimpleCookie(headers["Set-Cookie"]).items()}

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> tuple[int, Mapping[str, str], str]:
        cookie = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        url = f"http://{self.server.address}{path}"
        asked = self.http.request(method, url, headers={**cookie, **(headers or {})}, allow_redirects=False, **more)
        async with asked as answer:
            return answer.status, answer.headers, await answer.text()

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Mapping[str, str], str]:
        return await self.ask("GET", path, headers)

    async def decide(self, path: str, headers: Mapping[str, str] | None = None, **given: Any) -> tuple[int, str]:
        status, _, text = await self.ask("POST", path, {**DECIDES, **(headers or {})}, json=given)
        return status, text


@asynccontextmanager
async def site(
    folder: Path,
    *feeds: MemoryFeed,
    read_only: bool = False,
    now: float = 60.0,
    hosts: tuple[str, ...] = (),
    port: int = 0,
    address: Address | None = None,
    kind: type[WebAccess] = WebAccess,
    pages: Mapping[str, RunPage] | None = None,
) -> AsyncIterator[WebServer]:
    access = kind(folder / "sessions.json", lambda: now)
    serves = serving(
        MemoryLibrary(feeds),
        access,
        address or Address("127.0.0.1", port),
        lambda: now,
        "ada",
        read_only=read_only,
        hosts=hosts,
        scrape=lambda accept: (f"fleet_runs 1 for {accept}".encode(), "text/plain; version=1"),
        pages=pages,
    )
    async with serves as server:
        yield server


@asynccontextmanager
async def client(server: WebServer, role: Role = "decide") -> AsyncIterator[Client]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        made = Client(server, http, role)
        await made.sign_in()
        yield made
