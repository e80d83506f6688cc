"""What a report tells, and that what others wrote stays text in it, whatever it is written as."""

import dataclasses
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards.report.blocks import Bar, Bars, Chart, Line
from dashboards.report.document import document
from dashboards.report.figures import Figures, figures
from dashboards.report.markdown import markdown
from dashboards.report.page import page
from dashboards.report.svg import MOST_POINTS, bars, chart, sparkline, thinned
from fleet.core import facts as f
from fleet.core.policy import Policy
from tests.core.pretend import Pretend
from tests.core.story import Story, plan_of
from tests.dashboards.hostile import HOSTILE

VOID = {"meta", "br", "img", "input", "hr", "link", "path", "rect"}


def told(story: Story, *, alive: bool = False) -> Figures:
    found = figures(story.facts, story.now, alive=alive)
    assert found is not None
    return found


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


def test_it_tells_what_landed_in_which_order_and_what_builds_on_it(story: Story) -> None:
    landed = {part.id: part for part in told(story).landed}
    assert list(landed) == ["api", "docs"]
    assert (landed["api"].attempts, landed["api"].strategy, landed["api"].at_s) == (2, "alternative", 30)
    assert landed["api"].needed_by == ()
    story.landed("site")
    parts = {part.id: part for part in told(story).landed}
    assert parts["api"].needed_by == parts["docs"].needed_by == ("site",)


def test_recovery_is_told_by_strategy_each_with_its_denominator(story: Story) -> None:
    tried = {one.strategy: (one.landed, one.attempts, one.recovered, one.closed) for one in told(story).tried}
    assert tried == {"first": (1, 3, 0, 0), "alternative": (1, 1, 1, 1)}
    (kind,) = told(story).kinds
    assert (kind.kind, kind.opened, kind.recovered, kind.unrecovered) == ("check", 1, 1, 0)
    text = markdown(document(told(story)))
    assert r"| another approach | 100% \(1 of 1\) | 100% \(1 of 1\) |" in text


def test_every_incident_is_told_whole(story: Story) -> None:
    (view,) = told(story).stories
    assert [step["by"] for step in view["remedies"]] == ["planner"]
    for text in (markdown(document(told(story))), page(document(told(story)))):
        for said in (
            "red, it says",
            "chosen      by the planner (plan version 1): another approach",
            "landed as c-api",
        ):
            assert said in text
    assert "<details><summary>Incident 1 api check" in page(document(told(story)))


def test_lines_hold_what_was_true_and_when(story: Story) -> None:
    line = told(story).timeline
    assert line.agents == [(0, 0), (0, 1), (0, 2), (10, 1), (30, 0)]
    assert (line.landed[0], line.landed[-1]) == ((0, 0), (30, 2))
    assert line.planned[-1][1] == 3
    assert line.cost["worker"] == [(0, 0), (0, 0.02), (0, 0.04)]


def test_hours_in_which_nothing_ran_do_not_stretch_the_picture(story: Story) -> None:
    story.happens(f.EngineStopped(at=story.now, why="stopped"))
    story.time_passes(50_000)
    story.happens(f.EngineStarted(at=story.now, epoch=2, pid=2, host="here", version="1"))
    story.time_passes(10)
    story.landed("site")
    found = told(story)
    assert found.seconds == 40
    assert found.timeline.resumed == [30]
    assert found.landed[-1].at_s == 40
    assert found.incidents[0].to_s == 30
    assert "resumed once" in markdown(document(found))


def test_what_needs_a_human_stands_there_with_what_to_type(story: Story) -> None:
    story.attempt_fails("site")
    story.planner_answers(ask=[{"about": "site", "question": "Which colour?", "options": ["red"]}])
    story.happens(f.RunEnded(at=story.now, ending="partial", why="nobody answered q1"))
    text = markdown(document(told(story)))
    assert "`fleet answer q1 TEXT --run r`: Which colour?" in text
    assert "It ended because: nobody answered q1" in text
    assert "Nothing: all is landed" not in text


