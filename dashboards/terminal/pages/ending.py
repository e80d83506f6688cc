"""The overview of a run that has ended: how, its figures, and how to take the result."""

from dashboards.terminal.widgets.lines import BLANK, Line, Rows, heading, wrapped
from dashboards.text.safe import safe
from dashboards.text.summary import next_commands, total_lines
from fleet.core.state.state import RunState
from fleet.core.state.status import is_refused
from fleet.core.views.run.base_view import base_view


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
