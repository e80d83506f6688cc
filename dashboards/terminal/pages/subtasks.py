"""The map of all subtasks: one sign each, or one for several where there are too many."""

from collections.abc import Iterator
from itertools import groupby

from dashboards.runs.run_follower import WatchedRun
from dashboards.runs.status_marks import MARKS
from dashboards.runs.subtask_map import SubtaskMap, subtask_map
from dashboards.terminal.widgets.lines import Line, PageOptions, Rows, flowed
from dashboards.text.formats import count, counted
from fleet.core.state.state import RunState

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
