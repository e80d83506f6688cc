"""The overview: what needs you, the agents, the merge queue, the latest events. And the page of all events."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import PurePath

from dashboards.run_follower import Event, FollowedRun, WatchedRun
from dashboards.subtask_map import MARKS, Span, age, marked, needs
from dashboards.terminal.lines import (
    BLANK,
    Column,
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
    table_page,
    table_row,
    wrapped,
)
from dashboards.terminal.pages.agents_page import agent_cells, agent_key, agents, columns_of
from dashboards.text.formats import clock_in, count, counted, money
from dashboards.text.safe import safe, safe_goal
from dashboards.text.summary import next_commands, total_lines
from fleet.core.policy.landing import is_full
from fleet.core.state.state import RunState
from fleet.core.state.status import is_refused, progress
from fleet.read.base_view import base_view
from fleet.read.nodes_view import waiting_for_machines
from fleet.read.run_view import run_word
from fleet.read.state_map import SubtaskMap, subtask_map

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


# ---- ending ----------------------------------------------------------------------------------------------------------
# The overview of a run that has ended: how, its figures, and how to take the result.


def ending_rows(state: RunState, now: float, width: int) -> Rows:
    is_good, word = state.ending == "landed", "refused" if is_refused(state) else state.ending
    rows: list[tuple[str, Line]] = [
        ("take", ((f"ENDED {'✔' if is_good else '✘'} {word}", "good" if is_good else "bad"),))
    ]
    rows += [("", ((line, ""),)) for line in wrapped(f"  {safe(state.ending_why, limit=600)}", width - 4)]
    if is_refused(state):
        base = base_view(state)
        lines = [*(f"  | {safe(line, limit=200)}" for line in base.causes), *(f"  → {line}" for line in base.advice)]
        return rows + [("", ((part, ""),)) for line in lines for part in wrapped(safe(line, limit=600), width - 4)]
    commands = next_commands(state)
    longest = max(len(command) for command, _ in commands)
    take = " (m does it)" if state.published else ""
    rows += [BLANK, ("", heading("NEXT STEPS", f"take the result{take}" if take else ""))]
    rows += [("", ((f"  {command:<{longest}}  ", "bold"), (purpose, "dim"))) for command, purpose in commands]
    rows += [BLANK, ("", heading("TOTALS", "7 shows the costs, 5 the failures"))]
    return rows + [("", ((line, ""),)) for line in total_lines(state, now)]


# ---- subtasks --------------------------------------------------------------------------------------------------------
# The map of all subtasks: one sign each, or one for several where there are too many.


LOW = 12  # rows: below this height there is no room for it
HIGH = 34  # rows: from this height on, the map may take more lines
LINES, MORE_LINES = 2, 5
WORDS = {"asks": "waiting for you", "gone": "split or dropped"}


def map_rows(run: WatchedRun, state: RunState, options: PageOptions) -> Rows:
    if not state.subtasks or options.height < LOW:
        return ()
    width = max(20, options.width - 2)
    room = width * (MORE_LINES if options.height >= HIGH else LINES)
    shown = subtask_map(state, room, alive=run.alive)
    each = f"  (each sign: {counted(shown.each, 'subtask')}, the most urgent state)" if shown.each > 1 else ""
    title: Line = (("SUBTASKS", "head"), (" ", ""), (count(len(state.subtasks)), "bold"), (each, "dim"))
    rows = [("", line) for line in flowed([title, *_legend(shown)], options.width, "  ")]
    for first in range(0, len(shown.cells), width):
        line = [(" ", "")]
        for name, cells in groupby(shown.cells[first : first + width]):
            sign, tone = MARKS[name]
            line.append((sign * len(list(cells)), tone))
        rows.append(("", tuple(line)))
    return rows


def _legend(shown: SubtaskMap) -> Iterator[Line]:
    for name, number in shown.counts.items():
        sign, tone = MARKS[name]
        yield ((f"{sign} ", tone), (f"{count(number)} {WORDS.get(name, name)}", ""))


# ---- runs ------------------------------------------------------------------------------------------------------------
# All runs: the state of each, and how many things it needs from a person.


COLUMNS = (
    Column("run", 22, grows=2),
    Column("state", 12, grows=1),
    Column("needs", 6, spare=1),
    Column("landed", 8, to_right=True),
    Column("agents", 7, spare=2, to_right=True),
    Column("cost", 8, spare=3, to_right=True),
    Column("time", 6, spare=4, to_right=True),
    Column("repository", 12, spare=5),
    Column("goal", 10, spare=6, grows=4),
)


def runs_page(runs: Sequence[FollowedRun], options: PageOptions) -> Page:
    runs = [run for run in runs if matches(options.needle, run.feed.run, run.state.goal if run.state else "")]
    return table_page(
        COLUMNS,
        [f"run:{run.feed.run}" for run in runs],
        lambda index: _cells(runs[index]),
        empty=options.no_rows("No runs."),
    )


def _cells(run: FollowedRun) -> Sequence[Span]:
    state = run.state
    if state is None or not run.loaded:
        return ((safe(run.feed.run), ""), ("loading…", "dim"), *((("", ""),) * (len(COLUMNS) - 2)))
    count, landed = len(needs(run)), progress(state)
    return (
        (safe(state.run), ""),
        ("rehearsal", "bold") if state.rehearsal is not None else marked(run_word(state, run.now, alive=run.alive)),
        (f"! {count}" if count else "", "attention"),
        (f"{landed.done}/{landed.total}", ""),
        (str(run.working) if run.alive else "", ""),
        (money(state.spent.dollars), "dim"),
        (age(state.seconds(run.now)), "dim"),
        (safe(PurePath(state.repository).name), "dim"),
        (safe_goal(state.goal, limit=300), "dim"),
    )
