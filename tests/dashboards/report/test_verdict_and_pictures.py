"""What a report shows at a glance: its verdict, the pictures, the conclusion about costs, a question."""

import pytest

from dashboards.charts import chart, plan_graph
from fleet.core.base.ids import SubtaskId
from fleet.core.state.status import Status
from fleet.read.report_data import PlanNode
from tests.fleet.core.pretend import ids


def nodes(prefix: str, count: int, *needs: str, area: str | None = None) -> list[PlanNode]:
    return [node(f"{prefix}{n}", *needs, area=area, status="merged" if n % 2 else "ready") for n in range(count)]


def node(id_: str, *needs: str, area: str | None = None, status: Status = "running") -> PlanNode:
    return PlanNode(SubtaskId(id_), "t", ids(*needs), SubtaskId(area) if area is not None else None, status)


def test_in_a_large_plan_an_area_stands_for_its_subtasks() -> None:
    area = node("shop", "base0")
    inner = node("inner", area="shop")
    plan = [nodes("base", 2), [area], [*nodes("s", 60, area="shop"), inner], nodes("deep", 10, area="inner")]
    it = plan_graph(plan, lambda id_: f'/x?"{id_}"')
    picture = it.drawn
    assert picture.count("<a href=") == 3
    assert "shop" in picture
    assert ">35/71</text>" in picture
    assert picture.count('class="edge"') == 1
    assert 'href="/x?&#34;shop&#34;"' in picture
    assert it.summary.startswith("74 subtasks in 4 waves")
    assert "1 area, with the number of landed subtasks in each" in it.summary
    small = plan_graph([nodes("base", 2), [area], nodes("s", 3, area="shop")])
    assert small.drawn.count('class="box"') == 6


def test_a_plan_of_thousands_is_a_bar_for_each_wave_or_a_few() -> None:
    plan = [nodes(f"w{wave}-", 100) for wave in range(100)]
    picture = plan_graph(plan).drawn
    assert len(picture) < 20_000
    assert "waves 1 to 3" in picture
    assert "150 landed, 150 to come" in picture
    assert "waves 100 to 100" not in picture
    assert picture.count("<rect") == 2 * 34


@pytest.mark.parametrize(("peak", "end"), [(116, 120), (1, 1), (0.3, 0.3), (43, 50), (999, 1000)])
def test_an_axis_ends_soon_after_its_peak(peak: float, end: float) -> None:
    assert f">{end:g}</text>" in chart("t", "s", {"a": [(0.0, peak)]}, 10).drawn
