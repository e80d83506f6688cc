"""The pages of a run: overview, subtasks, replay, and a single subtask."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby, islice
from operator import or_
from typing import Literal, get_args
from urllib.parse import quote

from markupsafe import Markup

from dashboards.charts import DRAWN, plan_graph, wave_graph
from dashboards.state_history import Past, TranscriptTail, check_output
from dashboards.text.formats import figure_text
from dashboards.text.plan_review import estimate_rows
from dashboards.web.inbox import items_of
from dashboards.web.shared_runs import (
    NoSuchPageError,
    Reader,
    Shown,
    opened,
    opened_then,
    place,
    read_past,
    repository_name,
)
from fleet.core.base.ids import SubtaskId
from fleet.read.follow import FollowedRun
from fleet.read.plan_graph import State
from fleet.read.report_data import PlanNode
from fleet.read.run import RunSnapshot
from fleet.read.run_view import SubtaskStatus
from fleet.read.subtask_view import AttemptView

MOST_CELLS = 400  # linked cells of the map (a larger run shows plain symbols)
MOST_SIGNS = 1_500  # symbols of the map (in a larger run, each represents several subtasks)
AGENTS, EVENTS, INCIDENTS, QUEUE, ROWS = 50, 60, 20, 20, 200
BINS = 40  # in the chart of landings


TONE_OF_STATES: Mapping[str, tuple[State, ...]] = {
    "good": ("landed",),
    "busy": ("working", "planning", "checking", "landing", "starting"),
    "open": ("asks",),
    "bad": ("failed",),
    "rest": ("ready", "waiting", "gone"),
}
"""The tones of map states in the graph of a wide run."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A subtask on the map."""

    id: SubtaskId
    status: SubtaskStatus
    attempts: int


async def run_page(reader: Reader, name: str) -> Shown:
    run = await opened(reader, name)
    snapshot = run.snapshot
    if snapshot is None:
        return Shown(name, {"head": reader.part("loading", run=name)})
    return Shown(f"{name}: {snapshot.word}", dict(run_parts(reader, run, snapshot)))


def numbers_of(run: FollowedRun, snapshot: RunSnapshot) -> dict[str, object]:
    """The values for the figures of a run."""
    view, shown = snapshot.status, snapshot.shown("web")
    return {
        "view": view,
        "figures": [(each.title, figure_text(each, value), each.note_of(snapshot)) for each, value in shown],
        "an_hour": run.commits_an_hour(),
        "landings": _bars(run.landings(BINS)),
        "estimates": estimate_rows(view.estimates) if view.estimates else [],
    }


def run_parts(reader: Reader, run: FollowedRun, snapshot: RunSnapshot) -> Iterator[tuple[str, Markup]]:
    """The parts of the page of a run, now or at a past moment."""
    name, now, view = run.feed.run, snapshot.now, snapshot.status
    head = {
        "view": view,
        "figures": snapshot.figures,
        "repository": repository_name(run),
        "loaded": run.loaded,
        "pages": reader.pages,
    }
    yield "head", reader.part("run_head", **head)
    yield "needs", reader.part("needs", items=items_of(run), with_run=False, empty="")
    yield "numbers", reader.part("numbers", **numbers_of(run, snapshot))
    yield "map", _map(reader, run, snapshot)
    yield "graph", graph_part(reader, run, snapshot)
    agents = [agent for agent in snapshot.agents() if agent.subtask is not None]
    yield "agents", reader.part("agents", agents=agents[:AGENTS], more=max(0, len(agents) - AGENTS), run=name, now=now)
    landing = snapshot.queue
    tested = {id_ for batch in landing.testing for id_ in batch.members}
    queue = [entry.subtask for entry in landing.entries if entry.subtask not in tested]
    yield "landing", reader.part("landing", landing=landing, queue=queue, run=name, now=now, most=QUEUE)
    events = list(islice(reversed(run.events), EVENTS))
    yield "events", reader.part("events", events=events, snapshot=snapshot, run=name)
    incidents = sorted(snapshot.incidents(), key=lambda each: (each.closed_at is not None, -each.number))
    shown = [snapshot.incident(each.number) for each in incidents[:INCIDENTS]]
    yield "incidents", reader.part("incidents", incidents=shown, total=len(incidents), run=name)


def _bars(counts: Sequence[int]) -> list[tuple[int, int]]:
    """The position and the height (of 24) of each bar."""
    top = max(counts, default=0)
    return [(place, round(count / top * 24)) for place, count in enumerate(counts)] if top else []


def _is_wide(snapshot: RunSnapshot) -> bool:
    """Whether there are too many subtasks to show each of them. The page is then drawn from sets."""
    return snapshot.figures.subtasks > DRAWN and not snapshot.has_areas


