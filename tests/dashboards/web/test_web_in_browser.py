"""The pages in a real browser: every page at every width, in light and dark, by keyboard, and without scripts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from dashboards.web import guard
from dashboards.web.server import WebServer
from fleet.core.state import facts as f
from tests.dashboards.browser import Page, browser
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.site import PATCH, site, story, unapproved

WIDTHS = (390, 1280, 2560)
PATIENCE_S = 30.0
AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
GRAVE = """axe.run(document).then(found => JSON.stringify(found.violations
  .filter(rule => ["serious", "critical"].includes(rule.impact))
  .map(rule => [rule.id, rule.nodes.map(node => node.html.slice(0, 200))])))"""


@asynccontextmanager
async def signed_in(tmp_path: Path, *feeds: MemoryFeed) -> AsyncIterator[tuple[WebServer, Page, str]]:
    """A browser that opened the link; and where the pages are."""
    async with site(tmp_path, *feeds) as server, browser(tmp_path) as page:
        await page.open(server.link("decide"))
        yield server, page, f"http://{server.address}"


async def until(page: Page, expression: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await page.evaluate(expression):  # noqa: ASYNC110 - the page has no event for us
            await anyio.sleep(0.05)


async def test_every_page_at_every_width_in_light_and_dark_is_readable_for_all(tmp_path: Path) -> None:
    (tmp_path / "docs.1.jsonl").write_text('{"event": "said", "content": "שלום Größe 🚀"}\n' * 40, encoding="utf-8")
    asks = MemoryFeed(story().facts, patch=PATCH, folder=tmp_path)
    plan, dead = MemoryFeed(unapproved().facts, run="p"), MemoryFeed(story().facts, run="dead", alive=False)
    of_r = ("", "/plan", "/replay", "/replay?at=3", "/subtasks", "/subtasks/docs", "/subtasks/api", "/subtasks?q=none")
    others = ("/", "/inbox", "/access", "/nowhere", "/runs/none", "/runs/p", "/runs/p/plan", "/runs/dead")
    async with signed_in(tmp_path, asks, plan, dead) as (_, page, base):
        for path in (*others, *(f"/runs/r{path}" for path in of_r)):
            await page.open(base + path)
            for width in WIDTHS:
                await page.looks(width=width)
                assert (path, await page.evaluate("document.documentElement.scrollWidth <= innerWidth")) == (path, True)
            for dark in (False, True):
                await page.looks(width=1280, dark=dark)
                await page.evaluate(f"{AXE}; 1")
                answer = await page.call("Runtime.evaluate", expression=GRAVE, awaitPromise=True, returnByValue=True)
                assert (path, answer["result"]["value"]) == (path, "[]")
        said = [text for text in page.complaints() if "404" not in text]
        assert said == []
        assert all(url.startswith((base, "data:", "about:")) for url in page.requested())


async def test_an_answer_is_given_by_keyboard_alone(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts)
    async with signed_in(tmp_path, feed) as (_, page, base):
        await page.open(f"{base}/inbox")

        async def press(key: str, text: str = "") -> None:
            for kind in ("keyDown", "keyUp"):
                more = {"text": text} if text and kind == "keyDown" else {}
                await page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

        for _ in range(40):
            await press("Tab")
            if await page.evaluate("document.activeElement.tagName") == "TEXTAREA":
                break
        await page.call("Input.insertText", text="größer, 🚀")
        await page.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", code="Tab", windowsVirtualKeyCode=9)
        assert await page.evaluate("document.activeElement.innerText") == "Answer"
        await press("Enter", "\r")
        await until(page, "[...document.querySelectorAll('output')].some(each => each.textContent.includes('Sent'))")
        (request,) = feed.requests
        assert isinstance(request, f.QuestionAnswered)
        assert request.answer == "größer, 🚀"
        await page.evaluate("document.activeElement.blur()")
        await press("0", "0")
        await until(page, "location.pathname === '/'")


async def test_a_replay_is_steered_by_keyboard_and_slider(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts)
    async with signed_in(tmp_path, feed) as (_, page, base):
        await page.open(f"{base}/runs/r/replay")

        async def press(key: str, **more: object) -> None:
            for kind in ("keyDown", "keyUp"):
                await page.call(
                    "Input.dispatchKeyEvent", type=kind, key=key, text=key[:1] if len(key) == 1 else "", **more
                )

        async def is_at(place: int) -> None:
            await until(page, f"document.querySelector('#moment').innerText.startsWith('Fact {place} of')")
            assert await page.evaluate("location.search") == f"?at={place}"
            assert await page.evaluate("document.querySelector('#at').value") == str(place)

        await press("Home")
        await is_at(1)
        await page.evaluate("document.querySelector('#at').focus()")
        await press("ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
        await is_at(2)
        await press("End", code="End", windowsVirtualKeyCode=35)
        await is_at(len(feed.recorded))
        await page.evaluate("document.activeElement.blur()")
        await press(" ")
        await until(page, "document.querySelector('#play').textContent === 'Pause'")
        await until(page, "document.querySelector('#play').textContent === 'Play'")
        await is_at(len(feed.recorded))
        await press("?")
        assert await page.evaluate("document.querySelector('#help').open")
        assert page.complaints() == []


async def test_without_scripts_everything_can_be_read(tmp_path: Path) -> None:
    async with signed_in(tmp_path, MemoryFeed(story().facts, patch=PATCH)) as (_, page, base):
        await page.call("Emulation.setScriptExecutionDisabled", value=True)
        for path, said in (
            ("/", "Needs you"),
            ("/inbox", "Which tax rate?"),
            ("/runs/r/subtasks/api", "größer"),
            ("/runs/r/replay?at=2", "Fact 2 of"),
        ):
            await page.open(base + path)
            assert said in await page.evaluate("document.body.innerText")


async def test_a_page_follows_its_run_and_takes_nothing_from_who_is_writing(tmp_path: Path) -> None:
    run = story()
    async with signed_in(tmp_path, MemoryFeed(run.facts)) as (_, page, base):
        await page.open(f"{base}/runs/r")
        await page.evaluate("document.querySelector('#controls').open = true")
        await page.evaluate("document.querySelector('#limit-budget').value = '7'")
        await page.evaluate("document.querySelector('#answer-r-q1').value = 'half an ans'")
        run.attempt_fails("cli")
        await until(page, "document.querySelector('#events').innerText.includes('cli failed')")
        await until(page, "document.querySelector('#map').innerHTML.includes('cli: escalated')")
        assert await page.evaluate("document.querySelector('#controls').open")
        assert await page.evaluate("document.querySelector('#answer-r-q1').value") == "half an ans"
        run.happens(f.Paused(at=run.now, by="ada"))
        await page.evaluate(
            "document.querySelector('#limit-budget').value = ''; document.querySelector('#limit-budget').focus()"
        )
        await page.evaluate("document.activeElement.blur()")
        await until(page, "document.querySelector('#head').innerText.includes('paused')")


async def test_a_page_catches_up_by_itself_when_the_server_was_away(tmp_path: Path) -> None:
    run = story()
    feed = MemoryFeed(run.facts)
    async with browser(tmp_path) as page:
        async with site(tmp_path, feed) as server:
            await page.open(server.link("decide"))
            await page.open(f"http://{server.address}/runs/r")
            await until(page, "document.querySelector('#events').innerText.includes('docs failed')")
        await until(page, "document.querySelector('#connection').innerText.includes('The server has stopped')")
        run.attempt_fails("cli")
        async with site(tmp_path, feed, port=server.address.port):
            await until(page, "document.querySelector('#events').innerText.includes('cli failed')")
            await until(page, "document.querySelector('#connection').innerText === ''")


TRIES = """Promise.all([
  fetch(BASE + "/runs/r/requests/paused", {method: "POST", body: "{}", mode: "no-cors", credentials: "include"})
    .then(() => "sent"),
  fetch(BASE + "/runs/r/requests/paused", {method: "POST", body: "{}", credentials: "include",
    headers: {"Content-Type": "application/json", "X-Fleet-Request": "1"}}).then(() => "did it"),
  fetch(BASE + "/runs/r", {credentials: "include"}).then(answer => answer.text()).then(() => "did it"),
  new Promise((done, failed) => { const source = new EventSource(BASE + "/live?page=/", {withCredentials: true});
    source.onmessage = () => done("did it"); source.onerror = failed; }),
  new Promise((done, failed) => { const frame = document.createElement("iframe"); frame.src = BASE + "/";
    frame.onload = () => { try { done(frame.contentDocument.body.innerText ? "did it" : "empty"); }
      catch (error) { failed(error); } };
    document.body.append(frame); }),
].map(each => each.then(result => result, () => "refused"))).then(all => JSON.stringify(all))"""


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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_page_of_somebody_else_on_this_machine_reads_and_changes_nothing(tmp_path: Path, host: str) -> None:
    """The hardest case: to a browser another port is the same site, so it even sends the session's cookie along."""
    feed = MemoryFeed(story().facts)
    async with signed_in(tmp_path, feed) as (_, page, base), another_page() as port:
        await page.open(f"http://{host}:{port}/")
        tries = TRIES.replace("BASE", f'"{base}"')
        answer = await page.call("Runtime.evaluate", expression=tries, awaitPromise=True, returnByValue=True)
        assert answer["result"]["value"] == '["refused","refused","refused","refused","refused"]'
    assert feed.requests == []


async def test_without_the_rules_for_changes_the_same_page_pauses_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_refused_change", lambda *_: None)
    feed = MemoryFeed(story().facts)
    async with signed_in(tmp_path, feed) as (_, page, base), another_page() as port:
        await page.open(f"http://127.0.0.1:{port}/")
        await page.call("Runtime.evaluate", expression=TRIES.replace("BASE", f'"{base}"'), awaitPromise=True)
    assert [request.kind for request in feed.requests] == ["paused"]
