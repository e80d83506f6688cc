"""The lines above every page: the state, the goal, progress, cost, and what needs you."""

from collections.abc import Sequence

from dashboards.runs.needs import Need, needs
from dashboards.runs.replay import Replay
from dashboards.runs.run_follower import WatchedRun
from dashboards.runs.status_marks import Span, age, marked
from dashboards.terminal.widgets.lines import Line, bar, clipped, fit, joined, line_width
from dashboards.text.formats import money, rate, sparkline
from dashboards.text.safe import safe, safe_goal
from fleet.core.state.state import RunState
from fleet.core.state.status import progress
from fleet.core.views.run.estimate_view import remaining_view
from fleet.core.views.run.incident_view import rate_of
from fleet.core.views.run.run_view import run_word

BINS = 16
LEAST = 16  # cells kept for this run's own needs
NARROWEST_NAME = 12
QUIET_S = 60.0
CLOCKS_S = 10.0  # the time at work and the time since the start may differ so much


def header_lines(
    run: WatchedRun, state: RunState, width: int, *, others: Sequence[str] = (), replay: Replay | None = None
) -> list[Line]:
    """Four lines of at most `width` cells. `others` are the other runs that need a person. A replay has a bar."""
    note = "" if replay is None else str(replay)
    return [
        _first(run, state, width, note),
        _goal(state, width) if replay is None else scrub_bar(replay, width),
        _progress(run, state, width),
        _with_others(_needs(needs(run), width if not others else 0), others, width),
    ]


def scrub_bar(replay: Replay, width: int) -> Line:
    """The time of a replay from end to end: what was played, with a mark at each failure and each landing."""
    length = replay.length or 1.0
    cells: list[Span] = [("─", "dim")] * width

    def cell(place: float) -> int:
        return min(width - 1, int(place / length * width))

    here = cell(replay.position)
    cells[:here] = [("━", "accent")] * here
    for place in replay.landings:
        cells[cell(place)] = ("┿" if place <= replay.position else "┼", "good")
    for place in replay.failures:
        cells[cell(place)] = ("!", "bad")
    cells[here] = ("●", "bold")
    return tuple(cells)


def _goal(state: RunState, width: int) -> Line:
    return ((safe_goal(state.plan.goal or state.goal, limit=width), "dim"),)


def _first(run: WatchedRun, state: RunState, width: int, note: str) -> Line:
    """The name and the state at the left, marks at the right. A long name is cut before a mark is left out."""
    status: list[Span] = [marked(run_word(state, run.now, alive=run.alive))]
    quiet = run.now - state.last_at
    if run.alive and quiet > QUIET_S and not state.ended and not note:
        status.append((f"  quiet for {age(quiet)}", "bold"))
    marks: list[Line] = [((age(state.seconds(run.now)), ""),)]  # the most important one first
    if state.sandbox == "none":
        marks.append((("NO SANDBOX", "bad"),))
    if note:
        marks.append(((note, "accent"),))
    if state.rehearsal is not None:
        marks.append((("REHEARSAL", "bold"),))
    if state.simulated and (state.rehearsal is None or state.for_real):
        marks.append((("simulated model", "bold"),))
    room = width - line_width(tuple(status)) - sum(line_width(mark) + 2 for mark in marks) - len("fleet   ")
    name = safe(state.run, limit=max(NARROWEST_NAME, min(40, room)))
    passed = run.now - state.started_at
    if passed - state.seconds(run.now) > CLOCKS_S:  # events show the time since the start
        marks.append(((f"(started {age(passed)} ago)", "dim"),))
    left: Line = (("fleet ", "dim"), (f"{name}  ", "bold"), *status)
    right = joined(marks, width - line_width(left) - 2, "  ")[::-1]
    return (*left, (" " * max(2, width - line_width(left) - line_width(right)), ""), *right)


def _progress(run: WatchedRun, state: RunState, width: int) -> Line:
    landed = progress(state)
    size = 24 if width >= 120 else 12 if width >= 100 else 6  # noqa: PLR2004 - sizes of terminals
    incidents = rate_of(state.incidents)
    left = remaining_view(state, run.now, alive=run.alive)
    soon = f" ~{age(left.seconds)} left" if left is not None else ""
    whole = f" ~{money(left.dollars)} in all" if left is not None and left.dollars is not None else ""
    recovered: Line = (("recovered ", "dim"), (rate(incidents.recovered, incidents.closed), "bold"))
    parts: list[Line] = [
        (
            ("landed ", "dim"),
            (bar(landed.done, landed.total, size), "good"),
            (f" {landed.done}/{landed.total}", "bold"),
            (soon, ""),
        ),
        (("agents ", "dim"), (f"{run.working}/{state.policy.workers}", "bold")),
        (("spent ", "dim"), (_money(state), "bold"), (whole, "")),
        recovered if incidents.closed else (("no failures yet", "dim"),),
    ]
    speed = run.commits_an_hour()
    if speed is not None:
        parts.append(((f"{speed:,.0f} commits/h {sparkline(run.landings(BINS))}", ""),))
    return joined(parts, width)


def _money(state: RunState) -> str:
    dollars, minutes = state.policy.budget_dollars, state.policy.budget_minutes
    limit = f" of ${dollars:g}" if dollars is not None else ""
    until = f", {minutes:g} min" if minutes is not None else ""
    return f"{money(state.spent.dollars)}{limit}{until}"


def _needs(needed: Sequence[Need], width: int) -> Line:
    """What is needed first, as a bar over the whole line."""
    if not needed:
        return (("nothing needs you", "dim"),)
    first = needed[0]
    more = f"  (and {len(needed) - 1} more)" if len(needed) > 1 else ""
    how = f"  → {first.how}{more} "
    room = max(LEAST, width - len(how)) if width else 10**6
    text = f" NEEDS YOU {len(needed)}: {first.text}"
    return ((fit(text, room) if width else text, "alert"), (how, "alert"))


def _with_others(line: Line, others: Sequence[str], width: int) -> Line:
    """Add other runs that need a person at the right."""
    if not others:
        return line
    text = f"{safe(others[0], limit=24)} needs you" if len(others) == 1 else f"{len(others)} other runs need you"
    right: Line = ((f"  {text}", "attention"), ("  → 0", "bold"))
    room = width - line_width(right)
    return (*clipped(line, room), *right) if room > LEAST else line
