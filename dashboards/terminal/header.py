"""The lines above every page: the goal, how it is, how far, what it costs, and what needs you."""

from collections.abc import Sequence

from rich.cells import cell_len

from dashboards.figures import money
from dashboards.terminal.incidents import recovery
from dashboards.terminal.lines import Line, Span, bar, clipped, joined, shown, sparkline
from dashboards.terminal.overview import Need, needs
from dashboards.terminal.watched import Watched, commits_an_hour, landings
from dashboards.terminal.words import age, run_span, to_land
from fleet.core.standing import standings
from fleet.core.state import RunState

BINS = 16
LEAST = 16  # cells that this run's own needs keep
QUIET_S = 60.0


def header_lines(
    watched: Watched, state: RunState, width: int, *, note: str = "", others: Sequence[str] = ()
) -> list[Line]:
    """Four lines of at most `width` cells."""
    now = watched.now
    asked = needs(watched, state, now)
    goal = shown(state.plan.goal or state.goal, width)
    return [
        _first(watched, state, now, width, note),
        ((goal, "dim"),),
        _figures(watched, state, now, width),
        _with_others(_needs(asked), others, width),
    ]


def _first(watched: Watched, state: RunState, now: float, width: int, note: str) -> Line:
    left: Line = (("fleet ", "dim"), (f"{shown(state.run, 40)}  ", "bold"), run_span(state, now, alive=watched.alive))
    quiet = now - state.last_at
    if watched.alive and quiet > QUIET_S and not state.ended and not note:
        left += ((f"  quiet for {age(quiet)}", "warn"),)
    marks = [(age(state.seconds(now)), "")]
    if note:
        marks.append((note, "accent"))
    if state.sandbox == "none":
        marks.append(("NO SANDBOX", "bad"))
    if state.simulated:
        marks.append(("simulated model", "warn"))
    used = sum(cell_len(text) for text, _ in left)
    kept = _that_fit(marks, width - used - 2)
    right = joined([(mark,) for mark in reversed(kept)], width, "  ")
    used += sum(cell_len(text) for text, _ in right)
    return (*left, (" " * max(2, width - used), ""), *right)


def _that_fit(marks: list[Span], width: int) -> list[Span]:
    """The first ones; what they say matters in this order."""
    kept: list[Span] = []
    for mark in marks:
        width -= cell_len(mark[0]) + 2
        if width >= -2:  # noqa: PLR2004 - the gap before the first
            kept.append(mark)
    return kept


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


def _with_others(line: Line, others: Sequence[str], width: int) -> Line:
    """Other runs that need somebody stand at the right, whatever this one needs."""
    if not others:
        return line
    which = shown(others[0], 24) if len(others) == 1 else f"{len(others)} other runs"
    said: Line = ((f"  {which} need{'s' * (len(others) == 1)} you", "warn"), ("  → 0", "bold"))
    room = width - sum(cell_len(text) for text, _ in said)
    return (*clipped(line, room), *said) if room > LEAST else line


def _needs(asked: list[Need]) -> Line:
    if not asked:
        return (("nothing needs you", "dim"),)
    first = asked[0]
    more = f"  (and {len(asked) - 1} more)" if len(asked) > 1 else ""
    return ((f"NEEDS YOU {len(asked)}: ", "warn"), (f"{first.text}", "warn"), (f"  → {first.how}{more}", "bold"))
