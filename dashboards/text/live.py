"""A run on a terminal while it goes on: a few lines that change, above them the events as they happen."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dashboards.figures import duration, money, rate
from dashboards.safe import safe
from dashboards.words import waiting_line
from fleet.core.incidents import rate_of
from fleet.core.outages import in_words
from fleet.core.plan import PLANNER
from fleet.core.standing import standings
from fleet.core.state import Attempt, RunState
from fleet.core.views import run_word

AGENTS = 8  # rows of agents; the rest is a number
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class LiveScreen:
    """Events scroll by; the state stays at the bottom. All text from outside is shown as text, never as markup."""

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
        """Without the lines that change, so that a person can be asked something."""
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
        where = standings(state, now)
        total = sum(where[id_] not in {"split", "dropped"} for id_ in where if id_ not in state.areas)
        spinner = SPINNER[self._ticks % len(SPINNER)]
        simulated = "  simulated model" if state.simulated else ""
        unsafe = "  NO SANDBOX" if state.sandbox == "none" else ""
        head = Text(f"{spinner} {safe(state.run)}  {run_word(state, now, alive=True)}{simulated}{unsafe}", style="bold")
        bar = Table.grid(padding=(0, 1))
        landed = Text(f"{state.done} of {total} landed")
        bar.add_row(ProgressBar(total=max(1, total), completed=state.done, width=40), landed)
        rows: list[RenderableType] = [head, bar, Text(_figures(state, now)), *self._agents(state, now)]
        for scope, outage in state.service.items():
            waits = waiting_line(in_words(scope, outage), now - outage.since)
            rows.append(Text(f"! {waits}", style="bold yellow"))
        if questions := state.open_questions():
            texts = (f"? {q.id}: {safe(q.text, limit=240)}  →  fleet answer {q.id} TEXT" for q in questions[:3])
            rows += [Text(text, style="bold yellow") for text in texts]
        return Group(*rows)

    def _agents(self, state: RunState, now: float) -> Iterable[Text]:
        planning = state.planning
        if planning.open is not None:
            yield _row(f"  {'planner':<18} {safe(planning.why)}  {safe(planning.doing, limit=60)}", style="cyan")
        busy = list(state.underway())
        for subtask, attempt in busy[:AGENTS]:
            doing = f"turn {attempt.turn}  {safe(attempt.doing, limit=60)}" if attempt.turn else ""
            age = duration(now - attempt.started_at)
            yield _row(f"  {safe(subtask.id, limit=18):<18} {_phase(attempt):<9}{age:>6}  {doing}")
        if len(busy) > AGENTS:
            yield Text(f"  … and {len(busy) - AGENTS} more")


def _row(text: str, *, style: str = "") -> Text:
    """One line, whatever the width of the terminal."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _phase(attempt: Attempt) -> str:
    if attempt.worker == PLANNER and attempt.commit is None:
        return "planning"
    if attempt.commit is not None:
        return "landing" if attempt.verified else "checking"
    return "working" if attempt.working else "starting"


def _figures(state: RunState, now: float) -> str:
    recovered = rate_of(state.incidents)
    return (
        f"agents {state.working()}/{state.policy.workers}   recovered {rate(recovered.recovered, recovered.closed)}   "
        f"{money(state.spent.dollars)}   {duration(state.seconds(now))}"
    )
