"""One subtask: its attempts side by side, the conversation, the checks with their output, the diff with its lines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from dashboards.runs.run_follower import WatchedRun
from dashboards.text.transcript import transcript_lines
from dashboards.web.rendering import NoSuchPageError, Reader, Shown, opened_then
from fleet.core.base.ids import SubtaskId
from fleet.core.base.output import parse_json
from fleet.core.state.facts import CheckRun
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.core.views.subtask_view import subtask_view

TAIL_BYTES, TAIL_LINES = 400_000, 600  # of a conversation
LOG_BYTES = 200_000
ACCOUNTING = frozenset({"request_id", "usage", "stop_reason"})  # fields that only `fleet logs` shows


async def subtask_page(reader: Reader, name: str, id_: str) -> Shown:
    reader, run = await opened_then(reader, name)
    state = run.state
    if state is None or id_ not in state.subtasks:
        if reader.at is not None:
            raise NoSuchPageError(f"{name} had no subtask {id_} at its fact {reader.at}.")
        raise NoSuchPageError(f"{name} has no subtask {id_}.")
    view = subtask_view(state, state.spec(SubtaskId(id_)), run.now)
    attempt = _attempt(state, SubtaskId(id_), reader.query.get("attempt", ""))
    question = state.subtasks[SubtaskId(id_)].question
    is_open = state.subtasks[SubtaskId(id_)].landed is None
    common = {"run": name, "id": id_, "shown": attempt, "at": reader.at, "may_comment": reader.may_decide and is_open}
    parts = {
        "head": reader.part(
            "subtask_head", view=view, state=state, question=state.questions.get(question or ""), **common
        ),
        "attempts": reader.part("attempts", view=view, state=state, **common),
        "conversation": reader.part("conversation", lines=_conversation(run, id_, attempt), **common),
        "checks": reader.part("checks", checks=_checks(run, attempt), **common),
        "diff": await _diff(reader, run, attempt, common),
    }
    return Shown(f"{id_}: {view.status}", parts, is_live=reader.at is None)


def _attempt(state: RunState, id_: SubtaskId, number: str) -> Attempt | None:
    """The attempt that is asked for, or else the last one."""
    attempts = state.subtasks[id_].attempts
    chosen = [attempt for attempt in attempts if str(attempt.number) == number]
    return chosen[0] if chosen else attempts[-1] if attempts else None


def _conversation(run: WatchedRun, id_: str, attempt: Attempt | None) -> Sequence[str]:
    if attempt is None:
        return ()
    entries = []
    for line in _tail(run.feed.transcript(id_, attempt.number)).splitlines():
        try:
            entry = parse_json(line)
        except ValueError:  # the first line of a tail, or one that is being written
            continue
        if isinstance(entry, dict):
            entries.append({key: value for key, value in entry.items() if key not in ACCOUNTING})
    return list(transcript_lines(entries))[-TAIL_LINES:]


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read(TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _checks(run: WatchedRun, attempt: Attempt | None) -> list[tuple[CheckRun, str]]:
    """Each check with its output: its log, or the end of the output where no log was kept."""
    checks = attempt.checks if attempt is not None else ()
    return [(check, (_beginning(run.feed.log(check.log)) if check.log else "") or check.output) for check in checks]


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: not a file name
        return ""


async def _diff(reader: Reader, run: WatchedRun, attempt: Attempt | None, common: Mapping[str, object]) -> Markup:
    if attempt is None or attempt.commit is None:
        return reader.part("diff", files=[], left_out=0, why="No commit yet.", **common)
    patch = await reader.runs.diff(run, attempt.base, attempt.commit)
    if patch is None:
        return reader.part("diff", files=[], left_out=0, why="The commit is no longer in the store.", **common)
    files, left_out = diff_files(patch)
    return reader.part("diff", files=files, left_out=left_out, why="" if files else patch, **common)


# ---- diff lines ------------------------------------------------------------------------------------------------------
# A patch as files with numbered lines, so that a line can be commented on.


Kind = Literal["same", "add", "remove", "hunk", "note"]
HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
MOST_LINES = 5_000  # of one patch; the rest is read with `fleet diff`


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
    """The files of a patch, and how many lines were left out at its end."""
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
    """Whether a line of a file's head says more than that the file changed."""
    return row.startswith(("new file", "deleted file", "old mode", "new mode", "rename ", "Binary "))
