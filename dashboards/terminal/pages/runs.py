"""All runs at once: what each is at, and which of them needs somebody."""

from collections.abc import Sequence
from pathlib import PurePath

from dashboards.figures import money
from dashboards.terminal.lines import Column, Line, Page, Span, Wish, head, matches, row, shown, widths
from dashboards.terminal.overview import needs
from dashboards.terminal.watched import Watched
from dashboards.terminal.words import age, run_span, to_land
from fleet.core.standing import standings

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


def runs_page(runs: Sequence[Watched], wish: Wish) -> Page:
    if wish.needle:
        runs = [run for run in runs if matches(wish.needle, run.feed.run, run.state.goal if run.state else "")]

    def draw(index: int, width: int) -> Line:
        return row(COLUMNS, widths(COLUMNS, width), _cells(runs[index]))

    return Page(
        keys=[f"run:{run.feed.run}" for run in runs],
        draw=draw,
        head=lambda width: head(COLUMNS, widths(COLUMNS, width)),
        empty="nothing matches" if wish.needle else "there are no runs",
    )


def _cells(run: Watched) -> tuple[Span, ...]:
    state = run.state
    if state is None:
        return ((shown(run.feed.run), ""), ("… is read", "dim"), *((("", ""),) * (len(COLUMNS) - 2)))
    now = run.now
    asked = len(needs(run, state, now))
    total = to_land(state, standings(state, now))
    return (
        (shown(state.run), ""),
        run_span(state, now, alive=run.alive),
        (f"! {asked}" if asked else "", "warn"),
        (f"{state.commits}/{total}", ""),
        (str(state.working()) if run.alive else "", ""),
        (money(state.spent.dollars), "dim"),
        (age(state.seconds(now)), "dim"),
        (shown(PurePath(state.repository).name), "dim"),
        (shown(state.goal), "dim"),
    )
