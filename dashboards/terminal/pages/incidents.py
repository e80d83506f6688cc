"""Incidents: open ones first, each with its failure and how it recovered."""

from collections.abc import Sequence

from dashboards.runs.run_follower import WatchedRun
from dashboards.runs.status_marks import Span, age
from dashboards.terminal.widgets.lines import Column, Line, Page, PageOptions, Rows, flowed, matches, table_page
from dashboards.text.formats import clock_in, rate
from dashboards.text.incident_text import STRATEGIES, outcome, story_lines
from dashboards.text.safe import safe
from fleet.core.state.incidents import Incident
from fleet.core.state.state import RunState
from fleet.core.state.status import status_of
from fleet.core.views.run.incident_view import RateCounts, incident_counts, incident_view

COLUMNS = (
    Column("state", 15),
    Column("since", 7, spare=3, to_right=True),
    Column("subtask", 16, grows=1),
    Column("class", 11, spare=2),
    Column("what happened", 16, grows=5),
    Column("how", 18, spare=1),
    Column("took", 6, spare=4, to_right=True),
)


def incidents_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    incidents = [
        incident
        for incident in sorted(state.incidents, key=lambda each: (each.closed_at is not None, -each.opened_at))
        if matches(options.needle, incident.subtask, incident.kind, *(t.summary for t in incident.troubles))
    ]

    def cells(index: int) -> Sequence[Span]:
        incident = incidents[index]
        return _cells(state, incident, run.now)

    return table_page(
        COLUMNS,
        [f"i{incident.number}:{incident.subtask}" for incident in incidents],
        cells,
        above=() if options.needle else _rates(state, options.width),
        empty=options.no_rows("No failures."),
    )


def _rates(state: RunState, width: int) -> Rows:
    """The share that recovered, by class and by remedy, the lowest first, each with the number of closed incidents."""
    counts = incident_counts(state.incidents)
    by_class: dict[str, RateCounts] = {kind: row for kind, row in counts.by_class.items() if row.closed}
    by_remedy = {STRATEGIES[name]: row for name, row in counts.by_strategy.items()}
    rows: list[tuple[str, Line]] = []
    for title, group in (("recovered by class ", by_class), ("recovered by remedy", by_remedy)):
        worst_first = sorted(group.items(), key=lambda item: item[1].recovered / max(1, item[1].closed))
        parts: list[Line] = [
            ((f"{name} ", "dim"), (rate(each.recovered, each.closed), "bold")) for name, each in worst_first
        ]
        for place, line in enumerate(flowed(parts, width - len(title) - 3)):
            rows.append(("", ((f"{title if not place else '':{len(title)}}   ", "dim"), *line)))
    return rows


def _cells(state: RunState, incident: Incident, now: float) -> Sequence[Span]:
    earlier = len(incident.troubles) - 1
    more = f" (+{earlier} before)" if earlier else ""
    if incident.closed_at is None:
        mark, how = ("✘ open", "bad"), f"now {status_of(state, incident.subtask, now)}"
    else:
        mark = ("✔ recovered", "good") if incident.recovered else ("✘ not recovered", "bad")
        how = outcome(incident.recovered, incident.strategy)
    return (
        mark,
        (clock_in(state, incident.opened_at), "dim"),
        (safe(incident.subtask), ""),
        (incident.kind, ""),
        (safe(incident.troubles[-1].summary, limit=300) + more, ""),
        (how, "dim"),
        (age((incident.closed_at or now) - incident.opened_at), "dim"),
    )


def story_text(state: RunState, number: int, now: float) -> tuple[str, str]:
    """The story of an incident: its title and its text."""
    incident = next(incident for incident in state.incidents if incident.number == number)
    title, *lines = story_lines(incident_view(state, incident, now))
    return title, "\n".join(lines)