def test_each_part_can_be_undone_and_all_of_it(story: Story) -> None:
    story.landed("site")
    text = page(document(told(story)))
    order = [text.index(f"git revert --no-edit c-{id_}") for id_ in ("site", "docs", "api")]
    assert order == sorted(order)
    assert "git branch -D fleet/r" in text
    assert "git revert --no-edit base..fleet/r" in text


def test_a_step_that_changed_no_file_is_done_and_is_no_commit() -> None:
    story = Story(plan=plan_of("deploy"))
    story.happens(f.WorkerStarted(at=0, subtask="deploy", number=1))
    report = f.Report(status="done", summary="deployed")
    story.happens(
        f.AttemptUnchanged(at=0, subtask="deploy", number=1, report=report),
        f.AttemptVerified(at=0, subtask="deploy", number=1, checks=()),
    )
    text = markdown(document(told(story)))
    assert "| landed | **1 of 1** | subtasks; 1 of them changed no file |" in text
    assert "| Build deploy | no file changed | coder |" in text
    assert "1 subtasks landed" in text
    assert "git revert" not in text


def test_who_approved_what_when_and_in_which_version_is_told() -> None:
    story = Story(Policy(review=True, reviewing="human"), plan_of("api", "docs"))
    said = {"at": 86_400.0, "version": 0, "by": "ada"}
    story.happens(f.PlanRejected(**said, reason="docs first | <b>"))
    story.planner_answers(revise=[{"id": "api", "depends_on": ["docs"]}])
    story.happens(f.PlanApproved(**said | {"version": 1, "subtasks": ("docs",)}))
    story.landed("docs")
    found = told(story, alive=True)
    assert [(word.rejected, word.subtasks) for word in found.reviewed.words] == [
        (True, ("api", "docs")),
        (False, ("docs",)),
    ]
    assert found.reviewed.waiting == {"api": ()}
    text = markdown(document(found))
    assert "A person looked at the first plan" in text
    assert "The rules: max\\_risk = medium." in text
    assert "| 1970-01-02 00:00:00 UTC | 0 | rejected | ada | api, docs | docs first \\| &lt;b&gt; |" in text
    assert "| 1970-01-02 00:00:00 UTC | 1 | approved | ada | docs |  |" in text
    assert "- `fleet approve r`: api: waits for a person's word" in text


def test_a_run_that_came_to_nothing_has_a_report_too() -> None:
    story = Story()
    story.happens(f.RunEnded(at=0, ending="failed", why="no key"))
    text = markdown(document(told(story)))
    assert "Nothing has landed." in text
    assert "nothing to undo" in text
    assert figures([], 0, alive=False) is None


def test_an_unknown_price_is_unknown(story: Story) -> None:
    story.model_is_called("site", dollars=None)
    found = told(story)
    assert (found.dollars, found.dollars_a_landed) == (None, None)
    assert "unknown in all" in markdown(document(found))


def test_a_simulated_model_and_a_missing_sandbox_are_said_at_once(story: Story) -> None:
    found = dataclasses.replace(told(story), simulated=True, sandbox="none")
    for text in (markdown(document(found)), page(document(found))):
        assert text.index("simulated") < text.index("Goal and outcome</h2>" if "<h2>" in text else "## Goal")
        assert "WITHOUT A SANDBOX" in text


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


