"""The content of a report. In every format, text from others stays text."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.charts import MOST_POINTS, ChartSpan, chart, columns, spans, thinned
from dashboards.report.drawing import LIMITS, markdown, page
from dashboards.text.formats import sparkline
from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.report_data import ReportData, report_data
from tests.dashboards.hostile import HOSTILE
from tests.effort import examples
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.story import Story, plan_of

VOID = {"meta", "br", "img", "input", "hr", "link", "path", "rect", "circle"}


def report_of(story: Story, *, alive: bool = False) -> ReportData:
    data = report_data(story.facts, story.now, alive=alive)
    assert data is not None
    return data


@pytest.fixture
def story() -> Story:
    """`api` fails, waits, recovers and lands with `docs`; `site` builds on both and asks a human."""
    story = Story(Policy(workers=4, max_attempts=2), plan_of("api", "docs", "site needs api docs"))
    for id_ in ("api", "docs"):
        story.happens(f.WorkerStarted(at=story.now, subtask=id_, number=1))
        story.model_is_called(id_, dollars=0.02)
    story.time_passes(10)
    story.attempt_fails("api")
    story.time_passes(5)
    story.planner_answers(retry=[{"id": "api", "guidance": "once more"}])
    story.time_passes(15)
    story.landed("api", "docs")
    return story


def test_lines_hold_what_was_true_and_when(story: Story) -> None:
    line = report_of(story).timeline
    assert line.agents == [(0, 0), (0, 1), (0, 2), (10, 1), (30, 0)]
    assert (line.landed[0], line.landed[-1]) == ((0, 0), (30, 2))
    assert line.planned[-1][1] == 3
    assert line.cost["worker"] == [(0, 0), (0, 0.02), (0, 0.04)]


def test_a_simulated_model_and_a_missing_sandbox_are_stated_first(story: Story) -> None:
    data = dataclasses.replace(report_of(story), simulated=True, sandbox="none")
    for text in (markdown(data), page(data)):
        assert text.index("simulated") < text.index("Goal and outcome</h2>" if "<h2>" in text else "## Goal")
        assert "NO SANDBOX" in text


def test_an_estimate_for_what_is_open_is_in_the_report() -> None:
    data = report_of(Story(Policy(review=True), plan_of("a")))
    assert "Estimate for open subtasks: too few past runs" in markdown(data)
    assert "Estimate for open subtasks" not in markdown(dataclasses.replace(data, estimates=()))


# ---- hostile text ---------------------------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Reads a page as a browser would, and keeps what matters: which elements there are, and what they lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.leads: list[str] = []
        self.handlers: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.leads += [value or "" for name, value in attrs if name in {"src", "href", "srcset", "action", "data"}]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def hostile_report(text: str) -> ReportData:
    plan = plan_of("api", "docs", "site", title=text, goal=text).model_copy(update={"goal": text})
    story = Story(plan=plan)
    failure = f.Failure(kind="check", summary=text, evidence=text)
    story.happens(f.AttemptFailed(at=1, subtask="api", number=1, failure=failure))
    story.planner_answers(drop=[{"id": "api", "why": text}])
    story.happens(f.WarningNoted(at=2, text=text), f.QuestionAsked(at=2, about="docs", question=text))
    story.landed("site")
    story.happens(f.RunEnded(at=3, ending="partial", why=text))
    return dataclasses.replace(report_of(story), synthesis=text, repository=text, base_name=text)


ELEMENTS = (
    HOSTILE,
    "</style></title><script>x</script>",
    "' onload=x '",
    '" onload="x',
    "-->",
    "]]>",
    "<svg/onload=x>",
)
MARKUP = (
    "![x](http://evil.example/p.png)",
    "[x](javascript:1)",
    "<img src=//evil>",
    "a | b | c",
    "@team",
    "# x",
    "```",
)


@pytest.mark.parametrize("text", ELEMENTS)
def test_hostile_text_makes_no_element(text: str) -> None:
    plain, reader = Reader(), Reader()
    plain.feed(page(hostile_report("two\nlines")))
    reader.feed(page(hostile_report(text)))
    assert reader.tags - plain.tags == set()
    assert reader.open == plain.open == []
    assert reader.handlers == []
    assert all(lead.startswith("#") for lead in reader.leads)


@pytest.mark.parametrize("text", MARKUP)
def test_hostile_text_makes_no_markup_of_markdown(text: str) -> None:
    whole = markdown(hostile_report(text))
    fenced = re.findall(r"^```text\n(.*?)^```$", whole, flags=re.DOTALL | re.MULTILINE)
    assert 2 * len(fenced) == len(re.findall(r"^```", whole, flags=re.MULTILINE)) > 0
    assert not any("`" in inside for inside in fenced), "text between fences can't close them"
    written = re.sub(r"^```text\n.*?^```$", "", whole, flags=re.DOTALL | re.MULTILINE)
    assert "](" not in written
    assert "<" not in re.sub(r"`[^`\n]*`", "", written)
    assert "://" not in written
    assert "@" not in written
    rows = [line for line in written.splitlines() if line.startswith("| `")]
    plain = markdown(hostile_report("plain"))
    bars_in = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert bars_in == [len(re.findall(r"(?<!\\)\|", row)) for row in plain.splitlines() if row.startswith("| `")]


@examples(40)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_leaves_a_report_well_formed(text: str) -> None:
    data = hostile_report(text)
    reader = Reader()
    written = page(data)
    reader.feed(written)
    assert reader.open == []
    assert "\x1b" not in written + markdown(data)
    json.dumps(dataclasses.asdict(data))


@pytest.mark.parametrize("seed", range(8))
def test_the_numbers_of_any_run_add_up(seed: int) -> None:
    pretend = Pretend(seed, Policy(settle_s=0, max_attempts=2))
    for _ in range(400):
        if pretend.state.ended:
            break
        pretend.step()
    data = report_data(pretend.facts, pretend.now, alive=False)
    assert data is not None
    assert len(data.landed) == data.commits == sum(one.landed for one in data.tried)
    assert sum(one.attempts for one in data.tried) == data.attempts
    assert sum(kind.opened for kind in data.kinds) == len(data.incidents)
    assert max((value for _, value in data.timeline.agents), default=0) <= data.workers
    assert data.timeline.landed[-1][1] == data.commits
    for written in (page(data), markdown(data)):
        assert data.run in written


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_many_points_are_thinned_and_the_peak_stays() -> None:
    points = [(float(at), 50.0 if at == 7_777 else float(at % 10)) for at in range(20_000)]
    kept = thinned(points, 20_000)
    assert len(kept) <= MOST_POINTS
    assert max(kept, key=lambda point: point[1]) == (7_777, 50.0)
    assert kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_sparkline_holds_its_value_until_the_next() -> None:
    line = sparkline(columns([(0, 0), (25, 4), (75, 2)], 100, 48))
    assert line[0] == "▁"
    assert line[24] == "█"
    assert line[-1] == "▅"
    assert sparkline(columns([], 10, 48)) == ""


@pytest.mark.parametrize("seconds", [0.0, 0.4, 59.0, 86_400.0, 4e6])
def test_a_chart_of_any_length_has_a_few_ticks(seconds: float) -> None:
    drawn = chart("c", "says", {"one": [(0, 0), (seconds, 3)]}, seconds).drawn
    assert 2 <= drawn.count("<text") <= 14
    assert "nan" not in drawn
    assert 'class="open"' in spans("b", "says", [("x", [ChartSpan("open", 0, None)])], seconds).drawn


def test_the_report_of_a_wide_run_folds_what_is_beyond_the_first_rows(story: Story) -> None:
    opened, shown_first, folded = LIMITS["open"], LIMITS["shown"], LIMITS["folded"]
    data = report_of(story)
    [one, *_] = data.incidents
    many = [
        dataclasses.replace(one, subtask=SubtaskId(f"s{n}"), summary=HOSTILE) for n in range(shown_first + 2 * folded)
    ]
    html = page(dataclasses.replace(data, incidents=many, stories=()))
    html = html[html.index('<section id="recovery"') : html.index('<section id="cost"')]
    assert html.count("<details>") == html.count("</details>") == 3
    _, shown, first, last = html.split("<details>")
    assert [part.count('<th scope="row">') for part in (shown, first, last)] == [shown_first, folded, folded]
    assert f"Incidents: rows {shown_first + 1:,} to {shown_first + folded:,} of {shown_first + 2 * folded:,}" in first
    assert f"<summary>Incidents: {len(many):,} rows</summary>" in shown
    assert "<details>" not in page(dataclasses.replace(data, incidents=many[:opened], stories=()))
