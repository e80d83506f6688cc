"""The pages in a real browser: every page at every width, in light and dark, by keyboard, and without scripts."""

from importlib.resources import files
from pathlib import Path

import pytest

from fleet.core.facts import facts as f
from tests.dashboards.browser import browser
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.web.browsing import signed_in
from tests.dashboards.web.site import PATCH, site, story, unapproved

WIDTHS = (390, 1280, 2560)
FEW = ("/inbox", "/runs/r", "/runs/r/subtasks/docs")
OF_R = ("/plan", "/replay?at=3", "/subtasks", "/subtasks/api", "/subtasks?q=none")
THEN = ("/report", "/subtasks?at=9", "/subtasks/docs?at=12")
OTHERS = ("/", "/access", "/nowhere", "/runs/none", "/runs/p", "/runs/p/plan", "/runs/dead")
PAGES = (*FEW, *OTHERS, *(f"/runs/r{path}" for path in (*OF_R, *THEN)))
AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
GRAVE = """axe.run(document).then(found => JSON.stringify(found.violations
  .filter(rule => ["serious", "critical"].includes(rule.impact))
  .map(rule => [rule.id, rule.nodes.map(node => node.html.slice(0, 200))])))"""


@pytest.mark.parametrize("pages", [FEW, pytest.param(PAGES, marks=pytest.mark.thorough)], ids=("few", "all"))
async def test_every_page_at_every_width_in_light_and_dark_is_readable_for_all(
    tmp_path: Path, pages: tuple[str, ...]
) -> None:
    (tmp_path / "docs.1.jsonl").write_text('{"event": "said", "content": "שלום Größe 🚀"}\n' * 40, encoding="utf-8")
    asks = MemoryFeed(story().facts, patch=PATCH, folder=tmp_path)
    plan, dead = MemoryFeed(unapproved().facts, run="p"), MemoryFeed(story().facts, run="dead", alive=False)
    async with signed_in(tmp_path, asks, plan, dead) as (_, page, base):
        for path in pages:
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
        await page.until("[...document.querySelectorAll('output')].some(each => each.textContent.includes('Sent'))")
        (request,) = feed.requests
        assert isinstance(request, f.QuestionAnswered)
        assert request.answer == "größer, 🚀"
        await page.evaluate("document.activeElement.blur()")
        await press("0", "0")
        await page.until("location.pathname === '/'")


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
            await page.until(f"document.querySelector('#moment').innerText.startsWith('Event {place} of')")
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
        await page.until("document.querySelector('#play').textContent === 'Pause'")
        await page.until("document.querySelector('#play').textContent === 'Play'")
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
            ("/runs/r/replay?at=2", "Event 2 of"),
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
        await page.until("document.querySelector('#events').innerText.includes('cli failed')")
        await page.until("document.querySelector('#map').innerHTML.includes('cli: escalated')")
        await page.until("document.querySelector('#waiting').textContent === '3'")
        assert (await page.evaluate("document.title")).startswith("(3) r: ")
        assert await page.evaluate("document.querySelector('#controls').open")
        assert await page.evaluate("document.querySelector('#answer-r-q1').value") == "half an ans"
        run.happens(f.Paused(at=run.now, by="ada"))
        await page.evaluate(
            "document.querySelector('#limit-budget').value = ''; document.querySelector('#limit-budget').focus()"
        )
        await page.evaluate("document.activeElement.blur()")
        await page.until("document.querySelector('#head').innerText.includes('paused')")


async def test_a_page_catches_up_by_itself_when_the_server_was_away(tmp_path: Path) -> None:
    run = story()
    feed = MemoryFeed(run.facts)
    async with browser(tmp_path) as page:
        async with site(tmp_path, feed) as server:
            await page.open(server.link("decide"))
            await page.open(f"http://{server.address}/runs/r")
            run.happens(f.Paused(at=run.now, by="ada"))
            await page.until("document.querySelector('#head').innerText.includes('paused')")
        await page.until("document.querySelector('#connection').innerText.includes('The server has stopped')")
        run.attempt_fails("cli")
        async with site(tmp_path, feed, port=server.address.port):
            await page.until("document.querySelector('#events').innerText.includes('cli failed')")
            await page.until("document.querySelector('#connection').innerText === ''")
