"""The overview: what needs you, the agents, the merge queue, the latest events. And the page of all events."""

from collections.abc import Sequence
from itertools import islice

from dashboards.runs.needs import needs
from dashboards.runs.run_follower import Event, WatchedRun
from dashboards.terminal.pages.agents import agent_cells, agent_key, agents, columns_of
from dashboards.terminal.pages.ending import ending_rows
from dashboards.terminal.pages.subtasks import map_rows
from dashboards.terminal.widgets.lines import (
    BLANK,
    Line,
    Page,
    PageOptions,
    Rows,
    clipped,
    flowed,
    heading,
    matches,
    page_of,
    table_head,
    table_row,
)
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe
from fleet.core.policy.landing import is_full
from fleet.core.state.state import RunState
from fleet.core.views.run.nodes_view import waiting_for_machines

LEAST = 3  # agents, and events
WIDE = 150  # cells: from this width on, agents and events are side by side


def overview_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    rows: list[tuple[str, Line]] = []
    needed = needs(run)
    for need in needed[: max(1, options.height // 6)]:
        rows.append((need.key, ((f"! {need.text}", "attention"), (f"  → {need.how}", "bold"))))
        rows += [("", line) for line in flowed([((f"    {part}", ""),) for part in need.more], options.width, "")]
    if needed:
        rows.append(BLANK)
    if state.ended:
        rows += [*ending_rows(state, run.now, options.width), BLANK]
    rows += [*map_rows(run, state, options), BLANK]
    latest = (event for event in reversed(run.events) if not event.is_routine and matches(options.needle, event.text))
    events = list(islice(latest, max(LEAST, options.height)))
    if options.width >= WIDE:
        rows += _side_by_side(run, state, options, options.height - len(rows), events)
        return page_of(rows, beside=options.width * 3 // 5)
    room = max(2 * LEAST, options.height - len(rows) - 5)
    if not state.ended:
        rows += _agents(run, state, options, max(LEAST, room * 3 // 5 if events else room), options.width)
        rows += [BLANK, ("", _landing(state)), BLANK]
    return page_of([*rows, *_events(state, events, max(LEAST, options.height - len(rows) - 1))])


def _side_by_side(run: WatchedRun, state: RunState, options: PageOptions, height: int, events: Sequence[Event]) -> Rows:
    """On a wide screen: agents at the left, events at the right."""
    height, width = max(2 * LEAST, height), options.width * 3 // 5
    left = list(_agents(run, state, options, height - 4, width))
    left += [BLANK] * (height - 1 - len(left)) + [("", _landing(state))]
    right = [line for _, line in _events(state, events, height - 1)]
    right += [()] * (height - len(right))
    return [
        (key, (*clipped(line, width), (" │ ", "dim"), *beside))
        for (key, line), beside in zip(left[:height], right, strict=True)
    ]


def _agents(run: WatchedRun, state: RunState, options: PageOptions, most: int, width: int) -> Rows:
    busy = agents(run, state, options)
    more = f"{len(busy) - most} more rows: press 2" if len(busy) > most else ""
    title = ("", heading(f"AGENTS {run.working} of {state.policy.workers}", more))
    if not busy:
        return [title, ("", ((f"  {_idle(run, state)}", "dim"),))]
    columns = columns_of(state)
    rows = [(agent_key(agent), table_row(columns, width, agent_cells(state, agent, run.now))) for agent in busy[:most]]
    return [title, ("", table_head(columns, width)), *rows]


def _idle(run: WatchedRun, state: RunState) -> str:
    """Why no agent is at work, and what to do about it."""
    if state.ended:
        return "The run has ended."
    if needed := needs(run):
        return f"No agents running. {needed[0].how}."
    waiting = waiting_for_machines(state, run.now)
    if waiting:
        id_, why = next(iter(waiting.items()))
        more = f" (and {len(waiting) - 1} more: press 8)" if len(waiting) > 1 else ""
        return f"No agents running. {safe(id_)} {safe(why)}{more}."
    return "No agents running."


def _landing(state: RunState) -> Line:
    landing = state.landing
    parts = [f"{len(landing.queue)} queued", f"testing {counted(len(landing.open_batches), 'batch')}"]
    if is_full(state):
        parts.append("full: no new attempt starts before some have landed")
    if landing.suspects:
        parts.append(f"red: {counted(len(landing.suspects), 'suspect')}")
    return (
        ("LANDING", "head"),
        ("  ", ""),
        (", ".join(parts), "bad" if landing.suspects else ""),
    )


def _events(state: RunState, events: Sequence[Event], most: int) -> Rows:
    rows = [(event.key, event_line(state, event, more=True)) for event in events[:most]]
    return [("", heading("RECENT EVENTS", "newest first")), *rows]


def event_line(state: RunState, event: Event, *, more: bool = False) -> Line:
    """An event; with `more`, how many lines of it are left out."""
    rest: Line = ((f"  (+{counted(event.more, 'line')}: press 6)", "dim"),) if more and event.more else ()
    return ((f"{clock_in(state, event.at)}  ", "dim"), (event.text, event.tone), *rest)


def events_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    """All events, the newest at the end."""
    events = list(run.events)
    if options.needle:
        events = [event for event in events if matches(options.needle, event.text)]
    return Page(
        keys=[event.key for event in events],
        draw=lambda index, _: event_line(state, events[index]),
        empty=options.no_rows("No events yet."),
        tail=True,
    )
