"""Attacks on the pages over raw sockets: first against a server without the defence, then against ours."""

import inspect
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from dashboards import rendering
from dashboards.address import AllowedHosts, parse_address
from dashboards.web import access, inbox
from dashboards.web.access import WebAccess, WebSession
from dashboards.web.site import WebServer
from dashboards.web.verbs import web
from fleet.core.facts import facts as f
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import DECIDES, client, site, story
from tests.fleet.core.story import Story, plan_of

PAUSE = "/runs/r/requests/paused"
JSON = {**DECIDES, "Content-Length": "2"}
ROOT = WebSession("root", "decide", 0.0, "")


def request(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", "{}" if method == "POST" else ""]).encode()


async def said(stream: SocketStream) -> str:
    """Everything until the server closes the connection."""
    parts = []
    with anyio.fail_after(30):
        while True:
            try:
                parts.append(await stream.receive())
            except anyio.EndOfStream:
                return b"".join(parts).decode()


async def ask(server: WebServer, method: str, path: str, **headers: str) -> tuple[int, str]:
    """The status and the text of an answer to exactly these headers; `_` in a name is a hyphen."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"Host": str(server.address), **named, "Connection": "close"}
    async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
        await stream.send(request(method, path, given))
        answer = await said(stream)
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


@asynccontextmanager
async def victim(tmp_path: Path, feed: MemoryFeed) -> AsyncIterator[tuple[WebServer, dict[str, str]]]:
    """A server, and the cookie of a browser that is signed in to it."""
    async with site(tmp_path, feed) as server, client(server) as someone:
        yield server, {"Cookie": "; ".join(f"{name}={value}" for name, value in someone.cookies.items())}


def paused(feed: MemoryFeed) -> bool:
    return [each.kind for each in feed.requests] == ["paused"]


# ---- who is answered ------------------------------------------------------------------------------------------------


async def test_61_a_page_gives_this_address_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS rebinding: the browser takes this server for that page's own, and sends all that it has for it."""

    async def attack(name: str) -> list[bool]:
        feed = MemoryFeed(story().facts)
        evil = {"Host": "evil.example", "Origin": "http://evil.example"}
        async with victim(tmp_path / name, feed) as (server, cookie):
            status, text = await ask(server, "GET", "/runs/r", **cookie, **evil)
            await ask(server, "POST", PAUSE, **JSON, **cookie, **evil)
            live = await ask(server, "GET", "/live?page=/nowhere", **cookie, **evil)
        return [status == 200 and "Which tax rate?" in text, paused(feed), live[0] != 403]

    with monkeypatch.context() as undefended:
        undefended.setattr(AllowedHosts, "allows", lambda *_: True)
        assert await attack("without") == [True, True, True]
    assert await attack("with") == [False, False, False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"X-Fleet-Request": "0"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
    ids=lambda wrong: "-".join(*wrong.items()),
)
async def test_62_a_request_that_another_page_could_send_with_the_cookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str]
) -> None:
    async def attack(name: str) -> bool:
        feed = MemoryFeed(story().facts)
        async with victim(tmp_path / name, feed) as (server, cookie):
            await ask(server, "POST", PAUSE, **{**JSON, **cookie, **wrong})
        return paused(feed)

    with monkeypatch.context() as undefended:
        undefended.setattr(access, "_refused_change", lambda *_: None)
        assert await attack("without")
    assert not await attack("with")


class Anyone(WebAccess):
    """Takes every secret for a session's."""

    def session(self, secret: str) -> WebSession | None:
        del secret
        return ROOT


class AnySession(WebAccess):
    """Takes every session for one that may do everything."""

    def session(self, secret: str) -> WebSession | None:
        return ROOT if super().session(secret) else None


class ReusedLinks(WebAccess):
    """Takes every link, and as often as it is used."""

    def start_session(self, token: str) -> tuple[str, str] | None:
        del token
        return self.new_secret("decide"), "/"


class Unending(WebAccess):
    """Ends no session."""

    def revoke(self, id_: str) -> bool:
        del id_
        return True


async def test_63_another_program_of_this_machine_knocks_without_a_token(tmp_path: Path) -> None:
    async def attack(name: str, kind: type[WebAccess]) -> list[bool]:
        feed = MemoryFeed(story().facts)
        async with site(tmp_path / name, feed, kind=kind) as server:
            guess = {"Cookie": f"fleet-{server.address.port}=guess", "Authorization": "Bearer guess"}
            pages = [await ask(server, "GET", path, **guess) for path in ("/", "/runs/r", "/runs/r/report", "/metrics")]
            await ask(server, "POST", PAUSE, **JSON, **guess)
        return [*(status == 200 for status, _ in pages), paused(feed)]

    assert await attack("without", Anyone) == [True] * 5
    assert await attack("with", WebAccess) == [False] * 5


async def test_64_a_link_is_found_in_a_history_or_a_log_and_used_again(tmp_path: Path) -> None:
    async def attack(name: str, kind: type[WebAccess]) -> list[int]:
        async with site(tmp_path / name, MemoryFeed(story().facts), kind=kind) as server:
            path = server.link("decide").partition(str(server.address))[2]
            return [(await ask(server, "GET", path))[0] for _ in range(2)]

    assert await attack("without", ReusedLinks) == [200, 200]
    assert await attack("with", WebAccess) == [200, 401]


