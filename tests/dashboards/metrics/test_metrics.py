"""The metrics that facts add up to, and how they are exposed to Prometheus."""

import json
from collections.abc import Iterator
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dashboards.metrics.catalog import LABELS, METRICS, MOST_NAMES, MOST_RUNS, OTHER, WINDOWS, Metric
from dashboards.metrics.counters import Names, Recent, Tally
from dashboards.metrics.gauges import RunsSnapshot
from dashboards.metrics.server import Exposition
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.state.state import RunState
from fleet.ports.agents import CallGauges, RemainingQuota
from fleet.read.follow import Step
from fleet.read.run import RunSnapshot
from fleet.read.run_view import RunStatus
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.story import Story, connected, plan_of

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series_of(metric: Metric) -> tuple[str, ...]:
    """All names that a query may use."""
    if metric.kind == "histogram":
        return tuple(f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
    return (metric.series,)


def counted(facts: list[f.Fact], tally: Tally | None = None) -> tuple[Tally, RunState]:
    tally, state = tally or Tally(), None
    for fact in facts:
        before, state = state, evolve(state, fact)
        tally.take(Step(before, fact, state))
    assert state is not None
    return tally, state


def page(tally: Tally, picture: RunsSnapshot) -> str:
    return Exposition(tally, lambda: None, lambda: picture).scrape("")[0].decode()


def read(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, dict(sample.labels), sample.value


def value(text: str, name: str, **labels: str) -> float:
    values = [number for series, its, number in read(text) if series == name and labels.items() <= its.items()]
    assert values, f"{name}{labels} is missing"
    return sum(values)


def scraped(story: Story, *, alive: bool = True, now: float | None = None, calls: CallGauges | None = None) -> str:
    tally, state = counted(story.facts)
    moment = story.now if now is None else now
    open_ = [] if state.ended else [RunSnapshot(state, moment, alive)]
    ended: dict[str, int] = {} if state.ending is None else {state.ending: 1}
    return page(tally, RunsSnapshot(now=moment, open=open_, ended=ended, calls=calls))


@pytest.fixture
def story() -> Story:
    """One subtask fails, recovers and lands; one lands at once; one is at work."""
    story = Story(Policy(workers=2, budget_dollars=1.0, max_retries=0), plan_of("api", "docs", "site needs api docs"))
    for id_ in ("api", "docs"):
        story.happens(f.WorkerStarted(at=story.now, subtask=id_, number=1))
    story.model_is_called("api", dollars=0.25)
    story.attempt_fails("api")
    story.time_passes(10)
    story.planner_answers(retry=[{"id": "api", "guidance": "try harder"}])
    story.model_is_called("api", dollars=None)
    story.time_passes(5)
    story.landed("api", "docs")
    return story


def test_a_late_fact_about_an_ended_attempt_is_not_counted(story: Story) -> None:
    late = f.AttemptFailed(at=story.now, subtask="docs", number=1, failure=f.Failure(kind="crash", summary="late"))
    story.happens(late)
    text = scraped(story)
    assert value(text, "fleet_incidents_opened_total", **{"class": "crash"}) == 0
    assert not any(labels.get("outcome") == "crash" for _, labels, _ in read(text))


def test_windows_end_now(story: Story) -> None:
    text = scraped(story, now=story.now + WINDOWS["1h"] + 1)
    assert value(text, "fleet_recent_commits", window="1h") == 0
    assert value(text, "fleet_recent_commits", window="1d") == 2
    assert value(text, "fleet_recent_incidents", window="1w", outcome="recovered") == 1


def test_what_is_older_than_every_window_is_forgotten() -> None:
    recent = Recent()
    for at in (5.0, 1.0, 2e6):
        recent.add(at)
    assert recent.within(10, now=2e6) == 1
    assert recent.times == [2e6]


def test_only_a_run_that_should_progress_has_a_time_of_its_last_fact() -> None:
    asks = Story(plan=plan_of("api", failure_action="ask"))
    asks.attempt_fails("api")
    text = scraped(asks)
    assert value(text, "fleet_run_needs_human", run="r") == 1
    assert "fleet_run_last_fact_timestamp_seconds{" not in text
    works = Story(plan=plan_of("api"))
    assert value(scraped(works), "fleet_run_last_fact_timestamp_seconds", run="r") == 0
    assert "fleet_run_last_fact_timestamp_seconds{" not in scraped(works, alive=False)


def test_live_metrics_are_served_only_by_the_process_that_knows_them(story: Story) -> None:
    assert "fleet_model_service_state" not in scraped(story)
    granted = (RemainingQuota("haiku", "input", limit_a_minute=1000, left=250),)
    text = scraped(story, calls=CallGauges(faults={"limit": 3}, underway=7, waiting=2, granted=granted))
    assert value(text, "fleet_model_rate_limit_remaining_ratio", family="haiku", limit="input") == 0.25
    assert value(text, "fleet_model_service_state", state="up") == 1
    assert value(text, "fleet_model_calls_in_flight") == 7
    assert value(text, "fleet_model_calls_waiting") == 2
    assert value(text, "fleet_model_faults_total", fault="limit") == 3
    shut = scraped(story, calls=CallGauges(shut={"": "down"}))
    assert value(shut, "fleet_model_service_state", state="down") == 1
    assert value(shut, "fleet_model_service_state", state="up") == 0


@pytest.mark.parametrize("seed", range(12))
def test_the_page_always_matches_the_catalogue(seed: int) -> None:
    pretend = Pretend(seed, Policy(settle_s=0, max_attempts=2))
    for _ in range(300):
        if pretend.state.ended:
            break
        pretend.step()
    tally, state = counted(pretend.facts)
    known = {name: metric for metric in METRICS.values() for name in series_of(metric)}
    for name, labels, _ in read(
        page(tally, RunsSnapshot(now=pretend.now, open=[RunSnapshot(state, pretend.now, alive=True)], ended={}))
    ):
        metric = known[name]
        assert set(labels) - {"le"} == set(metric.labels)
        for label in metric.labels:
            allowed = LABELS[label]
            assert isinstance(allowed, str) or labels[label] in allowed, (name, labels)
    closed = [incident for incident in state.incidents if incident.closed_at is not None]
    assert sum(tally.counters["fleet_incidents_closed"].values()) == len(closed)
    assert sum(tally.counters["fleet_incidents_opened"].values()) == len(state.incidents)
    assert tally.counters["fleet_commits_landed"][()] == state.commits


def test_names_from_outside_stay_few_and_plain() -> None:
    names = Names()
    given = [f"model-{number}" for number in range(3 * MOST_NAMES)]
    assert [names.of(name) for name in given][MOST_NAMES:] == [OTHER] * 2 * MOST_NAMES
    assert names.of("model-3") == "model-3"
    assert Names().of('x"} 1\nfleet_evil 1') == OTHER


def test_the_number_of_series_does_not_grow_with_the_work() -> None:
    def series(subtasks: int, runs: int) -> int:
        story = Story(Policy(workers=500), plan_of(*(f"task-{number}" for number in range(subtasks))))
        for id_ in story.state.plan.ids:
            fact = f.ModelCalled(
                at=0, role="worker", model=f"m-{id_}", usage=Usage(), dollars=0, seconds=1, subtask=id_, attempt=1
            )
            story.happens(f.WorkerStarted(at=0, subtask=id_, number=1), fact)
        story.landed(*story.state.plan.ids[:-1])
        tally, state = counted(story.facts)
        text = page(tally, RunsSnapshot(now=0, open=[RunSnapshot(state, 0, alive=True)] * runs, ended={}))
        assert "task-" not in text.replace("m-task-", "")
        return len({(name, *labels.items()) for name, labels, _ in read(text)})

    assert series(MOST_NAMES + 1, MOST_RUNS) == series(200, 3 * MOST_RUNS)


def test_metrics_have_names_as_prometheus_wants_them() -> None:
    for metric in METRICS.values():
        assert metric.name.startswith("fleet_")
        assert not metric.name.endswith("_total")
        assert metric.help.endswith(".")
        assert set(metric.labels) <= LABELS.keys()
        assert bool(metric.buckets) == (metric.kind == "histogram")


def test_work_that_a_relanding_began_with_is_counted_by_the_run_that_did_it_alone() -> None:
    told = Story(Policy(), plan_of("api"), relanding=f.Relanding(run="r", branch="main", since="s", result="e"))
    told.work_is_done("api")
    started, engine, *work = told.facts
    done_before = [fact for fact in work if isinstance(fact, f.AttemptFact)]
    began, _ = counted([started, *done_before, engine])
    did, _ = counted([started, engine, *done_before])
    assert sum(began.counters["fleet_attempts_started"].values()) == 0
    assert sum(did.counters["fleet_attempts_started"].values()) == 1


def test_series_whose_labels_are_known_begin_at_zero() -> None:
    """Or else `increase` would miss the first recovery of each kind."""
    text = page(Tally(), RunsSnapshot(now=0, open=[], ended={}))
    assert value(text, "fleet_recoveries_total", strategy="split") == 0
    assert value(text, "fleet_incidents_closed_total", **{"class": "too_complex"}, outcome="recovered") == 0
    assert value(text, "fleet_planner_failures_total", **{"class": "transient"}) == 0
    assert value(text, "fleet_batches_tested_total", result="failed") == 0


def test_a_series_of_a_new_name_begins_at_zero_too(story: Story) -> None:
    tally = Tally()
    exposition = Exposition(tally, lambda: None, lambda: RunsSnapshot(now=0, open=[], ended={}))
    exposition.catch_up()
    counted(story.facts, tally)
    first, second = (exposition.scrape("")[0].decode() for _ in range(2))
    for name in ("fleet_model_calls_total", "fleet_model_cost_dollars_total", "fleet_attempt_seconds_count"):
        assert value(first, name) == 0
        assert value(second, name) > 0


def test_a_tally_survives_being_written_and_read(story: Story) -> None:
    tally, _ = counted(story.facts)
    again = Tally.loaded(json.loads(json.dumps(tally.dump())))
    nothing = RunsSnapshot(now=story.now, open=[], ended={})
    assert page(again, nothing) == page(tally, nothing)


def test_a_tally_of_another_version_loads_as_far_as_it_is_known(story: Story) -> None:
    document = counted(story.facts)[0].dump()
    document["counters"] += [["fleet_forgotten", [], 3], ["fleet_recoveries", ["too", "many"], 3]]
    document["histograms"] += [["fleet_landing_seconds", [], [1.0], [1, 2], 3.0]]
    again = Tally.loaded(document)
    assert "fleet_forgotten" not in again.counters
    assert (
        again.histograms["fleet_landing_seconds"][()].sum
        == Tally.loaded(counted(story.facts)[0].dump()).histograms["fleet_landing_seconds"][()].sum
    )


def test_more_nodes_than_series_are_counted_together() -> None:
    story = Story(plan=plan_of("a"))
    for number in range(MOST_NAMES + 5):
        story.happens(connected(f"n{number:02}"))
    story.happens(f.NodeLost(at=0, node=f"n{MOST_NAMES + 4:02}", why="gone"))
    text = scraped(story)
    series = {labels["node"] for name, labels, _ in read(text) if name == "fleet_node_up"}
    assert len(series) == MOST_NAMES + 1
    assert value(text, "fleet_node_up", node=OTHER) == 0
    assert value(text, "fleet_nodes", state="connected") == MOST_NAMES + 4
    resting = scraped(story, alive=False)
    assert value(resting, "fleet_nodes", state="connected") == 0
    assert "fleet_node_up{" not in resting


def test_there_is_a_series_for_each_status_of_a_run() -> None:
    text = page(Tally(), RunsSnapshot(now=0, open=[], ended={}))
    assert {labels["state"] for name, labels, _ in read(text) if name == "fleet_runs"} == set(get_args(RunStatus))
