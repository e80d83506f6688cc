"""Incidents: what went wrong, open ones first, each with how it recovered or who has to help."""

from collections.abc import Iterator

from dashboards.figures import rate
from dashboards.stories import story_lines
from dashboards.summary import HOW
from dashboards.terminal.lines import Column, Line, Page, Span, Wish, head, joined, matches, row, shown, widths
from dashboards.terminal.words import age, clock_in
from fleet.core.incidents import Incident, Rate, rate_of, rates_of
from fleet.core.standing import standings
from fleet.core.state import RunState
from fleet.core.stories import story_of, story_view

COLUMNS = (
    Column("state", 15),
    Column("since", 7, spare=3, to_right=True),
    Column("subtask", 16, grows=1),
    Column("class", 11, spare=2),
    Column("what happened", 16, grows=5),
    Column("how", 18, spare=1),
    Column("took", 6, spare=4, to_right=True),
)


def recovery(state: RunState) -> str:
    found = rate_of(state.incidents)
    return rate(found.recovered, found.closed)


def incidents_page(state: RunState, now: float, wish: Wish) -> Page:
    ordered = sorted(state.incidents, key=lambda incident: (incident.closed_at is not None, -incident.opened_at))
    if wish.needle:
        ordered = [i for i in ordered if matches(wish.needle, i.subtask, i.kind, *(t.summary for t in i.troubles))]
    where = standings(state, now)
    above = list(_rates(state)) if not wish.needle else []

    def draw(index: int, width: int) -> Line:
        if index < len(above):
            return joined(above[index], width)
        incident = ordered[index - len(above)]
        return row(COLUMNS, widths(COLUMNS, width), _cells(state, incident, now, where.get(incident.subtask, "")))

    return Page(
        keys=[*("" for _ in above), *(f"i{incident.number}:{incident.subtask}" for incident in ordered)],
        draw=draw,
        head=lambda width: head(COLUMNS, widths(COLUMNS, width)),
        empty="nothing matches" if wish.needle else "nothing has failed",
    )


def _rates(state: RunState) -> Iterator[list[Line]]:
    """How many recovered by class, and by what was chosen: as many as fit, each with how many closed."""
    found = rates_of(state.incidents)
    by_class: dict[str, Rate] = {kind: one for kind, (_, one) in found.by_class.items() if one.closed}
    by_strategy = {HOW[name]: one for name, one in found.by_strategy.items()}
    for title, rates in (("recovered by class ", by_class), ("recovered by remedy", by_strategy)):
        if rates:
            parts: list[Line] = [((title, "dim"),)]
            parts += [((f"{name} ", "dim"), (rate(one.recovered, one.closed), "bold")) for name, one in rates.items()]
            yield parts


def _cells(state: RunState, incident: Incident, now: float, where: str) -> tuple[Span, ...]:
    last = incident.troubles[-1]
    more = f" (+{len(incident.troubles) - 1} before)" if len(incident.troubles) > 1 else ""
    return (
        _state(incident),
        (clock_in(state, incident.opened_at), "dim"),
        (shown(incident.subtask), ""),
        (incident.kind, ""),
        (shown(last.summary, 300) + more, ""),
        (_how(incident, where), "dim"),
        (age((incident.closed_at or now) - incident.opened_at), "dim"),
    )


def _state(incident: Incident) -> Span:
    if incident.closed_at is None:
        return "✘ open", "bad"
    return ("✔ recovered", "good") if incident.recovered else ("? not recovered", "warn")


def _how(incident: Incident, where: str) -> str:
    if incident.closed_at is None:
        return f"now {where}"
    if incident.strategy == "human" and not incident.recovered:
        return "a human was asked"
    return HOW[incident.strategy]


def story_text(state: RunState, number: int, now: float) -> tuple[str, str] | None:
    """The story of an incident: its title, and what is to be read."""
    incident = next((one for one in state.incidents if one.number == number), None)
    if incident is None:
        return None
    title, *lines = story_lines(story_view(story_of(state, incident, now)))
    return title, "\n".join(lines)
