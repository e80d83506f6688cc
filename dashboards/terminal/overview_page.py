"""The overview: pending requests, agents, the merge queue and recent events. Also the list of all runs."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import PurePath

from dashboards.subtask_map import MARKS, Span, age, marked, needs_at
from dashboards.terminal.agents_page import agent_cells, agent_key, agents, columns_of
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    Rows,
    clipped,
    event_line,
    flowed,
    heading,
    matches,
    page_of,
    table_head,
    table_page,
    table_row,
    wrapped,
)
from dashboards.text.formats import count, counted, money
from dashboards.text.safe import safe, safe_goal
from dashboards.text.summary import next_commands, total_lines
from fleet.read.follow import Event, FollowedRun
from fleet.read.plan_graph import SubtaskMap
from fleet.read.queue import MergeQueue
from fleet.read.run import RunSnapshot
from fleet.read.run_view import RunEnding

LEAST = 3  # agents, and events
WIDE = 150  # cells: minimum width for agents and events side by side


def overview_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    rows: list[tuple[str, Line]] = []
    needed, ending = needs_at(run, snapshot), snapshot.ending
    for need in needed[: max(1, options.height // 6)]:
        rows.append((need.key, ((f"! {need.text}", "attention"), (f"  → {need.how}", "bold"))))
        rows += [("", line) for line in flowed([((f"    {part}", ""),) for part in need.more], options.width, "")]
    if needed:
        rows.append(BLANK)
    if ending is not None:
        rows += [*ending_rows(snapshot, ending, options.width), BLANK]
    rows += [*map_rows(snapshot, options), BLANK]
    latest = (event for event in reversed(run.events) if not event.is_routine and matches(options.needle, event.text))
    events = list(islice(latest, max(LEAST, options.height)))
    if options.width >= WIDE:
        rows += _side_by_side(run, snapshot, options, options.height - len(rows), events)
        return page_of(rows, beside=options.width * 3 // 5)
    room = max(2 * LEAST, options.height - len(rows) - 5)
    if ending is None:
        rows += _agents(run, snapshot, options, max(LEAST, room * 3 // 5 if events else room), options.width)
        rows += [BLANK, ("", _landing(snapshot.queue)), BLANK]
    return page_of([*rows, *_events(snapshot, events, max(LEAST, options.height - len(rows) - 1))])


def _side_by_side(
    run: FollowedRun, snapshot: RunSnapshot, options: PageOptions, height: int, events: Sequence[Event]
) -> Rows:
    """The layout of a wide screen: agents on the left, events on the right."""
    height, width = max(2 * LEAST, height), options.width * 3 // 5
    left = list(_agents(run, snapshot, options, height - 4, width))
    left += [BLANK] * (height - 1 - len(left)) + [("", _landing(snapshot.queue))]
    right = [line for _, line in _events(snapshot, events, height - 1)]
    right += [()] * (height - len(right))
    return [
        (key, (*clipped(line, width), (" │ ", "dim"), *beside))
        for (key, line), beside in zip(left[:height], right, strict=True)
    ]


def _agents(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions, most: int, width: int) -> Rows:
    busy, figures = agents(snapshot, options), snapshot.figures
    more = f"{len(busy) - most} more: press 2" if len(busy) > most else ""
    title = ("", heading(f"AGENTS {figures.working} of {figures.workers}", more))
    if not busy:
        return [title, ("", ((f"  {_idle(run, snapshot)}", "dim"),))]
    columns = columns_of(snapshot)
    rows = [(agent_key(agent), table_row(columns, width, agent_cells(snapshot, agent))) for agent in busy[:most]]
    return [title, ("", table_head(columns, width)), *rows]


def _idle(run: FollowedRun, snapshot: RunSnapshot) -> str:
    """Why no agent is running, with the next action."""
    if snapshot.ending is not None:
        return "The run has ended."
    if needed := needs_at(run, snapshot):
        return f"No agents running: {needed[0].how}."
    waiting = snapshot.waiting_for_machines
    if waiting:
        id_, why = next(iter(waiting.items()))
        more = f" (and {len(waiting) - 1} more: press 8)" if len(waiting) > 1 else ""
        return f"No agents running. {safe(id_)} {safe(why)}{more}."
    return "No agents running."


def _landing(landing: MergeQueue) -> Line:
    parts = [f"{len(landing.entries)} queued", f"testing {counted(len(landing.testing), 'batch')}"]
    if landing.is_full:
        parts.append("queue full: new attempts wait until some have landed")
    if landing.suspects:
        parts.append(f"red: {counted(len(landing.suspects), 'suspect')}")
    return (
        ("LANDING", "head"),
        ("  ", ""),
        (", ".join(parts), "bad" if landing.suspects else ""),
    )


def _events(snapshot: RunSnapshot, events: Sequence[Event], most: int) -> Rows:
    rows = [(event.key, event_line(snapshot, event, more=True)) for event in events[:most]]
    return [("", heading("RECENT EVENTS", "newest first")), *rows]


# ---- ending ----------------------------------------------------------------------------------------------------------
# The overview of an ended run: its outcome, its figures, and how to merge the result.


def ending_rows(snapshot: RunSnapshot, ending: RunEnding, width: int) -> Rows:
    sign, tone = ("✔", "good") if ending.is_good else ("✘", "bad")
    rows: list[tuple[str, Line]] = [("take", ((f"ENDED {sign} {ending.word}", tone),))]
    rows += [("", ((line, ""),)) for line in wrapped(f"  {safe(ending.why, limit=600)}", width - 4)]
    if (base := ending.refusal) is not None:
        lines = [*(f"  | {safe(line, limit=200)}" for line in base.causes), *(f"  → {line}" for line in base.advice)]
        return rows + [("", ((part, ""),)) for line in lines for part in wrapped(safe(line, limit=600), width - 4)]
    commands = next_commands(snapshot)
    longest = max(len(command) for command, _ in commands)
    take = " (press m)" if snapshot.figures.is_published else ""
    rows += [BLANK, ("", heading("NEXT STEPS", f"merge the result{take}" if take else ""))]
    rows += [("", ((f"  {command:<{longest}}  ", "bold"), (purpose, "dim"))) for command, purpose in commands]
    rows += [BLANK, ("", heading("TOTALS", "press 7 for costs, 5 for incidents"))]
    return rows + [("", ((line, ""),)) for line in total_lines(snapshot)]


# ---- subtasks --------------------------------------------------------------------------------------------------------
# The map of all subtasks: one symbol each, or one for several in a large plan.


LOW = 12  # rows: minimum height for the map
HIGH = 34  # rows: minimum height for a larger map
LINES, MORE_LINES = 2, 5
WORDS = {"asks": "waiting for you", "gone": "split or dropped"}


def map_rows(snapshot: RunSnapshot, options: PageOptions) -> Rows:
    if not snapshot.figures.subtasks or options.height < LOW:
        return ()
    width = max(20, options.width - 2)
    room = width * (MORE_LINES if options.height >= HIGH else LINES)
    shown = snapshot.subtask_map(room)
    each = f"  (each symbol: {counted(shown.each, 'subtask')}, with the most urgent state)" if shown.each > 1 else ""
    title: Line = (("SUBTASKS", "head"), (" ", ""), (count(snapshot.figures.subtasks), "bold"), (each, "dim"))
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
# All runs, with their state and the number of pending requests.


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
    if options.needle:
        runs = [run for run in runs if matches(options.needle, run.feed.run, _goal(run))]
    return table_page(
        COLUMNS,
        [f"run:{run.feed.run}" for run in runs],
        lambda index: _cells(runs[index]),
        empty=options.no_rows("No runs."),
    )


def _goal(run: FollowedRun) -> str:
    snapshot = run.snapshot
    return snapshot.figures.goal if snapshot is not None else ""


def _cells(run: FollowedRun) -> Sequence[Span]:
    snapshot = run.snapshot
    if snapshot is None or not run.loaded:
        return ((safe(run.feed.run), ""), ("loading…", "dim"), *((("", ""),) * (len(COLUMNS) - 2)))
    figures, count = snapshot.figures, len(needs_at(run, snapshot))
    return (
        (safe(snapshot.run), ""),
        ("rehearsal", "bold") if figures.rehearsal else marked(snapshot.word),
        (f"! {count}" if count else "", "attention"),
        (f"{figures.landed.done}/{figures.landed.total}", ""),
        (str(figures.working) if run.alive else "", ""),
        (money(figures.spent.dollars), "dim"),
        (age(figures.seconds), "dim"),
        (safe(PurePath(figures.repository).name), "dim"),
        (safe_goal(figures.goal, limit=300), "dim"),
    )
