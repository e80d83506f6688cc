"""The merge queue: what waits, what is being tested, the suspects of a red batch, and past batches."""

from collections.abc import Sequence

from dashboards.run_follower import TestedBatch, WatchedRun
from dashboards.subtask_map import Span, age
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    Rows,
    flowed,
    heading,
    matches,
    page_of,
    table_page,
)
from dashboards.text.formats import clock_in, counted, rate, untested
from dashboards.text.incident_text import STRATEGIES, outcome, story_lines
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import BatchTested
from fleet.core.state.state import Batch, Incident, RunState
from fleet.core.state.status import status_of
from fleet.read.incident_view import RateCounts, incident_counts, incident_view
from fleet.read.run_view import commits_tested

NAMES = 6


def landing_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    landing = state.landing
    rows: list[tuple[str, Line]] = [("", _summary(state)), BLANK]
    rows.append(("", heading(f"TESTING {len(landing.open_batches)}", "merged onto the tip of the branch, all checks")))
    rows += [("", _batch(batch, run.now)) for batch in landing.open_batches] or [("", (("  nothing", "dim"),))]
    if landing.suspects:
        suspects = f"{counted(len(landing.suspects), 'suspect')}: {_names(landing.suspects)}"
        rows += [BLANK, ("", heading("BISECTING"))]
        rows.append(("", ((f"  ✘ a merged tree is red; {suspects}", "bad"),)))
        failed = [check for check in landing.suspicion if not check.passed]
        rows += [("", ((f"      {safe(check.command, limit=120)}", "dim"),)) for check in failed]
    rows += [BLANK, ("", heading(f"QUEUE {len(landing.queue)}", "verified, in landing order"))]
    rows += [(f"s:{id_}", _entry(state, place, id_)) for place, id_ in enumerate(landing.queue, 1)]
    rows += [BLANK, ("", heading("BATCHES", f"{landing.batches} formed, {landing.red} red; latest first"))]
    past = list(reversed(run.batches))
    if options.needle:
        rows += [(_key(tested.result), _tested_batch(state, tested)) for tested in past]
        rows = [(key, line) for key, line in rows if key and matches(options.needle, *(text for text, _ in line))]
        return page_of(rows, empty="No matches.")
    return Page(
        keys=[*(key for key, _ in rows), *(_key(tested.result) for tested in past)],
        draw=lambda index, _: rows[index][1] if index < len(rows) else _tested_batch(state, past[index - len(rows)]),
    )


def _key(result: BatchTested) -> str:
    """The subtask that opens on Enter: the first one sent back, or else the first one landed."""
    ids = [*(out.subtask for out in result.ejected), *(member.subtask for member in result.landed)]
    return f"s:{ids[0]}" if ids else ""


def _summary(state: RunState) -> Line:
    branch = safe(state.result_branch)
    published = f"{branch} is at {safe(state.published)[:7]}" if state.published else f"{branch} does not exist yet"
    behind = "" if state.published == state.tip or not state.commits else ", to be updated"
    return ((f"{state.commits} landed{untested(state.commits, commits_tested(state))}; {published}{behind}", ""),)


def _names(ids: Sequence[str]) -> str:
    names = ", ".join(safe(id_, limit=40) for id_ in ids[:NAMES])
    return names if len(ids) <= NAMES else f"{names} and {len(ids) - NAMES} more"


def _batch(batch: Batch, now: float) -> Line:
    names = [member.subtask for member in batch.members]
    size = "alone" if batch.alone else counted(len(names), "candidate")
    return (
        (f"  ◐ batch {batch.number:<4} ", "check"),
        (f"{age(now - batch.formed_at):>6}  {size}: {_names(names)}", ""),
    )


def _entry(state: RunState, place: int, id_: SubtaskId) -> Line:
    spec = state.specs.get(id_)
    mark, tone = ("✘", "bad") if id_ in state.landing.suspects else ("▲", "queue")
    return (
        (f"  {mark} {place:>3}  ", tone),
        (f"{safe(id_, limit=40):<24} ", ""),
        (safe(spec.title) if spec else "", "dim"),
    )


