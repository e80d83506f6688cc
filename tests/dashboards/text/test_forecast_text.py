"""Forecasts in words: a range, what it rests on, and how far off it was."""

from dashboards.text.forecast_text import estimate_lines, forecast_line, forecast_lines, outcome_lines
from dashboards.text.plans.plan_review import review_lines
from dashboards.text.summary import summary_lines
from dashboards.text.tables import status_lines
from fleet.core.plans.limits import Policy
from fleet.core.state import facts as f
from fleet.core.state.facts import Expectation, Forecast
from fleet.core.views.planning.estimate_view import earlier_runs, estimate_view
from fleet.core.views.run.forecast_view import AmountView, ForecastView
from fleet.core.views.run.run_view import status_view
from tests.fleet.core.story import Story, plan_of

MADE = Forecast(
    dollars=Expectation(median=1.5, p90=2.25),
    planner=0.25,
    minutes=Expectation(median=10, p90=20.5),
    subtasks=2,
    workers=4,
    attempts=12,
    calls=3,
)
VIEW = ForecastView(
    plan_version=1,
    subtasks=2,
    added=0,
    workers=4,
    dollars=AmountView(1.5, 2.25, was=1.8, off=0.2, within=True),
    minutes=AmountView(10.0, 20.5, was=35.0, off=2.5, within=False),
    attempts=0,
    calls=0,
    unpriced=0,
    areas=0,
)


def test_a_forecast_has_its_ranges_and_what_they_rest_on() -> None:
    assert forecast_lines(MADE) == [
        "Forecast: $1.50 expected, nine of ten runs at most $2.25, the planner's $0.2500 included",
        "          10 min 00 s expected, nine of ten runs at most 20 min 30 s with 4 workers at once",
        "          (rests on 12 earlier attempts and 3 planner calls)",
    ]
    assert forecast_line(MADE).startswith("forecast: $1.50 expected, nine of ten runs at most $2.25; 10 min")


def test_what_is_unknown_or_left_out_is_said() -> None:
    without = {"dollars": None, "attempts": 0, "calls": 0, "unpriced": 2, "areas": 1}
    text = "\n".join(forecast_lines(MADE.model_copy(update=without)))
    assert "cost unknown, no model has a price" in text
    assert "rests on assumptions alone; 2 subtasks without a known price; 1 area left out" in text


def test_how_far_off_it_was_is_said_plainly() -> None:
    cost, time = outcome_lines(VIEW)
    assert cost == "$1.50, nine of ten runs at most $2.25; it cost $1.80, 20% more"
    assert time.endswith("it took 35 min 00 s, 3.5 times as much: BEYOND what nine of ten runs need")


def test_a_plan_that_grew_is_named_as_a_reason() -> None:
    grown = ForecastView(
        plan_version=1,
        subtasks=2,
        added=3,
        workers=4,
        dollars=None,
        minutes=AmountView(10.0, 20.0, was=9.99, off=-0.001, within=True),
        attempts=0,
        calls=0,
        unpriced=0,
        areas=0,
    )
    time, plan = outcome_lines(grown)
    assert time.endswith("it took 9 min 59 s, as much")
    assert plan == "the plan grew since, from 2 subtasks to 5"


def test_an_epic_without_history_needs_a_plan() -> None:
    first, *rest = estimate_lines(estimate_view(None, None, budget=5.0))
    assert first == "Forecast: unknown: there is no plan yet, and no earlier run of this repository to compare with"
    assert "fleet run --plan plan.toml --estimate" in rest[-1]


def test_an_epic_is_expected_to_be_as_earlier_ones() -> None:
    view = estimate_view(None, earlier_runs([(3, 1.0, 10.0), (5, 4.0, 40.0), (30, 2.0, 20.0)]), budget=1.0)
    text = "\n".join(estimate_lines(view))
    assert "Forecast: $2.00 expected" in text
    assert "20 min 00 s expected" in text
    assert "(as 3 earlier runs here, half of which had at most 5 subtasks)" in text
    assert "Budget:   $1.00 is less than nine of ten such runs may cost" in text


def test_an_earlier_run_without_a_price_makes_the_cost_unknown() -> None:
    earlier = earlier_runs([(3, None, 10.0)])
    assert earlier is not None
    assert earlier.dollars is None
    assert "10 min 00 s expected" in estimate_lines(estimate_view(None, earlier, budget=None))[0]


def test_a_budget_is_compared_with_the_90th_percentile() -> None:
    assert estimate_view(MADE, None, budget=2.25).is_enough
    assert estimate_view(MADE, None, budget=2.24).is_enough is False
    assert estimate_view(MADE, None, budget=None).is_enough is None
    assert estimate_lines(estimate_view(MADE, None, budget=3.0)) == forecast_lines(MADE)


def test_a_person_who_reviews_a_plan_sees_its_forecast() -> None:
    story = Story(Policy(review=True, reviewing="human"), plan_of("a"))
    story.happens(f.PlanForecast(at=0.0, version=story.state.plan.version, forecast=MADE))
    assert forecast_lines(MADE)[0] in review_lines(story.state)


def test_the_summary_of_a_run_has_its_forecast_and_how_far_off_it_was() -> None:
    story = Story(plan=plan_of("a"))
    story.happens(f.PlanForecast(at=0.0, version=1, forecast=MADE))
    story.model_is_called("a", dollars=3.0)
    story.landed("a")
    lines = summary_lines(story.state, story.now)
    assert any(line.startswith("  forecast  ") and "it cost $3.00, 2.0 times as much" in line for line in lines)
    status = status_lines(status_view(story.state, story.now, alive=False))
    assert any(line.startswith("  forecast   $1.50") and "2.0 times as much" in line for line in status)