def _wave_counts(run: FollowedRun, snapshot: RunSnapshot) -> list[Counter[str]]:
    """The number of subtasks by wave and tone, computed from sets."""
    order, sets = run.derive("sets", snapshot.plan, snapshot.wave_sets), snapshot.state_sets
    tones = {tone: reduce(or_, (sets[name] for name in names)) for tone, names in TONE_OF_STATES.items()}
    return [Counter({tone: (wave & chosen).bit_count() for tone, chosen in tones.items()}) for wave in order]


def graph_part(reader: Reader, run: FollowedRun, snapshot: RunSnapshot) -> Markup:
    """The plan as a graph. Empty for a plan without dependencies."""
    if _is_wide(snapshot):
        return reader.part("graph", graph=wave_graph(_wave_counts(run, snapshot)), run=run.feed.run)
    name, order = run.feed.run, run.derive("waves", snapshot.plan, snapshot.wave_parts)
    if len(order) <= 1:
        return reader.part("graph", graph=None, run=name)
    columns = [[PlanNode(*rest, snapshot.statuses[rest[0]]) for rest in wave] for wave in order]
    picture = plan_graph(columns, lambda id_: f"/runs/{quote(name)}/subtasks/{quote(id_)}{reader.then}")
    return reader.part("graph", graph=picture, run=name)


def _map(reader: Reader, run: FollowedRun, snapshot: RunSnapshot) -> Markup:
    counts, name, total = _order(snapshot.status.subtasks), run.feed.run, snapshot.figures.subtasks
    if total > MOST_CELLS:
        small = snapshot.subtask_map(MOST_SIGNS)
        stretches = [(sign, sum(1 for _ in group)) for sign, group in groupby(small.cells)]
        return reader.part("map", cells=[], stretches=stretches, each=small.each, counts=counts, total=total, run=name)
    cells = [Cell(row.id, row.status, row.attempts) for row in snapshot.subtasks]
    return reader.part("map", cells=cells, stretches=[], each=1, counts=counts, total=total, run=name)


def _order(counts: Mapping[SubtaskStatus, int]) -> dict[SubtaskStatus, int]:
    return {status: counts[status] for status in get_args(SubtaskStatus) if counts.get(status)}


