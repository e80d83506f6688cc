"""The lines above every page: the goal, how it is, how far, what it costs, and what needs you."""

from rich.cells import cell_len

from dashboards.figures import money
from dashboards.terminal.incidents import recovery
from dashboards.terminal.lines import Line, bar, joined, shown, sparkline
from dashboards.terminal.overview import Need, needs
from dashboards.terminal.watched import Watched, commits_an_hour, landings
from dashboards.terminal.words import age, run_span, to_land
from fleet.core.standing import standings
from fleet.core.state import RunState

BINS = 16
QUIET_S = 60.0


def header_lines(watched: Watched, state: RunState, width: int, *, note: str = "") -> list[Line]:
    """Four lines of at most `width` cells."""
    now = watched.now
    asked = needs(watched, state, now)
    goal = shown(state.plan.goal or state.goal, width)
    return [
        _first(watched, state, now, width, note),
        ((goal, "dim"),),
        _figures(watched, state, now, width),
        _needs(asked),
    ]


def _first(watched: Watched, state: RunState, now: float, width: int, note: str) -> Line:
    left: Line = (("fleet ", "dim"), (f"{shown(state.run, 40)}  ", "bold"), run_span(state, now, alive=watched.alive))
    quiet = now - state.last_at
    if watched.alive and quiet > QUIET_S and not state.ended and not note:
        left += ((f"  quiet for {age(quiet)}", "warn"),)
    marks: list[tuple[str, str]] = []
    if note:
        marks.append((note, "accent"))
    if state.simulated:
        marks.append(("simulated model", "warn"))
    if state.sandbox == "none":
        marks.append(("NO SANDBOX", "bad"))
    marks.append((age(state.seconds(now)), ""))
    right = joined([(mark,) for mark in marks], width, "  ")
    used = sum(cell_len(text) for text, _ in (*left, *right))
    return (*left, (" " * max(2, width - used), ""), *right)


def _figures(watched: Watched, state: RunState, now: float, width: int) -> Line:
    total = to_land(state, standings(state, now))
    size = 24 if width >= 120 else 12 if width >= 100 else 6  # noqa: PLR2004 - sizes of terminals
    speed = commits_an_hour(watched)
    hourly = "" if speed is None else f"{speed:,.0f} commits/h {sparkline(landings(watched, BINS))}"
    parts: list[Line] = [
        (("landed ", "dim"), (bar(state.commits, total, size), "good"), (f" {state.commits}/{total}", "bold")),
        (("agents ", "dim"), (f"{state.working() if watched.alive else 0}/{state.policy.workers}", "bold")),
        (("spent ", "dim"), (_money(state), "bold")),
        (("recovered ", "dim"), (recovery(state), "bold")),
    ]
    if hourly:
        parts.append(((hourly, ""),))
    return joined(parts, width)


def _money(state: RunState) -> str:
    limit = state.policy.budget_dollars
    minutes = state.policy.budget_minutes
    of = f" of ${limit:g}" if limit is not None else ""
    until = f", {minutes:g} min" if minutes is not None else ""
    return f"{money(state.spent.dollars)}{of}{until}"


def _needs(asked: list[Need]) -> Line:
    if not asked:
        return (("nothing needs you", "dim"),)
    first = asked[0]
    more = f"  (and {len(asked) - 1} more)" if len(asked) > 1 else ""
    return ((f"NEEDS YOU {len(asked)}: ", "warn"), (f"{first.text}", "warn"), (f"  → {first.how}{more}", "bold"))
