"""What is left of a run, in time and dollars: from what landed so far."""

import pytest

from dashboards.text.tables import status_lines
from fleet.core.base.usage import Usage
from fleet.core.state import facts as f
from fleet.core.state.facts import Expectation, Forecast
from fleet.core.views.run.remaining_view import LEAST, remaining_view
from fleet.core.views.run.run_view import status_view
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def story() -> Story:
    """Four of ten have landed after 40 seconds, for 40 cents; the planner cost a dollar."""
    story = Story(plan=plan_of(*(f"part{number}" for number in range(10))))
    spent = f.ModelCalled(at=0, role="planner", model="m", usage=Usage(), dollars=1.0, seconds=1)
    story.happens(spent)
    for number in range(4):
        story.time_passes(10)
        story.model_is_called(f"part{number}", 0.10)
        story.landed(f"part{number}")
    return story


def test_the_rest_goes_as_what_has_landed(story: Story) -> None:
    left = remaining_view(story.state, story.now, alive=True)
    assert left is not None
    assert (left.landed, left.subtasks) == (4, 10)
    assert left.seconds == pytest.approx(60)
    assert left.dollars == pytest.approx(2.0)  # the planner is paid once


def test_an_unknown_price_makes_the_cost_unknown(story: Story) -> None:
    story.model_is_called("part5", None)
    left = remaining_view(story.state, story.now, alive=True)
    assert left is not None
    assert left.dollars is None


def test_little_says_nothing() -> None:
    story = Story(plan=plan_of("a", "b", "c", "d"))
    for id_ in ("a", "b", "c")[: LEAST - 1]:
        story.time_passes(1)
        story.landed(id_)
    assert remaining_view(story.state, story.now, alive=True) is None


def test_nothing_is_left_of_a_run_that_ended_or_has_no_process(story: Story) -> None:
    assert remaining_view(story.state, story.now, alive=False) is None
    story.happens(f.CancelRequested(at=story.now, by="ada"))
    assert remaining_view(story.state, story.now, alive=True) is None


def test_a_status_says_what_is_left_beside_what_was_expected(story: Story) -> None:
    expected = Expectation(median=1.0, p90=3.0)
    made = Forecast(dollars=expected, minutes=expected, subtasks=10, workers=4)
    story.happens(f.PlanForecast(at=story.now, version=1, forecast=made))
    view = status_view(story.state, story.now, alive=True)
    assert view.forecast is not None
    assert view.forecast.dollars is not None
    assert [view.forecast.dollars.likely, view.forecast.minutes.likely] == pytest.approx([2.0, 100 / 60])
    text = "\n".join(status_lines(status_view(story.state, story.now, alive=True)))
    assert "cost       $1.40, about $2.00 in all" in text
    assert "time       40 s, about 1 min 00 s left" in text
    assert "left" not in "\n".join(status_lines(status_view(story.state, story.now, alive=False)))
