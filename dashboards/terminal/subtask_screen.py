"""The screen of one subtask: its story, its conversation, its diff, its checks. The planner has the first two."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType

from dashboards.terminal.base_screen import END, BaseScreen, Button
from dashboards.terminal.lines import Page, PageOptions, text_page
from dashboards.terminal.patch import patch_page
from dashboards.terminal.story_page import TranscriptTail, check_lines, planner_lines, story_lines
from dashboards.text.safe import safe
from fleet.core.base.ids import Sha, SubtaskId
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot
from fleet.read.subtask_view import AttemptView

STORY, CONVERSATION, DIFF, CHECKS = range(1, 5)
MISSING = "The commit is no longer in the store."
TWO_COLUMNS = 100  # cells: from this width on both sides of a diff fit beside each other
TITLES = {STORY: "Story", CONVERSATION: "Conversation", DIFF: "Diff", CHECKS: "Checks"}


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
        """The attempt that is shown; None: the last one."""
        self._conversation: tuple[int, TranscriptTail] | None = None
        self._patch: tuple[str, str | None] | None = None
        """The commit whose patch is shown, and the patch once it was read."""
        self._diff: tuple[tuple[str, bool], Page] | None = None
        """What is shown of it: the commit, and whether both sides stand beside each other."""
        self._folded = self._side_by_side = False

    def current_key(self) -> str:
        return f"s:{self.subtask}"

    def text_to_copy(self) -> str:
        """The commit of the attempt that is shown, or the name of the subtask."""
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
            return text_page(checks, empty="No check has run yet.")
        lines = planner_lines(snapshot) if self.is_planner else story_lines(run, snapshot, self.subtask)
        return text_page(lines)

    def _conversation_page(self, run: FollowedRun, snapshot: RunSnapshot) -> Page:
        number = self._attempt_number(snapshot)
        if self._conversation is None or self._conversation[0] != number:
            self._conversation = number, TranscriptTail(run.feed.transcript(self.subtask, number))
            self._conversation[1].catch_up()
        return self._conversation[1].page(folded=self._folded)

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
            buttons.append(Button("f", "unfold" if self._folded else "fold"))
        if self.number == DIFF and self.size.width >= TWO_COLUMNS:
            buttons.append(Button("d", "one below the other" if self._side_by_side else "side by side"))
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
            self._folded = not self._folded
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
        """Run a program in a copy of what the attempt committed."""
        snapshot = self.fleet.watched.snapshot
        attempt = self._attempt(snapshot) if snapshot is not None else None
        if attempt is None or attempt.commit is None:
            self.notify("no commit yet; a running sandbox can't be entered from outside", markup=False)
            return
        with TemporaryDirectory(prefix=f"fleet-{self.subtask[:40]}-") as folder:
            problem = await self.fleet.watched.feed.copy(attempt.commit, Path(folder))
            if problem is not None:
                self.notify(safe(problem), severity="warning", markup=False)
                return
            self.fleet.outside(command, Path(folder))
