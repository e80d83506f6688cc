"""The screen of a subtask: story, conversation, diff and checks. The planner has the first two."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from textual import work
from textual.binding import Binding, BindingType

from dashboards.state_history import TranscriptTail, check_output
from dashboards.subtask_map import marked
from dashboards.terminal.base_screen import END, BaseScreen, Button
from dashboards.terminal.lines import Line, Page, PageOptions, clipped, event_line, heading, text_page
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe, safe_block
from dashboards.text.tables import subtask_lines
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import CheckRun
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot
from fleet.read.subtask_view import AttemptView

STORY, CONVERSATION, DIFF, CHECKS = range(1, 5)
MISSING = "The commit is no longer in the store."
TWO_COLUMNS = 100  # cells: minimum width for a side-by-side diff
TITLES = {STORY: "Story", CONVERSATION: "ConversationPane", DIFF: "Diff", CHECKS: "Checks"}


class SubtaskScreen(BaseScreen):
    """One subtask, or the planner."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "attempt(-1)", "Previous attempt", show=False),
        Binding("right_square_bracket", "attempt(1)", "Next attempt", show=False),
        Binding("f", "fold", "Fold", show=False),
        Binding("d", "side_by_side", "Side by side", show=False),
        Binding("s", "shell", "Shell", show=False),
        Binding("e", "editor", "Editor", show=False),
        Binding("q", "back", "Back", show=False),
    ]

    def __init__(self, id_: SubtaskId) -> None:
        self.is_planner = id_ == "planner"
        super().__init__((STORY, CONVERSATION) if self.is_planner else tuple(TITLES))
        self.subtask = id_
        self._chosen: int | None = None
        """The shown attempt. None means the last one."""
        self._conversation: tuple[int, ConversationPane] | None = None
        self._patch: tuple[str, str | None] | None = None
        """The shown commit, and its patch once it was read."""
        self._diff: tuple[tuple[str, bool], Page] | None = None
        """The drawn page: the commit, and whether it is side by side."""
        self._fold = self._side_by_side = False

    def current_key(self) -> str:
        return f"s:{self.subtask}"

    def text_to_copy(self) -> str:
        """The commit of the shown attempt, or the name of the subtask."""
        snapshot = self.fleet.watched.snapshot
        attempt = self._attempt(snapshot) if snapshot is not None else None
        commit = (attempt.landed or attempt.commit) if attempt is not None else None
        return commit or self.subtask

    def _count(self, snapshot: RunSnapshot) -> int:
        return snapshot.planner_calls if self.is_planner else snapshot.attempts_at(self.subtask)

    def _attempt_number(self, snapshot: RunSnapshot) -> int:
        count = self._count(snapshot)
        return count if self._chosen is None else max(1, min(self._chosen, count))

    def _attempt(self, snapshot: RunSnapshot) -> AttemptView | None:
        if self.is_planner or not self._count(snapshot):
            return None
        return snapshot.attempt(self.subtask, self._attempt_number(snapshot))

    # ---- pages

    def page(self, run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
        attempt = self._attempt(snapshot)
        if self.number == CONVERSATION:
            return self._conversation_page(run, snapshot)
        if self.number == DIFF:
            return self._diff_page(run, attempt, options)
        if self.number == CHECKS:
            checks = check_lines(run, attempt.checks) if attempt is not None else []
            return text_page(checks, empty="No checks have run yet.")
        lines = planner_lines(snapshot) if self.is_planner else story_lines(run, snapshot, self.subtask)
        return text_page(lines)

    def _conversation_page(self, run: FollowedRun, snapshot: RunSnapshot) -> Page:
        number = self._attempt_number(snapshot)
        if self._conversation is None or self._conversation[0] != number:
            self._conversation = number, ConversationPane(run.feed.transcript(self.subtask, number))
            self._conversation[1].catch_up()
        return self._conversation[1].page(folded=self._fold)

    def has_news(self) -> bool:
        return self.number == CONVERSATION and self._conversation is not None and self._conversation[1].catch_up()

    def _diff_page(self, run: FollowedRun, attempt: AttemptView | None, options: PageOptions) -> Page:
        if attempt is None or attempt.commit is None:
            return text_page((), empty="No commit yet.")
        if self._patch is None or self._patch[0] != attempt.commit:
            self._patch = attempt.commit, None
            self._read_patch(run, attempt.base, attempt.commit)
        if self._patch[1] is None:
            return text_page((), empty="…")
        shown = (attempt.commit, self._side_by_side and options.width >= TWO_COLUMNS)
        if self._diff is None or self._diff[0] != shown:
            self._diff = shown, patch_page(self._patch[1], is_split=shown[1])
        return self._diff[1]

    @work(exclusive=True, group="patch")
    async def _read_patch(self, run: FollowedRun, base: Sha, commit: Sha) -> None:
        patch = await run.feed.diff(base, commit)
        self._patch = commit, MISSING if patch is None else patch
        self.refresh_view()

    # ---- around the page

    def tabs(self, snapshot: RunSnapshot) -> Sequence[Button]:
        tabs = [self.tab(number, TITLES[number]) for number in self.numbers]
        return [*tabs, Button("", f" {safe(self.subtask, limit=40)}: {self._which(snapshot)}", "accent")]

    def _which(self, snapshot: RunSnapshot) -> str:
        count, attempt = self._count(snapshot), self._attempt(snapshot)
        if not count:
            return "no attempt yet"
        number = f"{'call' if self.is_planner else 'attempt'} {self._attempt_number(snapshot)} of {count}"
        if attempt is None:
            return number
        if attempt.ended_at is None:
            return f"{number}, {snapshot.phase_of(self.subtask, attempt.number)}"
        return f"{number}, {'landed' if attempt.landed else 'ended'}"

    def keys(self, snapshot: RunSnapshot) -> Sequence[Button]:
        buttons = [Button("Esc", "back")]
        if snapshot.question_about(self.subtask) is not None:
            buttons.append(Button("a", "answer", "attention"))
        if snapshot.failure_of(self.subtask) is not None:
            buttons.append(Button("r", "retry", "attention"))
        buttons += [Button("[", "previous attempt"), Button("]", "next"), Button("/", "find")]
        if self.number == CONVERSATION:
            buttons.append(Button("f", "unfold" if self._fold else "fold"))
        if self.number == DIFF and self.size.width >= TWO_COLUMNS:
            buttons.append(Button("d", "unified" if self._side_by_side else "side by side"))
        if not self.is_planner:
            buttons += [Button("s", "shell"), Button("e", "editor")]
        return [*buttons, Button("?", "help")]

    # ---- actions

    def leave(self) -> None:
        self.app.pop_screen()

    def first_row(self, number: int) -> int:
        return END if number == CONVERSATION else 0

    def action_attempt(self, by: int) -> None:
        snapshot = self.fleet.watched.snapshot
        if snapshot is not None and self._count(snapshot):
            self._chosen = max(1, min(self._attempt_number(snapshot) + by, self._count(snapshot)))
            self.action_page(self.number)

    def action_fold(self) -> None:
        if self.number == CONVERSATION:
            self._fold = not self._fold
            self.refresh_view(cursor=END)

    def action_side_by_side(self) -> None:
        if self.number == DIFF:
            self._side_by_side = not self._side_by_side
            if self._side_by_side and self.size.width < TWO_COLUMNS:
                self.notify(f"side by side needs {TWO_COLUMNS} columns", markup=False)
            self.refresh_view(cursor=0)

    def action_shell(self) -> None:
        self._open_copy(self.fleet.shell_command)

    def action_editor(self) -> None:
        self._open_copy([*self.fleet.editor_command, "."])

    @work(exclusive=True, group="copy")
    async def _open_copy(self, command: Sequence[str]) -> None:
        """Run a program in a copy of the attempt's commit."""
        snapshot = self.fleet.watched.snapshot
        attempt = self._attempt(snapshot) if snapshot is not None else None
        if attempt is None or attempt.commit is None:
            self.notify("no commit yet, and you can't open a shell in a running sandbox", markup=False)
            return
        with TemporaryDirectory(prefix=f"fleet-{self.subtask[:40]}-") as folder:
            problem = await self.fleet.watched.feed.copy(attempt.commit, Path(folder))
            if problem is not None:
                self.notify(safe(problem), severity="warning", markup=False)
                return
            self.fleet.outside(command, Path(folder))


# ---- story page ------------------------------------------------------------------------------------------------------
# A subtask in lines: its goal, attempts and check output. For the planner: its versions of the plan.


LOG_LINES = 400


def story_lines(run: FollowedRun, snapshot: RunSnapshot, id_: SubtaskId) -> list[Line]:
    """The subtask with its attempts, checks, incidents and events."""
    view, question = snapshot.subtask(id_), snapshot.question_about(id_)
    lines: list[Line] = [(marked(view.status),)]
    if question is not None:
        lines.append(((f"? {question.id}: {safe(question.question)}  → press a to answer", "attention"),))
    lines += [((text, _tone(text)),) for text in subtask_lines(view)]
    events = run.events_about(id_)
    if events:
        lines += [(), heading("EVENTS"), *(event_line(snapshot, event) for event in events)]
    return lines


def planner_lines(snapshot: RunSnapshot) -> list[Line]:
    """Every version of the plan with its reason, latest first."""
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
    """The checks with their output: the log, or the end of the output if no log was kept."""
    lines: list[Line] = []
    for check in checks:
        title = (f"{safe(check.command)}", "bold"), (f"  {check.seconds:.1f} s{_exit(check)}", "dim")
        lines += [(_verdict(check), *title), ((f"  {safe(check.criterion)}", "dim"),)]
        output = safe_block(check_output(run.feed, check), lines=LOG_LINES)
        lines += [((f"    {line}", ""),) for line in output.split("\n")]
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


# ---- conversation ----------------------------------------------------------------------------------------------------


LINES = 20_000  # kept in memory
BEGINS = ("── ", "   → ", "   ← ", "   thinking")  # prefixes of the first line of each part of a conversation


class ConversationPane:
    """The lines of a conversation as it grows."""

    def __init__(self, path: Path) -> None:
        self._tail = TranscriptTail(path)
        self._lines: deque[Line] = deque(maxlen=LINES)

    def catch_up(self) -> bool:
        """Read new lines. Return whether there were any."""
        has_news = False
        for entry in self._tail.new():
            has_news = True
            self._lines += (((text, _conversation_tone(text)),) for text in entry)
        return has_news

    def page(self, *, folded: bool = False) -> Page:
        """All lines or, if folded, one line for each message, call and result."""
        lines = list(_fold(self._lines)) if folded else list(self._lines)
        return text_page(lines, empty="No messages yet.", tail=True)


def _fold(lines: Iterable[Line]) -> Iterator[Line]:
    """One line for each part of a conversation, with its first words."""
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


def _conversation_tone(text: str) -> str:
    if text.startswith("── "):
        return "accent"
    if text.startswith("   ← error"):
        return "bad"
    return "bold" if text.startswith(("   → ", "   ← ")) else ""


# ---- patch -----------------------------------------------------------------------------------------------------------
# A patch as colored lines. Only visible lines are colored, so that a long patch opens immediately.


LONGEST = 400  # characters of a line that are colored
PATCH_LINES = 50_000
TONES = {
    "Keyword": "keyword",
    "String": "string",
    "Comment": "comment",
    "Number": "number",
    "Function": "name",
    "Class": "name",
}
"""The tone of a token, by the last part of its name listed here."""


class Tones(SyntaxTheme):
    """Maps tokens to tones instead of colors. The palette of the screen maps tones to colors."""

    @classmethod
    def get_style_for_token(cls, token_type: Sequence[str]) -> Style:
        tone = next((TONES[part] for part in reversed(tuple(map(str, token_type))) if part in TONES), "")
        return Style(meta={"tone": tone})

    @classmethod
    def get_background_style(cls) -> Style:
        return Style()


def patch_page(patch: str, *, is_split: bool = False) -> Page:
    """A page of a diff, unified or side by side. Its text is untrusted."""
    lines = safe_block(patch, lines=PATCH_LINES).split("\n")
    files = _files(lines)
    coloured = _colouring()
    if is_split:
        return side_by_side_page(lines, files, coloured)
    return Page(
        keys=("-",) * len(lines),
        draw=lambda index, _: coloured(lines[index], files[index]),
        empty="No changes.",
        is_text=True,
        plain=lambda index: lines[index],
    )


def _files(lines: Sequence[str]) -> list[str]:
    """The file of each line. Empty for lines above the first hunk of a file."""
    names, name, in_hunk = [], "", False
    for line in lines:
        if line.startswith("diff --git "):
            name, in_hunk = line.rpartition(" b/")[2], False
        elif line.startswith("@@"):
            in_hunk = True
        names.append(name if in_hunk else "")
    return names


def _colouring() -> Callable[[str, str], Line]:
    @lru_cache(maxsize=2_000)
    def coloured(line: str, file: str) -> Line:
        if line.startswith("diff --git "):
            return ((line, "head"),)
        if line.startswith("@@"):
            return ((line, "hunk"),)
        if not file:
            return ((line, "dim"),)
        sign, code = line[:1], line[1:]
        tone = {"+": "added", "-": "removed"}.get(sign, "")
        return ((f"{sign} ", tone), *_tokens(code, file, removed=sign == "-"))

    return coloured


def _tokens(code: str, file: str, *, removed: bool) -> Line:
    syntax = _syntax(file.rpartition("/")[2])
    if syntax is None or removed or len(code) > LONGEST:
        return ((code, "removed" if removed else ""),)
    text = syntax.highlight(code)
    tones = [""] * len(code)
    for span in text.spans:
        if isinstance(span.style, Style) and (tone := span.style.meta.get("tone")):
            tones[span.start : span.end] = [tone] * (min(span.end, len(code)) - span.start)
    return tuple(
        ("".join(char for char, _ in group), tone)
        for tone, group in groupby(zip(code, tones, strict=True), key=itemgetter(1))
    )


@lru_cache(maxsize=256)
def _syntax(name: str) -> Syntax | None:
    """The highlighter for a file name. None for an unknown type."""
    lexer = Syntax.guess_lexer(name)
    return None if lexer == "default" else Syntax("", lexer, theme=Tones(), tab_size=4)


# ---- sbs -------------------------------------------------------------------------------------------------------------
# A patch in two columns: numbered old lines next to the new ones.


HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)")
NUMBER = 5  # cells of a line's number
MIDDLE = " │ "