def _tested_batch(state: RunState, tested: TestedBatch) -> Line:
    result = tested.result
    members = [member.subtask for member in tested.batch.members] if tested.batch is not None else []
    formed_at = tested.batch.formed_at if tested.batch is not None else result.at
    if result.landed:
        more = f"; {len(result.ejected)} sent back" if result.ejected else ""
        mark, text = ("✔ ", "good"), f"landed {_names([member.subtask for member in result.landed])}{more}"
    elif result.ejected:
        reasons = [
            f"{safe(out.subtask, limit=40)} ({safe(out.failure.summary, limit=60)})" for out in result.ejected[:3]
        ]
        mark, text = ("✘ ", "bad"), f"sent back {', '.join(reasons)}"
    elif result.red:
        mark, text = ("✘ ", "bad"), f"red; suspects: {_names(result.suspects or members)}"
    else:
        mark, text = ("· ", "dim"), "superseded"
    size = f"batch {result.number:<4} {len(members):>3} tested in {age(result.at - formed_at):<6} "
    return ((f"  {clock_in(state, result.at)}  ", "dim"), mark, (size, ""), (text, ""))


# ---- incidents -------------------------------------------------------------------------------------------------------
# Incidents: open ones first, each with its failure and how it recovered.


COLUMNS = (
    Column("state", 15),
    Column("since", 7, spare=3, to_right=True),
    Column("subtask", 16, grows=1),
    Column("class", 11, spare=2),
    Column("what happened", 16, grows=5),
    Column("how", 18, spare=1),
    Column("took", 6, spare=4, to_right=True),
)


def incidents_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    incidents = [
        incident
        for incident in sorted(state.incidents, key=lambda each: (each.closed_at is not None, -each.opened_at))
        if matches(options.needle, incident.subtask, incident.kind, *(t.summary for t in incident.troubles))
    ]

    def cells(index: int) -> Sequence[Span]:
        incident = incidents[index]
        return _cells(state, incident, run.now)

    return table_page(
        COLUMNS,
        [f"i{incident.number}:{incident.subtask}" for incident in incidents],
        cells,
        above=() if options.needle else _rates(state, options.width),
        empty=options.no_rows("No failures."),
    )


def _rates(state: RunState, width: int) -> Rows:
    """The share that recovered, by class and by remedy, the lowest first, each with the number of closed incidents."""
    counts = incident_counts(state.incidents)
    by_class: dict[str, RateCounts] = {kind: row for kind, row in counts.by_class.items() if row.closed}
    by_remedy = {STRATEGIES[name]: row for name, row in counts.by_strategy.items()}
    rows: list[tuple[str, Line]] = []
    for title, group in (("recovered by class ", by_class), ("recovered by remedy", by_remedy)):
        worst_first = sorted(group.items(), key=lambda item: item[1].recovered / max(1, item[1].closed))
        parts: list[Line] = [
            ((f"{name} ", "dim"), (rate(each.recovered, each.closed), "bold")) for name, each in worst_first
        ]
        for place, line in enumerate(flowed(parts, width - len(title) - 3)):
            rows.append(("", ((f"{title if not place else '':{len(title)}}   ", "dim"), *line)))
    return rows


def _cells(state: RunState, incident: Incident, now: float) -> Sequence[Span]:
    earlier = len(incident.troubles) - 1
    more = f" (+{earlier} before)" if earlier else ""
    if incident.closed_at is None:
        mark, how = ("✘ open", "bad"), f"now {status_of(state, incident.subtask, now)}"
    else:
        mark = ("✔ recovered", "good") if incident.recovered else ("✘ not recovered", "bad")
        how = outcome(incident.recovered, incident.strategy)
    return (
        mark,
        (clock_in(state, incident.opened_at), "dim"),
        (safe(incident.subtask), ""),
        (incident.kind, ""),
        (safe(incident.troubles[-1].summary, limit=300) + more, ""),
        (how, "dim"),
        (age((incident.closed_at or now) - incident.opened_at), "dim"),
    )


def story_text(state: RunState, number: int, now: float) -> tuple[str, str]:
    """The story of an incident: its title and its text."""
    incident = next(incident for incident in state.incidents if incident.number == number)
    title, *lines = story_lines(incident_view(state, incident, now))
    return title, "\n".join(lines)
