"""What a report shows at a glance: its verdict, the pictures, the conclusion about costs, a question."""

import re

import pytest

from dashboards.report.blocks import Chart
from dashboards.report.document import document
from dashboards.report.page import markdown, page
from dashboards.report.pictures import PlanNode, chart, graph, plan_graph
from fleet.core.base.usage import Usage
from fleet.core.plans.limits import Policy
from fleet.core.state import facts as f
from tests.dashboards.report.test_report import report_of, story
from tests.fleet.core.story import Story, plan_of

USAGE = Usage(input=10, cache_read=30, output=1)
__all__ = ["story"]  # the fixture


def test_a_report_begins_with_its_verdict(story: Story) -> None:
    verdict = document(report_of(story, alive=True)).verdict
    assert verdict is not None
    assert verdict.word == "Running"
    assert verdict.text.startswith("2 of 3 subtasks landed, 1 of 1 failures recovered without a human; $0.04")
    died = document(report_of(story)).verdict
    assert died is not None
    assert (died.tone, died.word) == ("open", "Needs you: resume")
    html, text = page(document(report_of(story))), markdown(document(report_of(story)))
    assert html.index("Needs you: resume") < html.index("<nav")
    assert "**Needs you: resume**" in text


def test_every_attempt_is_on_the_time_line(story: Story) -> None:
    spans = {each.id: each.attempts for each in report_of(story).spans}
    assert [(a.number, a.from_s, a.to_s, a.landed) for a in spans["api"]] == [(1, 0, 10, False), (2, 15, 30, True)]
    assert [(a.to_s, a.landed) for a in spans["site"]] == [(None, None)]
    html = page(document(report_of(story)))
    picture = html.partition("<figcaption>Attempts</figcaption>")[2].partition("</figure>")[0]
    assert picture.partition("<svg viewBox")[2].count("<rect") == 4
    assert "4 attempts at 3 subtasks, 1 of them tried again." in picture


def test_the_plan_is_drawn_in_waves_with_what_each_subtask_needs(story: Story) -> None:
    waves = report_of(story).waves
    assert [[node.id for node in wave] for wave in waves] == [["api", "docs"], ["site"]]
    html = page(document(report_of(story)))
    picture = html.partition("<figcaption>The plan</figcaption>")[2].partition("</figure>")[0]
    assert picture.count('class="edge"') == 2
    assert picture.count('class="node good"') == 2


def test_a_plan_of_many_subtasks_is_drawn_as_squares() -> None:
    wide = Story(plan=plan_of("base", *(f"part{number} needs base" for number in range(120))))
    html = page(document(report_of(wide, alive=True)))
    picture = html.partition("<figcaption>The plan</figcaption>")[2].partition("</figure>")[0]
    assert picture.count("h11v11h-11z") == 121
    assert 'class="edge"' not in picture
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', picture)
    assert size is not None
    assert int(size[2]) < 500


def nodes(prefix: str, count: int, *needs: str, area: str | None = None) -> list[PlanNode]:
    return [PlanNode(f"{prefix}{n}", "t", needs, area, "merged" if n % 2 else "ready") for n in range(count)]


def test_in_a_large_plan_an_area_stands_for_its_subtasks() -> None:
    area = PlanNode("shop", "t", ("base0",), None, "running")
    inner = PlanNode("inner", "t", (), "shop", "running")
    plan = [nodes("base", 2), [area], [*nodes("s", 60, area="shop"), inner], nodes("deep", 10, area="inner")]
    picture = graph(plan_graph(plan, lambda id_: f'/x?"{id_}"'), 1)
    assert picture.count("<a href=") == 3
    assert "shop" in picture
    assert ">35/71</text>" in picture
    assert picture.count('class="edge"') == 1
    assert 'href="/x?&quot;shop&quot;"' in picture
    assert "73 subtasks" not in picture
    assert "74 subtasks in 4 waves" in picture
    assert "1 area with how many of their subtasks landed" in picture
    small = graph(plan_graph([nodes("base", 2), [area], nodes("s", 3, area="shop")]), 1)
    assert small.count('class="box"') == 6


def test_a_plan_of_thousands_is_a_bar_for_each_wave_or_a_few() -> None:
    plan = [nodes(f"w{wave}-", 100) for wave in range(100)]
    picture = graph(plan_graph(plan), 1)
    assert len(picture) < 20_000
    assert "waves 1 to 3" in picture
    assert "150 landed, 150 to come" in picture
    assert "waves 100 to 100" not in picture
    assert picture.count("<rect") == 2 * 34


def test_costs_begin_with_their_conclusion(story: Story) -> None:
    call = f.ModelCalled(at=story.now, role="planner", model="m", usage=USAGE, dollars=0.36, seconds=1.0)
    story.happens(call)
    assert "Planner calls are 90% of the cost, with 75% of what they read from the cache." in markdown(
        document(report_of(story))
    ).replace("\\", "")


def test_a_question_has_what_was_tried() -> None:
    story = Story(Policy(max_attempts=1), plan_of("web", "docs needs web", failure_action="ask"))
    story.attempt_fails("web")
    text = markdown(document(report_of(story, alive=True)))
    assert "What q1 is about, and what was tried" in text
    assert "1 subtask waits for it; the run ends as partial in" in text


@pytest.mark.parametrize(("peak", "end"), [(116, 120), (1, 1), (0.3, 0.3), (43, 50), (999, 1000)])
def test_an_axis_ends_soon_after_its_peak(peak: float, end: float) -> None:
    it = Chart("t", "s", {"a": [(0.0, peak)]}, 10)
    assert f">{end:g}</text>" in chart(it, 1)


def test_what_is_set_aside_is_retried_and_not_answered() -> None:
    story = Story(plan=plan_of("api"))
    story.attempt_fails("api", "internal")
    text = markdown(document(report_of(story)))
    assert "`fleet retry api --run r`: api is set aside" in text
    assert "fleet answer" not in text