@dataclass(frozen=True, slots=True)
class Side:
    """A line of one side: its number, and its text with the sign."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """Two lines side by side. `whole` is a line that belongs to both."""

    file: str
    whole: str | None = None
    old: Side | None = None
    new: Side | None = None


def side_by_side_page(lines: Sequence[str], files: Sequence[str], coloured: Callable[[str, str], Line]) -> Page:
    """A side-by-side page of a unified diff. `coloured` colors a line with its sign."""
    rows = list(_rows(lines, files))

    def draw(index: int, width: int) -> Line:
        row = rows[index]
        if row.whole is not None:
            return coloured(row.whole, row.file)
        half = (width - len(MIDDLE)) // 2
        return (*_half(row.old, row.file, half, coloured), (MIDDLE, "dim"), *_half(row.new, row.file, half, coloured))

    return Page(
        keys=("-",) * len(rows),
        draw=draw,
        empty="No changes.",
        is_text=True,
        plain=lambda index: _plain(rows[index]),
    )


def _half(side: Side | None, file: str, width: int, coloured: Callable[[str, str], Line]) -> Line:
    if side is None:
        return ((" " * width, ""),)
    return ((f"{side.number:>{NUMBER}} ", "dim"), *clipped(coloured(side.text, file), width - NUMBER - 1))


def _plain(row: ConversationRow) -> str:
    return row.whole or "\n".join(side.text for side in (row.old, row.new) if side is not None)


def _rows(lines: Sequence[str], files: Sequence[str]) -> Iterator[ConversationRow]:
    old = new = 0
    removed, added, current = list[Side](), list[Side](), ""
    for line, file in zip(lines, files, strict=True):
        sign = line[:1] if file and not line.startswith("@@") else ""
        if sign == "-":
            removed.append(Side(old, line))
            old, current = old + 1, file
            continue
        if sign == "+":
            added.append(Side(new, line))
            new, current = new + 1, file
            continue
        yield from _changed(removed, added, current)
        removed, added = [], []
        if sign == " ":
            yield ConversationRow(file, old=Side(old, line), new=Side(new, line))
            old, new = old + 1, new + 1
            continue
        if (numbers := HUNK.match(line)) is not None:
            old, new = int(numbers[1]), int(numbers[2])
        yield ConversationRow(file, whole=line)
    yield from _changed(removed, added, current)


def _changed(removed: Sequence[Side], added: Sequence[Side], file: str) -> Iterator[ConversationRow]:
    for one, other in zip_longest(removed, added):
        yield ConversationRow(file, old=one, new=other)
