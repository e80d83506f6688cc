"""The screen of one subtask: its story, its conversation as it goes on, its diff, its checks; and its worktree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from dashboards.terminal.acting import editor, shell
from dashboards.terminal.banner import Button
from dashboards.terminal.lines import Line, Page, Wish, matches, reading, shown
from dashboards.terminal.patch import patch_page
from dashboards.terminal.spoken import Spoken
from dashboards.terminal.story import check_lines, planner_lines, story_lines
from dashboards.terminal.view import View, tab
from dashboards.terminal.words import phase

if TYPE_CHECKING:
    from dashboards.terminal.palette import Palette
    from dashboards.terminal.watched import Watched
    from fleet.core.state import Attempt, RunState

PAGES = ("story", "conversation", "diff", "checks")
END = 10**9


class SubtaskView(View):
    """One subtask, or the planner."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"page({number})", page.title(), show=False) for number, page in enumerate(PAGES, 1)),
        Binding("tab", "turn(1)", "Next page", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", "Page before", show=False, priority=True),
        Binding("left_square_bracket", "attempt(-1)", "Attempt before", show=False),
        Binding("right_square_bracket", "attempt(1)", "Next attempt", show=False),
        Binding("s", "shell", "Shell", show=False),
        Binding("e", "editor", "Editor", show=False),
        Binding("q", "back", "Back", show=False),
    ]

    def __init__(self, palette: Palette, id_: str) -> None:
        super().__init__(palette)
        self.subtask = id_
        self.number = 1
        self._chosen: int | None = None
        """The attempt that is looked at; None: the last."""
        self._spoken: tuple[int, Spoken] | None = None
        self._patch: tuple[str, Page] | None = None

    # ---- what is looked at

    def key_here(self) -> str:
        return f"s:{self.subtask}"

    @property
    def planner(self) -> bool:
        return self.subtask == "planner"

    def _count(self, state: RunState) -> int:
        return state.planning.calls if self.planner else len(state.subtasks[self.subtask].attempts)

    def _shown_number(self, state: RunState) -> int:
        count = self._count(state)
        return count if self._chosen is None else max(1, min(self._chosen, count))

    def _attempt(self, state: RunState) -> Attempt | None:
        attempts = () if self.planner else state.subtasks[self.subtask].attempts
        return attempts[self._shown_number(state) - 1] if attempts else None

    # ---- pages

    def page(self, watched: Watched, state: RunState, wish: Wish) -> Page:
        match PAGES[self.number - 1]:
            case "conversation":
                return self._conversation(watched, state)
            case "diff" if not self.planner:
                return self._diff(watched, state)
            case "checks" if not self.planner:
                return self._checks(watched, state)
            case _:
                lines = planner_lines(state) if self.planner else story_lines(watched, state, self.subtask)
                return _filtered(lines, wish)

    def _conversation(self, watched: Watched, state: RunState) -> Page:
        number = self._shown_number(state)
        if self._spoken is None or self._spoken[0] != number:
            self._spoken = number, Spoken(watched.feed.transcript(self.subtask, number))
            self._spoken[1].catch_up()
        return self._spoken[1].page()

    def stirs(self) -> bool:
        return PAGES[self.number - 1] == "conversation" and self._spoken is not None and self._spoken[1].catch_up()

    def _diff(self, watched: Watched, state: RunState) -> Page:
        attempt = self._attempt(state)
        if attempt is None or attempt.commit is None:
            return reading((), empty="nothing is committed yet")
        if self._patch is None or self._patch[0] != attempt.commit:
            self._patch = attempt.commit, reading((), empty="…")
            self.run_worker(self._read_patch(watched, attempt.base, attempt.commit), exclusive=True, group="patch")
        return self._patch[1]

    async def _read_patch(self, watched: Watched, base: str, commit: str) -> None:
        patch = await watched.feed.diff(base, commit)
        page = patch_page(patch) if patch is not None else reading((), empty="the commit is not in the store any more")
        self._patch = commit, page
        self.refresh_view()

    def _checks(self, watched: Watched, state: RunState) -> Page:
        attempt = self._attempt(state)
        if attempt is None or not attempt.checks:
            return reading((), empty="no check has run yet")
        return reading(
            check_lines(attempt, [watched.feed.log(check.log) if check.log else None for check in attempt.checks])
        )

    # ---- around the page

    def tabs(self, state: RunState) -> Sequence[Button]:
        pages = PAGES[:2] if self.planner else PAGES
        tabs = [tab(number, page.title(), self.number) for number, page in enumerate(pages, 1)]
        return [*tabs, Button("", f" {shown(self.subtask, 40)}{self._which(state)}", "accent")]

    def _which(self, state: RunState) -> str:
        count, attempt = self._count(state), self._attempt(state)
        if not count:
            return ": no attempt yet"
        word = "call" if self.planner else "attempt"
        now = (
            ""
            if attempt is None
            else f", {phase(attempt)}"
            if attempt.ended_at is None
            else ", landed"
            if attempt.landed
            else ", over"
        )
        return f": {word} {self._shown_number(state)} of {count}{now}"

    def keys(self, watched: Watched, state: RunState) -> Sequence[Button]:
        del watched
        subtask = state.subtasks.get(self.subtask)
        stuck = subtask is not None and subtask.failure is not None
        asked = subtask is not None and subtask.question is not None
        return [
            Button("Esc", "back"),
            *([Button("a", "answer", "warn")] if asked else []),
            *([Button("r", "retry", "warn")] if stuck else []),
            Button("[", "attempt before"),
            Button("]", "next"),
            *([] if self.planner else [Button("s", "shell"), Button("e", "editor")]),
            Button("?", "help"),
        ]

    def press(self, key: str) -> None:
        super().press({"[": "left_square_bracket", "]": "right_square_bracket"}.get(key, key))

    # ---- actions

    def leave(self) -> None:
        self.app.pop_screen()

    def action_page(self, number: int) -> None:
        if not self.planner or number <= 2:  # noqa: PLR2004 - the planner changes no files
            self.number = number
            self.refresh_view(cursor=END if number == 2 else 0)  # noqa: PLR2004 - a conversation is followed

    def action_turn(self, by: int) -> None:
        if self.listing.has_focus:
            count = 2 if self.planner else len(PAGES)
            self.action_page((self.number - 1 + by) % count + 1)

    def action_attempt(self, by: int) -> None:
        state = self.fleet.watched.state
        if state is not None and self._count(state):
            self._chosen = max(1, min(self._shown_number(state) + by, self._count(state)))
            self.action_page(self.number)

    def action_shell(self) -> None:
        self._with_copy(shell())

    def action_editor(self) -> None:
        self._with_copy([*editor(), "."])

    def _with_copy(self, command: Sequence[str]) -> None:
        state = self.fleet.watched.state
        attempt = self._attempt(state) if state is not None else None
        if attempt is None or attempt.commit is None:
            self.notify("nothing is committed yet; what runs in the box can't be entered from outside", markup=False)
            return
        self.run_worker(self._open_copy(command, attempt.commit), exclusive=True, group="copy")

    async def _open_copy(self, command: Sequence[str], commit: str) -> None:
        with TemporaryDirectory(prefix=f"fleet-{self.subtask[:40]}-") as folder:
            problem = await self.fleet.watched.feed.copy(commit, Path(folder))
            if problem is not None:
                self.notify(shown(problem), severity="warning", markup=False)
                return
            self.fleet.outside(command, Path(folder))


def _filtered(lines: list[Line], wish: Wish) -> Page:
    if wish.needle:
        lines = [line for line in lines if matches(wish.needle, *(text for text, _ in line))]
    return reading(lines, empty="nothing matches")
