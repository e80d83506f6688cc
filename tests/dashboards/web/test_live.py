"""Pages that keep themselves up to date: only what changed is sent, and who was away gets what it lacks."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from dashboards.web.shared_runs import Shown
from dashboards.web.site import AGES_S, MOST_STREAMS, PAGES, TICK_S, Page
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import Client, client, site, story

PATIENCE_S = 300.0


@asynccontextmanager
async def events(someone: Client, page: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The events of a page, as a browser gets them."""
    cookie = "; ".join(f"{name}={value}" for name, value in someone.cookies.items())
    url = f"http://{someone.server.address}/live"
    with anyio.fail_after(PATIENCE_S):
        async with someone.http.get(url, params={"page": page}, headers={"Cookie": cookie}) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == "text/event-stream"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]

            async def read() -> AsyncIterator[dict[str, Any]]:
                async for line in answer.content:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])

            yield read()


async def test_a_page_gets_the_parts_that_changed_and_no_others(tmp_path: Path) -> None:
    run = story()
    feed = MemoryFeed(run.facts)
    async with site(tmp_path, feed) as server, client(server) as someone, events(someone, "/runs/r") as stream:
        first = await anext(stream)
        assert {part[0] for part in first["parts"]} >= {"head", "needs", "numbers", "map", "events"}
        run.attempt_fails("cli")
        second = await anext(stream)
        changed = {part[0]: part[2] for part in second["parts"]}
        assert "head" not in changed
        assert "cli" in changed["events"]
        assert "cli: escalated" in changed["map"]


async def test_who_comes_back_gets_everything_and_two_readers_get_the_same(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts)
    async with site(tmp_path, feed) as server, client(server) as someone:
        async with events(someone, "/") as stream:
            first = await anext(stream)
        async with events(someone, "/") as again, events(someone, "/") as other:
            assert (await anext(again))["parts"] == first["parts"]
            assert (await anext(other))["parts"] == first["parts"]


async def test_a_revoked_reader_gets_nothing_more(tmp_path: Path) -> None:
    run = story()
    async with (
        site(tmp_path, MemoryFeed(run.facts)) as server,
        client(server) as someone,
        events(someone, "/runs/r") as stream,
    ):
        await anext(stream)
        (session,) = server.access.sessions()
        server.access.revoke(session.id)
        run.attempt_fails("cli")
        assert [event async for event in stream] == []


async def test_a_run_that_was_cleaned_away_ends_its_page(tmp_path: Path) -> None:
    feeds = [MemoryFeed(story().facts)]
    async with site(tmp_path, *feeds) as server, client(server) as someone, events(someone, "/runs/none") as stream:
        assert [event async for event in stream] == []


async def test_pages_that_are_open_are_bounded(tmp_path: Path) -> None:
    async with (
        site(tmp_path, MemoryFeed(story().facts)) as server,
        client(server) as someone,
        AsyncExitStack() as open_,
    ):
        for _ in range(MOST_STREAMS):
            await anext(await open_.enter_async_context(events(someone, "/")))
        assert (await someone.get("/live?page=/"))[0] == 503


@pytest.mark.parametrize("page", ["/nowhere", "/static/fleet.js", "https://evil.example/x/y", "/runs", ""])
async def test_only_pages_have_events(tmp_path: Path, page: str) -> None:
    async with site(tmp_path, MemoryFeed(story().facts)) as server, client(server) as someone:
        status, headers, _ = await someone.ask("GET", f"/live?page={page}") if page else (404, {}, "")
        assert status == 404 or headers["Content-Type"] == "text/event-stream"


def test_a_page_is_drawn_at_least_as_often_as_ages_grow() -> None:
    assert TICK_S <= AGES_S


async def test_a_page_that_can_not_be_drawn_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(reader: object, at: object) -> Shown:
        raise ZeroDivisionError(f"a bug of {type(reader).__name__}, {at}")

    monkeypatch.setitem(cast("dict[str, Page]", PAGES), "/inbox", broken)
    run = story()
    async with site(tmp_path, MemoryFeed(run.facts)) as server, client(server) as someone:
        async with events(someone, "/runs/r") as stream:
            await anext(stream)
            async with events(someone, "/inbox") as broken_stream:
                assert [event async for event in broken_stream] == []
            run.attempt_fails("cli")
            assert "cli failed" in str(await anext(stream))
        assert (await someone.get("/inbox"))[0] == 500
        assert (await someone.get("/"))[0] == 200
    assert capsys.readouterr().err.count("ZeroDivisionError: a bug of Reader") == 2
