"""What the pages say, read as text: without a script, and with hostile texts in every place."""

import html
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from dashboards.report.drawing import run_page
from dashboards.web.run_page import MOST_LINES, diff_files
from fleet.core.facts import facts as f
from fleet.core.facts.facts import Fact
from fleet.core.plans.limits import Policy
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.hostile import hostile_story, problems
from tests.dashboards.web.site import PATCH, client, site, story, unapproved
from tests.fleet.core.story import Story, plan_of

PAGES = ("", "/subtasks", "/plan", "/replay", "/report")
MORE = ("/subtasks?q=%22%3E%3Cscript%3E", "/subtasks/api", "/subtasks/api?attempt=%22%3E")
EVIL = '"><script>alert(1)</script>'


async def page(tmp_path: Path, feed: MemoryFeed, path: str, role: str = "decide") -> str:
    async with site(tmp_path, feed) as server, client(server, "read" if role == "read" else "decide") as someone:
        status, _, text = await someone.get(path)
        assert status == 200, text
        return text


async def test_a_plan_that_waits_can_be_approved_in_part(tmp_path: Path) -> None:
    text = await page(tmp_path, MemoryFeed(unapproved().facts), "/inbox")
    assert 'name="subtasks" value="two"' in text
    assert "Approve all" in text
    assert "<form" not in await page(tmp_path / "x", MemoryFeed(unapproved().facts), "/inbox", "read")


async def test_a_subtask_shows_its_attempts_and_the_lines_of_its_diff(tmp_path: Path) -> None:
    (tmp_path / "api.1.jsonl").write_text(
        '{"event": "said", "content": "I write it <i>now</i>"}\nbroken\n{"event": "x", "content": "\\u202eabc"}\n'
    )
    feed = MemoryFeed(story().facts, patch=PATCH, folder=tmp_path)
    text = await page(tmp_path, feed, "/runs/r/subtasks/api")
    for said in ("Attempt 1", "I write it &lt;i&gt;now", "zwei &lt;b&gt;größer&lt;/b&gt; 🚀", "shop/vat.py"):
        assert said in text
    assert "\u202e" not in text
    assert 'data-side="new" data-line="2"' in text
    assert 'data-side="old" data-line="2"' in text


async def test_the_list_of_subtasks_is_filtered_and_paged(tmp_path: Path) -> None:
    many = MemoryFeed(Story(Policy(), plan_of(*(f"s{n:03}" for n in range(450)))).facts)
    async with site(tmp_path, many) as server, client(server) as someone:

        async def listed(query: str) -> list[str]:
            return re.findall(r'/subtasks/(s\d+)"', (await someone.get(f"/runs/r/subtasks{query}"))[2])

        assert len(await listed("")) == 200
        assert (await listed("?page=3"))[-1] == "s449"
        assert await listed("?page=99") == await listed("?page=3")
        assert await listed("?q=S01") == [f"s01{n}" for n in range(10)]
        assert await listed("?status=merged") == []
        assert (await listed("?page=9999999999999"))[0] == "s000"


@pytest.mark.parametrize("path", ["/runs/none", "/runs/r/subtasks/none", "/runs/r/none"])
async def test_what_is_not_there_is_said_so(tmp_path: Path, path: str) -> None:
    async with site(tmp_path, MemoryFeed(story().facts)) as server, client(server) as someone:
        assert (await someone.get(path))[0] == 404


@pytest.mark.parametrize("path", ["/", "/inbox", *(f"/runs/evil{page}" for page in PAGES)])
async def test_hostile_text_is_harmless_on_every_page(tmp_path: Path, path: str) -> None:
    facts = [fact for _, fact in hostile_story()]
    feed = MemoryFeed(facts, run="evil", output=EVIL)
    text = await page(tmp_path, feed, path)
    body = text.partition("<main")[2] or text
    assert problems(html.unescape(body).split("\n")) == []


