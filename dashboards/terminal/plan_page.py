"""The plan as a graph of subtasks with their status, and its versions with their reasons."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len

from dashboards.subtask_map import Span, marked
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    heading,
    matches,
    table_page,
    wrapped,
)
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe
from fleet.core.plans.plan import Subtask
from fleet.read.follow import FollowedRun
from fleet.read.plan_graph import PlanVersion, Standing, TreeNode, Waiting
from fleet.read.run import RunSnapshot

TITLE, LONGEST = "subtask", 0.4  # of the width, for names with the strokes before them
COLUMNS = (
    Column("state", 11),
    Column(TITLE, 24),
    Column("title", 12, spare=2, grows=4),
    Column("also needs", 10, spare=5, grows=2),
    Column("blocks", 10, spare=4),
    Column("attempts", 8, spare=1, to_right=True),
    Column("commit", 8, spare=3),
)
NAMES = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn subtask in the graph."""

    node: TreeNode
    strokes: str
    """The lines before its name."""
    key: str


def drawn(nodes: Iterable[TreeNode]) -> Iterator[Drawn]:
    indents: list[str] = []
    for node in nodes:
        del indents[max(0, node.depth - 1) :]
        stroke, deeper = ("└ ", "  ") if node.is_last else ("├ ", "│ ")
        yield Drawn(node, f"{''.join(indents)}{stroke}" if node.depth else "", f"s:{node.spec.id}")
        indents += [deeper] * bool(node.depth)


def plan_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    rows = run.derive("graph", snapshot.plan, lambda: list(drawn(snapshot.graph())))
    if options.needle:
        rows = [row for row in rows if _is_wanted(snapshot, row.node.spec, options.needle)]
    version, closed = snapshot.plan.version, snapshot.closed
    held = run.derive(f"waiting {version}", closed, snapshot.waiting)
    longest = run.derive(
        "names", rows, lambda: max((cell_len(row.strokes + row.node.spec.id) for row in rows), default=0)
    )
    names = min(max(longest, 12), int(options.width * LONGEST))
    return table_page(
        [replace(column, width=names) if column.title == TITLE else column for column in COLUMNS],
        [row.key for row in rows],
        lambda index: _cells(rows[index], snapshot.standing(rows[index].node.spec.id), held),
        below=None if options.needle else _versions(run, snapshot, options),
        empty=options.no_rows("No plan yet: the planner is reading the repository."),
    )


def _is_wanted(snapshot: RunSnapshot, spec: Subtask, needle: str) -> bool:
    return matches(needle, spec.id, spec.title, snapshot.status_of(spec.id))


def _cells(row: Drawn, standing: Standing, held: Waiting) -> Sequence[Span]:
    spec, attempts = row.node.spec, standing.attempts
    others = [safe(need, limit=40) for need in spec.depends_on if need != row.node.above]
    tone = "dim" if standing.status in {"dropped", "split"} else ""
    count, is_on_chain = held.counts.get(spec.id, 0), spec.id in held.chain
    return (
        ("? approve", "attention") if standing.awaits_approval else marked(standing.status),
        (row.strokes + safe(spec.id), tone),
        (safe(spec.title), tone),
        (", ".join(others), "dim"),
        (f"{count or ''} {'critical' if is_on_chain else ''}".strip(), "bold" if is_on_chain else "dim"),
        (str(attempts or ""), "bold" if attempts > 1 else "dim"),
        (safe(standing.landed or "")[:7], "dim"),
    )


def _versions(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page | None:
    """The versions of the plan, latest first. An opened version shows its full reason."""
    versions = run.derive("versions", snapshot.versions_key, snapshot.versions)
    if not versions:
        return None
    rows: list[tuple[str, PlanVersion | Line]] = [
        BLANK,
        ("", heading("VERSIONS", "with their reasons, latest first")),
    ]
    for version in reversed(versions):
        key = f"v:{version.number}"
        rows.append((key, version))
        if key in options.opened:
            why = wrapped(f"        {safe(version.why)}", options.width - 2)
            rows += [("", ((line, "dim"),)) for line in why]

    def draw(index: int, _: int) -> Line:
        row = rows[index][1]
        return _version(snapshot, row) if isinstance(row, PlanVersion) else row

    return Page(keys=[key for key, _ in rows], draw=draw)


def _version(snapshot: RunSnapshot, version: PlanVersion) -> Line:
    by, at = safe(version.by, limit=40), clock_in(snapshot, version.at)
    title = f"{at}  version {version.number}  by {by}: {_changes(version)}"
    return ((title, "bold"), (f" — {safe(version.why)}", ""))


def _changes(version: PlanVersion) -> str:
    """The numbers of added and changed subtasks in a version."""
    if version.is_first:
        return counted(version.subtasks, "subtask")
    both = (("added", version.added), ("changed", version.changed))
    parts = [f"{len(specs)} {word} ({_names(specs)})" for word, specs in both if specs]
    return ", ".join(parts) or "no new subtasks, only retries or drops"


def _names(specs: Sequence[Subtask]) -> str:
    return ", ".join(safe(spec.id, limit=40) for spec in specs[:NAMES]) + ", …" * (len(specs) > NAMES)
