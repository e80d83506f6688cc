"""The merge queue: queued subtasks, running batches, the suspects of a red batch, and past batches."""

from collections.abc import Sequence

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
from fleet.read.follow import FollowedRun
from fleet.read.incident_view import IncidentRow, RateCounts, summaries_of
from fleet.read.queue import OpenBatch, PastBatch, QueueEntry, ResultBranchView
from fleet.read.run import RunSnapshot

NAMES = 6


def landing_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    queue = snapshot.queue
    rows: list[tuple[str, Line]] = [("", _summary(snapshot.result)), BLANK]
    rows.append(("", heading(f"TESTING {len(queue.testing)}", "merged onto the branch tip, with all checks")))
    rows += [("", _batch(batch, snapshot.now)) for batch in queue.testing] or [("", (("  nothing", "dim"),))]
    if queue.suspects:
        suspects = f"{counted(len(queue.suspects), 'suspect')}: {_names(queue.suspects)}"
        rows += [BLANK, ("", heading("BISECTING"))]
        rows.append(("", ((f"  ✘ a merged tree is red: {suspects}", "bad"),)))
        rows += [("", ((f"      {safe(command, limit=120)}", "dim"),)) for command in queue.red_checks]
    rows += [BLANK, ("", heading(f"QUEUE {len(queue.entries)}", "verified, in landing order"))]
    rows += [(f"s:{entry.subtask}", _entry(place, entry)) for place, entry in enumerate(queue.entries, 1)]
    rows += [BLANK, ("", heading("BATCHES", f"{queue.batches} formed, {queue.red} red, latest first"))]
    past = list(reversed(run.batches))
    if options.needle:
        rows += [(_key(batch), _past_batch(snapshot, batch)) for batch in past]
        rows = [(key, line) for key, line in rows if key and matches(options.needle, *(text for text, _ in line))]
        return page_of(rows, empty="No matches.")
    return Page(
        keys=[*(key for key, _ in rows), *(_key(batch) for batch in past)],
        draw=lambda index, _: rows[index][1] if index < len(rows) else _past_batch(snapshot, past[index - len(rows)]),
    )


def _key(batch: PastBatch) -> str:
    """The subtask that Enter opens: the first one sent back, or else the first one landed."""
    return f"s:{batch.subtasks[0]}" if batch.subtasks else ""


def _summary(result: ResultBranchView) -> Line:
    branch = safe(result.branch)
    published = f"{branch} is at {safe(result.published)[:7]}" if result.published else f"{branch} does not exist yet"
    behind = " (update pending)" if result.is_behind else ""
    return ((f"{result.commits} landed{untested(result.commits, result.tested)}; {published}{behind}", ""),)


def _names(ids: Sequence[str]) -> str:
    names = ", ".join(safe(id_, limit=40) for id_ in ids[:NAMES])
    return names if len(ids) <= NAMES else f"{names} and {len(ids) - NAMES} more"


def _batch(batch: OpenBatch, now: float) -> Line:
    size = "alone" if batch.is_alone else counted(len(batch.members), "candidate")
    return (
        (f"  ◐ batch {batch.number:<4} ", "check"),
        (f"{age(now - batch.formed_at):>6}  {size}: {_names(batch.members)}", ""),
    )


def _entry(place: int, entry: QueueEntry) -> Line:
    mark, tone = ("✘", "bad") if entry.is_suspect else ("▲", "queue")
    return (
        (f"  {mark} {place:>3}  ", tone),
        (f"{safe(entry.subtask, limit=40):<24} ", ""),
        (safe(entry.title), "dim"),
    )


def _past_batch(snapshot: RunSnapshot, batch: PastBatch) -> Line:
    if batch.landed:
        more = f"; {len(batch.sent_back)} sent back" if batch.sent_back else ""
        mark, text = ("✔ ", "good"), f"landed {_names(batch.landed)}{more}"
    elif batch.sent_back:
        reasons = [f"{safe(out.subtask, limit=40)} ({safe(out.why, limit=60)})" for out in batch.sent_back[:3]]
        mark, text = ("✘ ", "bad"), f"sent back {', '.join(reasons)}"
    elif batch.is_red:
        mark, text = ("✘ ", "bad"), f"red, suspects: {_names(batch.suspects)}"
    else:
        mark, text = ("· ", "dim"), "superseded"
    size = f"batch {batch.number:<4} {len(batch.members):>3} tested in {age(batch.seconds):<6} "
    return ((f"  {clock_in(snapshot, batch.at)}  ", "dim"), mark, (size, ""), (text, ""))


# ---- incidents -------------------------------------------------------------------------------------------------------
# Incidents with their failure and outcome, open ones first.


COLUMNS = (
    Column("state", 15),
    Column("since", 7, spare=3, to_right=True),
    Column("subtask", 16, grows=1),
    Column("class", 11, spare=2),
    Column("what happened", 16, grows=5),
    Column("how", 18, spare=1),
    Column("took", 6, spare=4, to_right=True),
)


def incidents_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    del run
    incidents = [
        incident
        for incident in snapshot.incidents()
        if matches(options.needle, incident.subtask, incident.kind, *summaries_of(incident))
    ]
    return table_page(
        COLUMNS,
        [f"i{incident.number}:{incident.subtask}" for incident in incidents],
        lambda index: _cells(snapshot, incidents[index]),
        above=() if options.needle else _rates(snapshot, options.width),
        empty=options.no_rows("No failures."),
    )


def _rates(snapshot: RunSnapshot, width: int) -> Rows:
    """Recovery rates by class and by remedy, lowest first, with the number of closed incidents."""
    counts = snapshot.incident_counts()
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


def _cells(snapshot: RunSnapshot, incident: IncidentRow) -> Sequence[Span]:
    summaries = summaries_of(incident)
    earlier = len(summaries) - 1
    more = f" (+{earlier} earlier)" if earlier else ""
    if incident.closed_at is None:
        mark, how = ("✘ open", "bad"), f"now {snapshot.status_of(incident.subtask)}"
    else:
        mark = ("✔ recovered", "good") if incident.recovered else ("✘ not recovered", "bad")
        how = outcome(incident.recovered, incident.strategy)
    return (
        mark,
        (clock_in(snapshot, incident.opened_at), "dim"),
        (safe(incident.subtask), ""),
        (incident.kind, ""),
        (safe(summaries[-1], limit=300) + more, ""),
        (how, "dim"),
        (age((incident.closed_at or snapshot.now) - incident.opened_at), "dim"),
    )


def story_text(snapshot: RunSnapshot, number: int) -> tuple[str, str]:
    """The title and the text of the story of an incident."""
    title, *lines = story_lines(snapshot.incident(number))
    return title, "\n".join(lines)