@pytest.mark.parametrize(("role", "path"), [("read", PAUSE), ("read", "/access/link"), ("scrape", PAUSE)])
async def test_65_who_may_only_read_decides(tmp_path: Path, role: Any, path: str) -> None:
    async def attack(name: str, kind: type[WebAccess]) -> int:
        async with site(tmp_path / name, MemoryFeed(story().facts), kind=kind) as server:
            cookie = f"fleet-{server.address.port}={server.access.new_secret(role)}"
            return (await ask(server, "POST", path, **JSON, Cookie=cookie))[0]

    assert await attack("without", AnySession) == 200
    assert await attack("with", WebAccess) == 403


async def test_66_the_token_of_a_scraper_opens_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def attack(name: str, kind: type[WebAccess]) -> list[bool]:
        async with site(tmp_path / name, MemoryFeed(story().facts), kind=kind) as server:
            token = server.access.new_secret("scrape")
            asked = [{"Cookie": f"fleet-{server.address.port}={token}"}, {"Authorization": f"Bearer {token}"}]
            return [(await ask(server, "GET", "/runs/r", **headers))[0] == 200 for headers in asked]

    with monkeypatch.context() as undefended:
        undefended.setattr(access.Guard, "_secret", _any_secret)
        assert await attack("without", AnySession) == [True, True]
    assert await attack("with", WebAccess) == [False, False]


def _any_secret(_: access.Guard, request: Any) -> str:
    secrets = [*request.cookies.values(), request.headers.get("Authorization", "").removeprefix("Bearer ")]
    return next(str(secret) for secret in secrets if secret)


async def test_67_a_page_stays_open_after_its_session_was_ended(tmp_path: Path) -> None:
    """What happens after that is sent to it."""

    async def attack(name: str, kind: type[WebAccess]) -> str:
        run = Story(plan=plan_of("one", "two"))
        async with site(tmp_path / name, MemoryFeed(run.facts), kind=kind) as server:
            secret = server.access.new_secret("read")
            cookie = f"fleet-{server.address.port}={secret}"
            given = {"Host": str(server.address), "Cookie": cookie, "Connection": "close"}
            async with await anyio.connect_tcp("127.0.0.1", server.address.port) as stream:
                await stream.send(request("GET", "/live?page=/runs/r", given))
                heard = ""
                with anyio.fail_after(30):
                    while "two" not in heard:
                        heard += (await stream.receive()).decode()
                    revoke(server, secret)
                    run.attempt_fails("two")
                    heard = ""
                    while "two failed" not in heard:
                        try:
                            heard += (await stream.receive()).decode()
                        except anyio.EndOfStream:
                            return heard
                    return heard

    def revoke(server: WebServer, secret: str) -> None:
        session = server.access.session(secret)
        assert session is not None
        assert server.access.revoke(session.id)

    assert "two failed" in await attack("without", Unending)
    assert "two failed" not in await attack("with", WebAccess)


async def test_68_a_browser_says_who_decided_and_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def attack(name: str) -> str:
        feed = MemoryFeed(story().facts)
        body = json.dumps({"subtask": "docs", "guidance": "x", "by": "root", "at": 1, "kind": "paused"})
        async with site(tmp_path / name, feed) as server, client(server) as someone:
            await someone.ask("POST", "/runs/r/requests/retry_requested", DECIDES, data=body)
        (made,) = feed.requests
        assert isinstance(made, f.RetryRequested)
        assert made.at == 60.0
        return made.by

    real = inbox.decide

    def believing(run: Any, state: Any, kind: str, given: Any, by: str) -> str | None:
        return real(run, state, kind, given, given.get("by", by))

    with monkeypatch.context() as undefended:
        undefended.setattr(inbox, "decide", believing)
        assert await attack("without") == "root"
    assert (await attack("with")).startswith("ada via web ")


async def test_69_another_machine_connects(tmp_path: Path) -> None:
    """Another address of this machine stands for it: `fleet web` without options does not listen there."""

    async def attack(name: str, listen: str) -> bool:
        async with site(tmp_path / name, MemoryFeed([]), address=parse_address(listen)) as server:
            try:
                async with await anyio.connect_tcp("127.0.0.2", server.address.port):
                    return True
            except OSError:
                return False

    assert await attack("without", "0.0.0.0:0")
    assert not await attack("with", inspect.signature(web).parameters["listen"].default)


# ---- what is shown --------------------------------------------------------------------------------------------------


async def test_70_text_turns_itself_around_or_acts_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that reads as another one; what a person copies from the page into a terminal."""
    title = "exe.\u202egnp\x1b]52;c;aGk=\x07\u2066\u200b"
    run = Story(plan=plan_of("one", title=title))

    async def attack(name: str) -> bool:
        async with victim(tmp_path / name, MemoryFeed(run.facts)) as (server, cookie):
            pages = [
                (await ask(server, "GET", path, **cookie))[1] for path in ("/runs/r/subtasks", "/runs/r/subtasks/one")
            ]
        return any(character in page for page in pages for character in "\u202e\x1b\u2066\u200b")

    with monkeypatch.context() as undefended:
        undefended.setattr(rendering, "safe", lambda text, **_: text)
        assert await attack("without")
    assert not await attack("with")
