"""All runs: the state of each, and how many things it needs from a person."""

from collections.abc import Sequence
from pathlib import PurePath

from dashboards.runs.needs import needs
from dashboards.runs.run_follower import FollowedRun
from dashboards.runs.status_marks import Span, age, marked
from dashboards.terminal.widgets.lines import Column, Page, PageOptions, matches, table_page
from dashboards.text.formats import money
from dashboards.text.safe import safe, safe_goal
from fleet.core.state.status import progress
from fleet.core.views.run.run_view import run_word

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