def hostile_report(text: str) -> Figures:
    plan = plan_of("api", "docs", "site", title=text, goal=text).model_copy(update={"goal": text})
    story = Story(plan=plan)
    failure = f.Failure(kind="check", summary=text, evidence=text)
    story.happens(f.AttemptFailed(at=1, subtask="api", number=1, failure=failure))
    story.planner_answers(drop=[{"id": "api", "why": text}])
    story.happens(f.WarningNoted(at=2, text=text), f.QuestionAsked(at=2, about="docs", question=text))
    story.landed("site")
    story.happens(f.RunEnded(at=3, ending="partial", why=text))
    return dataclasses.replace(told(story), synthesis=text, repository=text, base_name=text)


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
    plain.feed(page(document(hostile_report("two\nlines"))))
    reader.feed(page(document(hostile_report(text))))
    assert reader.tags - plain.tags == set()
    assert reader.open == plain.open == []
    assert reader.handlers == []
    assert all(lead.startswith("#") for lead in reader.leads)


@pytest.mark.parametrize("text", MARKUP)
def test_hostile_text_makes_no_markup_of_markdown(text: str) -> None:
    whole = markdown(document(hostile_report(text)))
    fenced = re.findall(r"^```text\n(.*?)^```$", whole, flags=re.DOTALL | re.MULTILINE)
    assert 2 * len(fenced) == len(re.findall(r"^```", whole, flags=re.MULTILINE)) > 0
    assert not any("`" in inside for inside in fenced), "what stands between fences can't close them"
    written = re.sub(r"^```text\n.*?^```$", "", whole, flags=re.DOTALL | re.MULTILINE)
    assert "](" not in written
    assert "<" not in re.sub(r"`[^`\n]*`", "", written)
    assert "://" not in written
    assert "@" not in written
    rows = [line for line in written.splitlines() if line.startswith("| `")]
    plain = markdown(document(hostile_report("plain")))
    bars_in = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert bars_in == [len(re.findall(r"(?<!\\)\|", row)) for row in plain.splitlines() if row.startswith("| `")]


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_whatever_stands_in_it_a_report_stays_whole(text: str) -> None:
    found = hostile_report(text)
    reader = Reader()
    written = page(document(found))
    reader.feed(written)
    assert reader.open == []
    assert "\x1b" not in written + markdown(document(found))
    json.dumps(dataclasses.asdict(found))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happened_the_figures_add_up(seed: int) -> None:
    pretend = Pretend(seed, Policy(settle_s=0, max_attempts=2))
    for _ in range(400):
        if pretend.state.ended:
            break
        pretend.step()
    found = figures(pretend.facts, pretend.now, alive=False)
    assert found is not None
    assert len(found.landed) == found.commits == sum(one.landed for one in found.tried)
    assert sum(one.attempts for one in found.tried) == found.attempts
    assert sum(kind.opened for kind in found.kinds) == len(found.incidents)
    assert max((value for _, value in found.timeline.agents), default=0) <= found.workers
    assert found.timeline.landed[-1][1] == found.commits
    for written in (page(document(found)), markdown(document(found))):
        assert found.run in written


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_many_points_are_thinned_and_the_peak_stays() -> None:
    points = [(float(at), 50.0 if at == 7_777 else float(at % 10)) for at in range(20_000)]
    kept = thinned(points, 20_000)
    assert len(kept) <= MOST_POINTS
    assert max(kept, key=lambda point: point[1]) == (7_777, 50.0)
    assert kept[-1] == points[-1]
    assert kept == sorted(kept)


def test_a_sparkline_holds_its_value_until_the_next() -> None:
    line = sparkline([(0, 0), (25, 4), (75, 2)], 100)
    assert line[0] == "▁"
    assert line[24] == "█"
    assert line[-1] == "▅"
    assert sparkline([], 10) == ""


@pytest.mark.parametrize("seconds", [0.0, 0.4, 59.0, 86_400.0, 4e6])
def test_a_chart_of_any_length_has_a_few_ticks(seconds: float) -> None:
    drawn = chart(Chart("c", "says", [Line("one", [(0, 0), (seconds, 3)])], seconds), 1)
    assert 2 <= drawn.count("<text") <= 14
    assert "nan" not in drawn
    spans = bars(Bars("b", "says", [Bar("x", 0, None, None)], seconds), 2)
    assert 'class="open"' in spans