@pytest.mark.parametrize("path", ["/", "/inbox", *(f"/runs/r{page}" for page in (*PAGES[:-1], *MORE))])
async def test_markup_of_others_stays_text(tmp_path: Path, path: str) -> None:
    plan = plan_of("api", title=f"T{EVIL}", goal=EVIL)
    run = Story(Policy(review=path == "/inbox"), plan.model_copy(update={"goal": EVIL}))
    patch = PATCH.replace("zwei", EVIL).replace("shop/vat.py", 'x"><script>.py')
    text = await page(tmp_path, MemoryFeed(run.facts, patch=patch, output=EVIL), path)
    assert text.count("<script") == 1  # the page's own
    assert "onerror" not in text


async def test_a_replay_shows_the_run_as_it_was_by_links_alone(tmp_path: Path) -> None:
    feed = MemoryFeed(story().facts)
    async with site(tmp_path, feed) as server, client(server) as someone:
        last = (await someone.get("/runs/r/replay"))[2]
        assert f"Event <b>{len(feed.recorded)}</b>" in last
        assert "Which tax rate?" in last
        assert 'class="act' not in last, "what was asked then can't be answered then"
        (start,) = re.findall(r'href="(/runs/r/replay\?at=1)" data-key="Home"', last)
        first = (await someone.get(start))[2]
        assert "Event <b>1</b>" in first
        assert "Which tax rate?" not in first
        assert "<b>0 of 6</b>" in first
        seen, text = {1}, first
        while found := re.search(r'href="/runs/r/replay\?at=(\d+)" data-key="\."', text):
            assert int(found[1]) not in seen
            seen.add(int(found[1]))
            text = (await someone.get(f"/runs/r/replay?at={found[1]}"))[2]
        assert "<b>1 of 6</b>" in text
        assert len(seen) > 3
        for odd in ("0", "-1", "99999999999999999999", "x", "1e3", "²"):
            assert (await someone.get(f"/runs/r/replay?at={odd}"))[0] == 200


async def test_links_of_a_replay_keep_its_moment(tmp_path: Path) -> None:
    told = story()
    feed = MemoryFeed(told.facts, patch=PATCH)
    asked = 1 + next(place for place, fact in enumerate(told.facts) if isinstance(fact, f.QuestionAsked))
    async with site(tmp_path, feed) as server, client(server) as someone:

        async def read(path: str) -> str:
            status, _, text = await someone.get(html.unescape(path))
            assert status == 200, path
            return text

        before = await read(f"/runs/r/replay?at={asked - 1}")
        leads = re.findall(r'href="(/runs/r/subtasks[^"]*)"', before)
        assert len(leads) > 10
        assert [link for link in leads if f"at={asked - 1}" not in link] == []
        assert all([await read(link) for link in sorted(set(leads))])
        then = await read(f"/runs/r/subtasks/docs?at={asked - 1}")
        assert f'href="/runs/r/replay?at={asked - 1}"' in then
        assert "Which tax rate?" not in then
        assert 'class="act' not in then, "what could be decided then can't be decided now"
        assert "data-live" not in then
        assert re.findall(r'href="(\?attempt=1[^"]*)"', then) == [f"?attempt=1&amp;at={asked - 1}"]
        now = await read("/runs/r/subtasks/docs")
        assert "Which tax rate?" in now
        assert "at=" not in re.sub(r"<form.*?</form>", "", now.partition("<main")[2], flags=re.DOTALL)
        listed = await read(f"/runs/r/subtasks?at={asked - 1}")
        assert f'name="at" value="{asked - 1}"' in listed
        assert (await someone.get(f"/runs/r/subtasks/none?at={asked}"))[0] == 404


async def test_a_report_leads_back_to_its_run_and_holds_up_no_other_page(
    tmp_path: Path,
) -> None:
    begun, answered = threading.Event(), threading.Event()

    def slow(facts: Iterable[Fact], now: float, *, alive: bool, back: str) -> str | None:
        begun.set()
        assert answered.wait(30), "the board is not answered while a report is made"
        return run_page(facts, now, alive=alive, back=back)

    pages: list[str] = []
    slowly = site(tmp_path, MemoryFeed(story().facts), pages={"report": slow})
    async with slowly as server, client(server) as someone:

        async def report() -> None:
            pages.append((await someone.get("/runs/r/report"))[2])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(report)
            await to_thread.run_sync(begun.wait)
            assert (await someone.get("/"))[0] == 200
            answered.set()
    assert '<a href="/runs/r">Back to the run</a>' in pages[0]


