"""The report in a real browser: nothing is fetched, nothing runs, readable in any light, at any width and on paper."""

import base64
from pathlib import Path

import pytest

from dashboards.report.drawing import page as written
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.report_data import report_data
from tests.dashboards.browser import Page, browser
from tests.fleet.core.story import Story, plan_of

EVIL = '"><script>document.title="owned"</script><img src=http://127.0.0.1:1/x onerror=\'document.title="owned"\'>'


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A report in which everything is hostile that can be."""
    plan = plan_of("api", "docs", "site needs api docs", title=f"Write {EVIL}", goal=EVIL)
    story = Story(Policy(workers=8, max_attempts=2), plan.model_copy(update={"goal": f"A shop {EVIL}\n{EVIL}"}))
    for id_ in ("api", "docs"):
        story.happens(f.WorkerStarted(at=story.now, subtask=id_, number=1))
        story.model_is_called(id_)
    story.time_passes(20)
    story.attempt_fails("api")
    story.time_passes(20)
    story.planner_answers(retry=[{"id": "api", "guidance": EVIL}])
    story.landed("api", "docs")
    story.time_passes(30)
    story.happens(f.WarningNoted(at=story.now, text=EVIL))
    story.happens(f.QuestionAsked(at=story.now, about=None, question=EVIL, options=(EVIL,)))
    data = report_data(story.facts, story.now, alive=False)
    assert data is not None
    path = tmp_path / "report.html"
    path.write_text(written(data), encoding="utf-8")
    return path


async def colour(page: Page, what: str) -> str:
    return str(await page.evaluate(f"getComputedStyle(document.querySelector({what!r})).backgroundColor"))


async def test_nothing_is_fetched_and_nothing_runs(report: Path, tmp_path: Path) -> None:
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        assert await page.evaluate("document.title") == "Run r"
        assert await page.evaluate("document.scripts.length + document.images.length") == 0
        assert await page.evaluate("document.querySelector('main').innerText.includes('<script>')")
        assert page.requested() == [report.as_uri()]
        assert page.complaints() == []


async def test_it_is_light_dark_or_on_paper_as_its_reader_prefers(report: Path, tmp_path: Path) -> None:
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        seen = {}
        for name, dark, paper in (("light", False, False), ("dark", True, False), ("paper", True, True)):
            await page.looks(width=1000, dark=dark, paper=paper)
            seen[name] = await colour(page, "body")
        assert seen == {"light": "rgb(251, 252, 253)", "dark": "rgb(16, 20, 26)", "paper": "rgb(255, 255, 255)"}
        assert await page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
        printed = await page.call("Page.printToPDF", preferCSSPageSize=True)
        assert base64.b64decode(printed["data"]).startswith(b"%PDF")


@pytest.mark.parametrize("dark", [False, True])
async def test_every_text_has_enough_contrast(report: Path, tmp_path: Path, *, dark: bool) -> None:
    """WCAG AA: 4.5 to 1."""
    contrast = """(() => {
      const parse = c => c.match(/[\\d.]+/g).map(Number);
      const light = c => { const [r, g, b] = parse(c).map(v => v / 255).map(
        v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (parse(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
      return [...document.querySelectorAll('p, h1, h2, dt, dd, small, th, td, code, a, caption, svg text')].map(e => {
        const style = getComputedStyle(e), ink = e.closest('svg') ? style.fill : style.color;
        const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
        return [(a + 0.05) / (b + 0.05), e.tagName]; }).filter(([ratio]) => ratio < 4.5);
    })()"""
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        await page.looks(width=1000, dark=dark)
        assert await page.evaluate("document.querySelectorAll('td').length") > 10
        assert await page.evaluate(contrast) == []


async def test_a_narrow_screen_scrolls_its_tables_and_nothing_else(report: Path, tmp_path: Path) -> None:
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        for width in (360, 800, 1600):
            await page.looks(width=width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_screen_reader_gets_all_of_its_content(report: Path, tmp_path: Path) -> None:
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    nodes = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node.get("ignored")]
    pictures = [name for role, name in nodes if role in {"image", "img"}]
    assert pictures[0] == "Running agents At most 2 agents were running at the same time, first after 0 s."
    assert len(pictures) == 6
    assert all(pictures)
    headings = [name for role, name in nodes if role == "heading"]
    assert headings[0] == "Run r"
    assert "How to undo" in headings
    assert ("main", "") in nodes
    assert ("navigation", "Contents") in nodes
    columns = [name for role, name in nodes if role == "columnheader"]
    assert "command (on a branch that contains it)" in columns


async def test_the_charts_show_the_data(report: Path, tmp_path: Path) -> None:
    drawn = "[...document.querySelectorAll('svg[role=img] .line')].map(e => e.getBBox()).map(b => [b.width, b.height])"
    async with browser(tmp_path) as page:
        await page.open(report.as_uri())
        lines = await page.evaluate(drawn)
        bars = await page.evaluate("[...document.querySelectorAll('svg[role=img] rect')].map(e => e.getBBox().width)")
    assert len(lines) == 4
    agents, planned, landed, _ = lines
    assert agents[1] > 0
    assert planned[0] > 500
    assert landed[1] > 0
    assert max(bars) > 100
