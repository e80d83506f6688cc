"""Attacks on the pages through a real browser: first against a server without the defence, then against ours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dashboards import rendering
from dashboards.web import access, site
from dashboards.web.access import HEADERS
from fleet.core.plans.limits import Policy
from tests.dashboards.browser import Page, browser
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.browsing import another_page, signed_in
from tests.dashboards.web.site import site as served
from tests.dashboards.web.site import story
from tests.fleet.core.story import Story, plan_of

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
"""A form's request, a script's, a page, its events, and the page in a frame."""
SCRIPT = "<img src=x onerror='window.taken = true'><script>window.taken = true</script>"


async def tried(page: Page, base: str, at: str) -> list[str]:
    """The result of each try by the page at an address."""
    await page.open(at)
    answer = await page.call(
        "Runtime.evaluate", expression=TRIES.replace("BASE", f'"{base}"'), awaitPromise=True, returnByValue=True
    )
    results: list[str] = json.loads(answer["result"]["value"])
    return results


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_62_a_page_on_another_port_or_of_another_name_sends_what_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Another port is the hardest case: to a browser it is the same site, so it sends the session's cookie along."""
    feed = MemoryFeed(story().facts)
    async with signed_in(tmp_path, feed) as (_, page, base), another_page() as port:
        assert await tried(page, base, f"http://{host}:{port}/") == ["refused"] * 5
        assert feed.requests == []
        monkeypatch.setattr(access, "_refused_change", lambda *_: None)
        await tried(page, base, f"http://{host}:{port}/")
        wanted = ["paused"] if host == "127.0.0.1" else []  # another site does not get the cookie either
        assert [request.kind for request in feed.requests] == wanted


def lax(*names: str) -> Mapping[str, str]:
    return {name: text for name, text in HEADERS.items() if name not in names}


async def test_71_the_token_leaves_the_address_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the page that comes next, by Referer; to a script of the page, as the cookie."""

    async def attack(page: Page, name: str) -> list[bool]:
        page.events.clear()
        async with served(tmp_path / name, MemoryFeed(story().facts)) as server:
            await page.open(server.link("decide", "/inbox"))
            await page.open(f"http://{server.address}/runs/r")
            sent = [each["params"]["request"]["headers"] for each in page.events if each["method"] == SENT]
            leaked = any("token=" in headers.get("Referer", "") for headers in sent)
            return [leaked, "fleet-" in await page.evaluate("document.cookie")]

    real = web.Response.set_cookie

    def careless(self: web.Response, name: str, value: str, **more: Any) -> None:
        real(self, name, value, **{**more, "httponly": False})

    async with browser(tmp_path) as page:
        assert await attack(page, "with") == [False, False]
        monkeypatch.setattr(web.Response, "set_cookie", careless)
        monkeypatch.setattr(access, "HEADERS", {**lax("Referrer-Policy"), "Referrer-Policy": "unsafe-url"})
        assert await attack(page, "without") == [True, True]


SENT = "Network.requestWillBeSent"


async def test_72_text_of_a_model_brings_markup_and_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two defences, of which each holds alone: what is not ours is escaped, and the policy runs no script in a page."""
    plan = plan_of("one", title=SCRIPT, goal=SCRIPT).model_copy(update={"goal": SCRIPT})

    async def taken(page: Page, name: str) -> bool:
        feed = MemoryFeed(Story(Policy(review=True), plan).facts, output=SCRIPT)
        async with served(tmp_path / name, feed) as server:
            await page.open(server.link("decide"))
            await page.open(f"http://{server.address}/runs/r")
            return await page.evaluate("window.taken") is True

    real = rendering.environment

    def believing(folder: Path) -> Any:
        made = real(folder)
        made.autoescape = False
        return made

    async with browser(tmp_path) as page:
        assert not await taken(page, "with")
        monkeypatch.setattr(site, "environment", believing)
        assert not await taken(page, "without escaping")
        for module in (access, site):
            monkeypatch.setattr(module, "HEADERS", lax("Content-Security-Policy"))
        assert await taken(page, "without both")


async def test_73_a_page_is_shown_in_a_frame_under_somebody_elses_buttons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(tmp_path, MemoryFeed(story().facts)) as (_, page, base), another_page() as port:

        async def framed() -> str:
            await page.open(f"http://127.0.0.1:{port}/")
            frame = """new Promise(done => { const frame = document.createElement("iframe"); frame.src = "URL";
              frame.onload = done; document.body.append(frame); }).then(() => 1)""".replace("URL", f"{base}/runs/r")
            await page.call("Runtime.evaluate", expression=frame, awaitPromise=True)
            tree = (await page.call("Page.getFrameTree"))["frameTree"]
            url: str = tree["childFrames"][0]["frame"]["url"]
            return url

        assert not (await framed()).startswith(base)
        weak = HEADERS["Content-Security-Policy"].replace("frame-ancestors 'none'", "")
        monkeypatch.setattr(access, "HEADERS", {**lax("Cross-Origin-Resource-Policy"), "Content-Security-Policy": weak})
        assert await framed() == f"{base}/runs/r"