async def test_the_map_of_a_wide_run_has_a_sign_for_a_few_subtasks(tmp_path: Path) -> None:
    run = Story(Policy(workers=2, max_attempts=1), plan_of(*(f"s{n:04}" for n in range(3_100))))
    run.attempt_fails("s0001")
    part = (await page(tmp_path, MemoryFeed(run.facts), "/runs/r")).partition('<section id="map"')[2]
    picture = re.sub(r"<[^>]+>", "", part.partition('aria-hidden="true">')[2].partition("</p>")[0])
    assert "Each symbol represents 3 subtasks" in part
    assert len(picture) == -(-3_100 // 3)
    assert picture.startswith("?○"), "of a few, the one that asks shows"


async def test_the_graph_of_a_wide_run_counts_each_wave(tmp_path: Path) -> None:
    names = [f"s{n:04}" for n in range(1_100)]
    run = Story(Policy(workers=3, max_attempts=1), plan_of(*names, "last needs s0000"))
    run.attempt_fails("s0001")
    run.landed("s0000")
    text = await page(tmp_path, MemoryFeed(run.facts), "/runs/r")
    picture = text.partition('<section id="graph"')[2].partition("</section>")[0]
    assert "1,101 subtasks in 2 waves" in picture
    assert "1 landed, 3 running, 1 waiting for a person, 1095 to come" in picture
    assert "wave 2" in picture
    assert picture in (await page(tmp_path / "x", MemoryFeed(run.facts), "/runs/r/plan"))


@pytest.mark.parametrize("path", ["/", "/inbox"])
async def test_without_any_run_a_page_says_so(tmp_path: Path, path: str) -> None:
    async with site(tmp_path) as server, client(server) as someone:
        status, _, text = await someone.get(path)
        assert status == 200
        assert "Nothing needs you." in text


class Unreadable(MemoryFeed):
    """A run whose journal makes its reader raise."""

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        del after, limit
        raise ZeroDivisionError("a bug")


async def test_a_run_that_can_not_be_followed_takes_no_other_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = MemoryFeed(story().facts, run="good"), Unreadable([], run="bad")
    text = ""
    async with site(tmp_path, bad, good) as server, client(server) as someone:
        for _ in range(200):
            text = (await someone.get("/"))[2]
            if "/runs/good" in text:
                break
        assert "/runs/good" in text
        status, headers, text = await someone.get("/runs/bad")
        assert (status, headers["X-Content-Type-Options"]) == (500, "nosniff")
        assert "Traceback" not in text
        assert (await someone.get("/runs/good"))[0] == 200
        assert "ZeroDivisionError: a bug" in capsys.readouterr().err


def test_a_patch_is_read_into_numbered_lines() -> None:
    (file,), left_out = diff_files(PATCH)
    assert (file.path, file.added, file.removed, left_out) == ("shop/vat.py", 2, 1, 0)
    assert [(line.kind, line.old, line.new) for line in file.lines] == [
        ("hunk", None, None), ("same", 1, 1), ("remove", 2, None), ("add", None, 2), ("add", None, 3),
    ]  # fmt: skip


def test_lines_that_look_like_heads_of_files_are_lines() -> None:
    patch = PATCH.replace("+three", "+++ b/other\n--- a/other")
    (file,), _ = diff_files(patch)
    assert [line.text for line in file.lines if line.kind in {"add", "remove"}] == [
        "two", "zwei <b>größer</b> 🚀", "++ b/other", "-- a/other",
    ]  # fmt: skip


def test_a_binary_file_and_a_renamed_one_say_so_and_a_long_patch_is_cut() -> None:
    patch = "diff --git a/x b/y\nsimilarity index 90%\nrename from x\nrename to y\nBinary files differ\n"
    (file,), _ = diff_files(patch)
    assert [line.text for line in file.lines] == ["rename from x", "rename to y", "Binary files differ"]
    files, left_out = diff_files(PATCH + "+x\n" * MOST_LINES)
    assert left_out == 10
    assert len(files[0].lines) < MOST_LINES
    assert diff_files("the diff is too large") == ([], 0)