async def subtasks_page(reader: Reader, name: str) -> Shown:
    """The paged list of subtasks, filtered by status and words."""
    reader, run = await opened_then(reader, name)
    snapshot = run.snapshot
    if snapshot is None:
        return Shown(name, {"head": reader.part("loading", run=name)})
    wanted, needle = reader.query.get("status", ""), reader.query.get("q", "").strip().lower()
    rows = [
        row
        for row in snapshot.subtasks
        if (not wanted or row.status == wanted)
        and (not needle or needle in row.id.lower() or needle in row.title.lower())
    ]
    number = reader.query.get("page", "1")
    page = min(max(1, int(number) if number.isdecimal() and len(number) < 7 else 1), max(1, -(-len(rows) // ROWS)))  # noqa: PLR2004
    part = reader.part(
        "subtasks",
        rows=[(row, snapshot.spend_of(row.id)) for row in rows[(page - 1) * ROWS : page * ROWS]],
        total=len(rows),
        page=page,
        pages=-(-len(rows) // ROWS),
        wanted=wanted,
        needle=needle,
        counts=_order(Counter(snapshot.statuses.values())),
        run=name,
        at=reader.at,
    )
    return Shown(f"Subtasks of {name}", {"subtasks": part}, is_live=reader.at is None)


# ---- replay page -----------------------------------------------------------------------------------------------------
# A run at one of its facts, with a slider over all facts. The links also work without JavaScript.


JUMP_S = 10.0


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """A link to another moment."""

    key: str
    """The key of the same step in the terminal's replay."""
    text: str
    place: int


async def replay_page(reader: Reader, name: str) -> Shown:
    run = await opened(reader, name)
    past = await read_past(reader, run)
    if not len(past):
        return Shown(name, {"head": reader.part("loading", run=name)}, is_live=False)
    at = place(reader.query.get("at", ""), past)
    reader = replace(reader, at=at, may_decide=False)
    then = past.at(at)
    snapshot = then.snapshot
    if snapshot is None:
        raise ValueError(f"{name} has no state after event {at}")
    common = {"run": name, "at": at, "last": len(past), "loaded": past.loaded, "stride": max(1, len(past) // 150)}
    parts = {
        "head": reader.part("replay_head", view=snapshot.status, **common),
        "slider": reader.part("slider", **common),
        "moment": reader.part("moment", seconds=past.moment(at), now=snapshot.now, steps=_steps(past, at), **common),
        **{id_: part for id_, part in run_parts(reader, then, snapshot) if id_ not in {"head", "needs"}},
    }
    return Shown(f"{name}: replay", parts, is_live=False)


def _steps(past: Past, at: int) -> list[TimelineStep]:
    seconds = past.moment(at)
    return [
        TimelineStep("Home", "Start", 1),
        TimelineStep("<", f"{JUMP_S:.0f} s back", min(at, past.place_at(seconds - JUMP_S))),
        TimelineStep(",", "Previous event", past.event_before(at)),
        TimelineStep(".", "Next event", past.event_after(at)),
        TimelineStep(">", f"{JUMP_S:.0f} s forward", max(at, past.place_at(seconds + JUMP_S))),
        TimelineStep("End", "End", len(past)),
    ]


# ---- subtask page ----------------------------------------------------------------------------------------------------
# A subtask: its attempts side by side, the conversation, the checks with their output, and the diff.


TAIL_BYTES, TAIL_LINES = 400_000, 600  # of a conversation


async def subtask_page(reader: Reader, name: str, id_: str) -> Shown:
    reader, run = await opened_then(reader, name)
    snapshot = run.snapshot
    if snapshot is None or not snapshot.has_subtask(id_):
        if reader.at is not None:
            raise NoSuchPageError(f"Run {name} had no subtask {id_} at event {reader.at}.")
        raise NoSuchPageError(f"Subtask {id_} not found in run {name}.")
    view, question = snapshot.subtask(SubtaskId(id_)), snapshot.question_about(SubtaskId(id_))
    attempt = _attempt(view.attempts, reader.query.get("attempt", ""))
    checks = attempt.checks if attempt is not None else ()
    is_open, is_over = view.landed is None, snapshot.figures.is_over
    common = {"run": name, "id": id_, "shown": attempt, "at": reader.at, "may_comment": reader.may_decide and is_open}
    parts = {
        "head": reader.part("subtask_head", view=view, is_over=is_over, question=question, **common),
        "attempts": reader.part("attempts", view=view, **common),
        "conversation": reader.part("conversation", lines=_conversation(run, id_, attempt), **common),
        "checks": reader.part("checks", checks=[(check, check_output(run.feed, check)) for check in checks], **common),
        "diff": await _diff(reader, run, attempt, common),
    }
    return Shown(f"{id_}: {view.status}", parts, is_live=reader.at is None)


def _attempt(attempts: Sequence[AttemptView], number: str) -> AttemptView | None:
    """The requested attempt, or else the last one."""
    chosen = [attempt for attempt in attempts if str(attempt.number) == number]
    return chosen[0] if chosen else attempts[-1] if attempts else None


def _conversation(run: FollowedRun, id_: str, attempt: AttemptView | None) -> Sequence[str]:
    if attempt is None:
        return ()
    tail = TranscriptTail(run.feed.transcript(id_, attempt.number), last=TAIL_BYTES)
    return [line for lines in tail.new() for line in lines][-TAIL_LINES:]


async def _diff(reader: Reader, run: FollowedRun, attempt: AttemptView | None, common: Mapping[str, object]) -> Markup:
    if attempt is None or attempt.commit is None:
        return reader.part("diff", files=[], left_out=0, why="No commit yet.", **common)
    patch = await reader.runs.diff(run, attempt.base, attempt.commit)
    if patch is None:
        return reader.part("diff", files=[], left_out=0, why="The commit is no longer in the store.", **common)
    files, left_out = diff_files(patch)
    return reader.part("diff", files=files, left_out=left_out, why="" if files else patch, **common)


# ---- diff lines ------------------------------------------------------------------------------------------------------
# A patch as files with numbered lines, for line comments.


Kind = Literal["same", "add", "remove", "hunk", "note"]
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
MOST_LINES = 5_000  # of one patch; `fleet diff` prints the rest


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: Kind
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(slots=True)
class DiffFile:
    path: str
    lines: list[DiffLine] = field(default_factory=list)

    @property
    def added(self) -> int:
        return sum(line.kind == "add" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "remove" for line in self.lines)


def diff_files(patch: str) -> tuple[Sequence[DiffFile], int]:
    """The files of a patch, and the number of lines left out at its end."""
    files: list[DiffFile] = []
    old = new = 0
    in_hunk = False
    rows = patch.split("\n")
    for row in rows[:MOST_LINES]:
        if row.startswith("diff --git "):
            files.append(DiffFile(row.rpartition(" b/")[2].removesuffix('"')))
            in_hunk = False
        elif not files:
            continue
        elif found := HUNK.match(row):
            old, new, in_hunk = int(found[1]), int(found[2]), True
            files[-1].lines.append(DiffLine("hunk", row))
        elif not in_hunk:
            files[-1].lines += [DiffLine("note", row)] if _says_something(row) else []
        elif row.startswith("+"):
            files[-1].lines.append(DiffLine("add", row[1:], new=new))
            new += 1
        elif row.startswith("-"):
            files[-1].lines.append(DiffLine("remove", row[1:], old=old))
            old += 1
        elif row.startswith(" "):
            files[-1].lines.append(DiffLine("same", row[1:], old=old, new=new))
            old, new = old + 1, new + 1
        elif row.startswith("\\"):
            files[-1].lines.append(DiffLine("note", row))
    return files, max(0, len(rows) - MOST_LINES)


def _says_something(row: str) -> bool:
    """Whether a line of a file header describes more than a change of content."""
    return row.startswith(("new file", "deleted file", "old mode", "new mode", "rename ", "Binary "))
