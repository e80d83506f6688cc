"""One subtask in lines: its goal, its attempts, the output of its checks. And the planner: its versions of the plan."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dashboards.subtask_map import marked
from dashboards.terminal.lines import Line, Page, event_line, heading, text_page
from dashboards.text.event_text import transcript_lines
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe, safe_block
from dashboards.text.tables import subtask_lines
from fleet.core.base.ids import SubtaskId
from fleet.core.base.output import parse_json
from fleet.core.facts.facts import CheckRun
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

LOG_BYTES = 400_000
LOG_LINES = 400


def story_lines(run: FollowedRun, snapshot: RunSnapshot, id_: SubtaskId) -> list[Line]:
    """The subtask, every attempt with its checks, its incidents, and its events."""
    view, question = snapshot.subtask(id_), snapshot.question_about(id_)
    lines: list[Line] = [(marked(view.status),)]
    if question is not None:
        lines.append(((f"? {question.id}: {safe(question.question)}  → a answers", "attention"),))
    lines += [((text, _tone(text)),) for text in subtask_lines(view)]
    events = run.events_about(id_)
    if events:
        lines += [(), heading("EVENTS"), *(event_line(snapshot, event) for event in events)]
    return lines


def planner_lines(snapshot: RunSnapshot) -> list[Line]:
    """Every version of the plan with its reason, the latest first."""
    lines: list[Line] = [heading("PLANNER", counted(snapshot.planner_calls, "call"))]
    for version in reversed(snapshot.versions()):
        size = f"{counted(version.subtasks, 'subtask')}, by {safe(version.by, limit=40)}"
        title = f"{clock_in(snapshot, version.at)}  version {version.number}, {size}"
        lines += [(), ((title, "bold"),)]
        lines += [((f"  {line}", ""),) for line in safe_block(version.why).split("\n")]
    return lines


def _tone(line: str) -> str:
    first, *_ = line.split() or [""]
    if line.startswith(("Attempt ", "Incident ")):
        return "bad" if "failed:" in line else "bold"
    return {"FAILED": "bad", "failure": "bad", "passed": "good", "FLAKY": "bold"}.get(first, "")


def check_lines(run: FollowedRun, checks: Sequence[CheckRun]) -> list[Line]:
    """Each check with its output: its log, or the end of the output where no log was kept."""
    lines: list[Line] = []
    for check in checks:
        title = (f"{safe(check.command)}", "bold"), (f"  {check.seconds:.1f} s{_exit(check)}", "dim")
        lines += [(_verdict(check), *title), ((f"  {safe(check.criterion)}", "dim"),)]
        output = (_log(run.feed.log(check.log)) if check.log else "") or check.output
        lines += [((f"    {line}", ""),) for line in safe_block(output, lines=LOG_LINES).split("\n")]
        lines.append(())
    return lines


def _verdict(check: CheckRun) -> tuple[str, str]:
    if check.passed:
        return "✔ passed  ", "good"
    return ("~ FLAKY  ", "bold") if check.flaky else ("✘ FAILED  ", "bad")


def _exit(check: CheckRun) -> str:
    if check.timed_out:
        return ", timed out"
    return f", exit code {check.exit_code}" if check.exit_code is not None else ""


def _log(path: Path) -> str:
    """The beginning of a log; empty if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: not a file name
        return ""


# ---- transcript tail -------------------------------------------------------------------------------------------------
# Follows a conversation: reads what was appended to its file, and keeps its lines.


LINES = 20_000  # kept in memory
BYTES = 1_000_000  # read at once
BEGINS = ("── ", "   → ", "   ← ", "   thinks")  # what a part of a conversation begins with
ACCOUNTING = frozenset({"request_id", "usage", "stop_reason"})  # fields of an entry that only `fleet logs` shows


class TranscriptTail:
    """Follows the file of one conversation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._lines: deque[Line] = deque(maxlen=LINES)

    def catch_up(self) -> bool:
        """Read what is new; return whether there was anything."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(BYTES)
        except (OSError, ValueError):  # ValueError: not a file name
            return False
        self._offset += len(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            self._take(line)
        return bool(complete)

    def _take(self, line: bytes) -> None:
        try:
            entry = parse_json(line)
        except ValueError:  # a line that a kill cut off
            return
        if isinstance(entry, dict):
            entry = {name: value for name, value in entry.items() if name not in ACCOUNTING}
            self._lines += (((text, _transcript_tail_tone(text)),) for text in transcript_lines([entry]))

    def page(self, *, folded: bool = False) -> Page:
        """The lines; folded, those that begin a message, a call or a result, with the first line of each."""
        lines = list(_folded(self._lines)) if folded else list(self._lines)
        return text_page(lines, empty="No messages yet.", tail=True)


def _folded(lines: Iterable[Line]) -> Iterator[Line]:
    """One line for each part of a conversation: how it begins, and the first words of it."""
    begun: Line = ()
    for line in lines:
        if any(line[0][0].startswith(mark) for mark in BEGINS):
            if begun:
                yield begun
            begun = line
        elif begun:
            yield (*begun, (f"  {line[0][0].strip()}", "dim"))
            begun = ()
    if begun:
        yield begun


def _transcript_tail_tone(text: str) -> str:
    if text.startswith("── "):
        return "accent"
    if text.startswith("   ← error"):
        return "bad"
    return "bold" if text.startswith(("   → ", "   ← ")) else ""
