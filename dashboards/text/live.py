"""A running run on a terminal: events scroll by, and a few lines below them show its current state."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dashboards.text.event_text import waiting_line
from dashboards.text.formats import activity_of, duration, kind_mark, money, rate
from dashboards.text.safe import safe
from fleet.core.policy.outages import outage_text
from fleet.core.state.state import RunState
from fleet.core.state.status import phase, progress
from fleet.core.views.run.estimate_view import remaining_view
from fleet.core.views.run.incident_view import rate_of
from fleet.core.views.run.question_view import reply_command
from fleet.core.views.run.run_view import run_word

AGENTS = 8  # rows of agents; the others are counted
QUESTIONS = 3
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveScreen:
    """The lines at the bottom of the terminal. Text from outside is shown as text, never as markup."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True, auto_refresh=False)
        self._ticks = 0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Hides the lines that change while a person is asked something."""
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def event(self, line: str) -> None:
        self._live.console.print(Text(line), soft_wrap=True)

    def show(self, state: RunState, now: float) -> None:
        self._ticks += 1
        self._live.update(self._screen(state, now), refresh=True)

    def _screen(self, state: RunState, now: float) -> RenderableType:
        landed = progress(state)
        spinner = SPINNER[self._ticks % len(SPINNER)]
        mark = kind_mark(state)
        unsafe = "  NO SANDBOX" if state.sandbox == "none" else ""
        head = Text(f"{spinner} {safe(state.run)}  {run_word(state, now, alive=True)}{mark}{unsafe}", style="bold")
        bar = Table.grid(padding=(0, 1))
        bar.add_row(ProgressBar(total=max(1, landed.total), completed=landed.done, width=40), Text(f"{landed} landed"))
        rows: list[RenderableType] = [head, bar, Text(_totals(state, now)), *self._agents(state, now)]
        for scope, outage in state.service.items():
            waits = waiting_line(outage_text(scope, outage), now - outage.since)
            rows.append(Text(f"! {waits}", style="bold yellow"))
        for q in state.open_questions()[:QUESTIONS]:
            text = f"? {q.id}: {safe(q.text, limit=240)}  →  {safe(reply_command(q))}"
            rows.append(Text(text, style="bold yellow"))
        return Group(*rows)

    def _agents(self, state: RunState, now: float) -> Iterable[Text]:
        planning = state.planning
        if planning.open is not None:
            text = f"  {'planner':<18} {safe(planning.why)}  {safe(activity_of(planning), limit=100)}"
            yield _one_line(text, style="cyan")
        busy = list(state.underway())
        for subtask, attempt in busy[:AGENTS]:
            activity = f"turn {attempt.turn}  {safe(activity_of(attempt), limit=100)}" if attempt.turn else ""
            age = duration(now - attempt.started_at)
            yield _one_line(f"  {safe(subtask.id, limit=18):<18} {phase(attempt):<9}{age:>6}  {activity}")
        if len(busy) > AGENTS:
            yield Text(f"  … and {len(busy) - AGENTS} more")


def _one_line(text: str, *, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _totals(state: RunState, now: float) -> str:
    recovered, left = rate_of(state.incidents), remaining_view(state, now, alive=True)
    soon = f", about {duration(left.seconds)} left" if left is not None else ""
    return (
        f"agents {state.working()}/{state.policy.workers}   recovered {rate(recovered.recovered, recovered.closed)}   "
        f"{money(state.spent.dollars)}   {duration(state.seconds(now))}{soon}"
    )
