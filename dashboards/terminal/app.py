"""The application of the terminal UI: runs, screens and a clock. It reads journals and sends requests."""

import subprocess
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product, zip_longest
from pathlib import Path
from typing import ClassVar, Literal

from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from dashboards.state_history import RunReplay
from dashboards.subtask_map import needs
from dashboards.terminal.actions import SubtaskActions, TextDialog, text_width
from dashboards.terminal.base_screen import BaseScreen
from dashboards.terminal.landing_page import story_text
from dashboards.terminal.lines import DARK, DARK_16, LIGHT, LIGHT_16, LOOKS, PLAIN, Painted, Palette
from dashboards.terminal.main_screen import OVERVIEW, RUNS, TITLES, MainScreen
from dashboards.terminal.subtask_screen import SubtaskScreen
from dashboards.text.event_text import events_of
from fleet.core.base.ids import SubtaskId
from fleet.read.follow import FollowedRun, FollowedRuns, RunLibrary

# ---- keys ------------------------------------------------------------------------------------------------------------
# Every key, in one place: the help, the command palette and docs/reference/keys.md show these tables.


ACTIONS: Mapping[str, tuple[str, str]] = {
    "a": ("answer", "answer the selected question, or the first open one"),
    "A": ("approve", "approve everything that is waiting, the marked subtasks, or the selected one"),
    "X": ("reject", "reject with a reason, so that the planner revises the plan"),
    "E": ("edit", "edit the plan in $EDITOR, and apply it if it is valid"),
    "r": ("retry", "retry the marked subtasks, or the selected one, with your guidance"),
    "T": ("tell", "send an instruction to the agents of the marked subtasks, or of the selected one"),
    "x": ("drop", "drop the marked subtasks, or the selected one, with a reason"),
    "P": ("pause", "start no new agents (press again to unpause)"),
    "W": ("workers", "set the maximum number of agents"),
    "B": ("budget", "set the maximum cost of the run in USD"),
    "R": ("resume", "resume an interrupted run"),
    "C": ("cancel", "cancel the run and stop its agents (asks first)"),
    "m": ("take", "merge the result of an ended run into your current branch (`fleet merge`)"),
    "D": ("drain", "let running agents finish, then stop (asks first)"),
}
"""Keys that send requests, each with the name of its action."""
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Moving": {
        "↑↓ jk": "previous / next row",
        "PgUp PgDn": "page up / page down, also Ctrl-U and Ctrl-D",
        "g G": "first row / last row (at the bottom, the list follows new rows)",
        "Enter": "open the selected subtask, question, run or plan version",
        "Esc": "go back, or clear the filter or the marks",
        "Tab": "next page (Shift-Tab: previous page)",
        "0 … 8": "runs, overview, agents, plan, landing, incidents, events, cost, nodes",
        "/": "filter rows by words, or search in a text (Enter keeps the filter, Esc clears it)",
        "n N": "next / previous match in a text",
        "y": "copy the selected name, commit or merge command",
        "o O": "agents: change the sort order (o) or reverse it (O), or click a column header",
        "Space *": "mark or unmark the selected subtask (Space) or all in the list (*) for actions",
        "Backspace": "previous page",
    },
    "Actions (a stopped run applies them when it resumes)": {key: meaning for key, (_, meaning) in ACTIONS.items()},
    "Subtask": {
        "1 … 4": "story, conversation, diff, checks with logs",
        "[ ]": "previous / next attempt",
        "f": "conversation: fold messages to one line each, or unfold them",
        "d": "diff: switch between side by side and unified",
        "s": "open a shell in a copy of the attempt's commit",
        "e": "open $EDITOR in a copy of the attempt's commit",
    },
    "RunReplay": {
        "Space": "pause or play",
        ".": "next fact",
        "+ -": "double / halve the speed",
        "< >": "back / forward ten seconds",
        "{ }": "previous / next failure (or click the bar to jump)",
    },
    "General": {
        "q": "leave (the run continues without you)",
        "Ctrl-C": "leave, drain or cancel (asks first)",
        "t": "switch between light and dark",
        "Ctrl-P": "find any command by name",
        "?": "show this help",
    },
}


TWO_COLUMNS = 96  # cells: minimum width for two columns of help
KEYS = 11  # cells of the column of keys
GAP = "   "


def help_text(width: int = 80) -> str:
    """All keys, in two columns if the width allows."""
    if width < TWO_COLUMNS:
        return "\n".join(_column(GROUPS, width)).strip()
    size = (width - len(GAP)) // 2
    columns = [_column({title: GROUPS[title]}, size) for title in GROUPS]
    left, right = min(_splits(columns), key=lambda split: max(map(len, split)))
    rows = zip_longest(left, right, fillvalue="")
    return "\n".join(f"{one:<{size}}{GAP}{other}".rstrip() for one, other in rows).strip()


def _splits(groups: Sequence[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """All ways to put groups into two columns, the first group into the first."""
    for sides in product((True, False), repeat=len(groups) - 1):
        split: tuple[list[str], list[str]] = ([], [])
        for group, is_right in zip(groups, (False, *sides), strict=True):
            split[is_right].extend(group)
        yield split


def _column(groups: Mapping[str, Mapping[str, str]], width: int) -> list[str]:
    lines = []
    for title, keys in groups.items():
        lines += textwrap.wrap(title, width)
        for key, meaning in keys.items():
            first, rest = f"  {key:<{KEYS}}", " " * (KEYS + 2)
            lines += textwrap.wrap(meaning, width, initial_indent=first, subsequent_indent=rest)
        lines.append("")
    return lines


# ---- app -------------------------------------------------------------------------------------------------------------


TICK_S = 0.1
READ_S = 0.03  # of each tick, at most, for reading
LOAD_S = 0.15  # of each slice while the journal is read for the first time
OTHERS_S = 0.02  # of each look, at most, for other runs
LOOK_S = 1.0  # interval for redrawing ages and for checking engines and other runs
Colours = Literal["true", "16", "none"]
"""The number of colors of a terminal."""
LOOKS_OF = {"true": (DARK, LIGHT), "16": (DARK_16, LIGHT_16), "none": (PLAIN, PLAIN)}


def run_program(command: Sequence[str], folder: Path | None) -> int:
    """Run a program in the foreground. Return its exit code."""
    return subprocess.run(command, cwd=folder, check=False).returncode


def attention_signs(needed: int, *, is_new: bool) -> str:
    """Escape sequences for the terminal title and a desktop notification (OSC 9), which other terminals ignore."""
    title = f"\x1b]0;{f'(!{needed}) ' if needed else ''}fleet\x07"
    return f"{title}\x1b]9;fleet needs you\x07" if is_new else title


class FleetApp(SubtaskActions):
    """The full screen of `fleet watch` and `fleet run`."""

    TITLE = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Leave (the run continues)", show=False),
        Binding("ctrl+c", "stop", "Leave, drain or cancel", show=False, priority=True),
        Binding("question_mark", "help", "Help", show=False),
        Binding("t", "light", "Switch theme", show=False),
        *(Binding(key, name, meaning, show=False) for key, (name, meaning) in ACTIONS.items()),
        Binding("space", "space", "Pause a replay, or mark a subtask", show=False),
        Binding("asterisk", "mark_all", "Mark all subtasks", show=False),
        Binding("full_stop", "step", "Step in a replay", show=False),
        Binding("plus,equals_sign", "speed(2.0)", "Faster", show=False),
        Binding("minus", "speed(0.5)", "Slower", show=False),
        Binding("less_than_sign", "jump(-10)", "Ten seconds back", show=False),
        Binding("greater_than_sign", "jump(10)", "Ten seconds forward", show=False),
        Binding("left_curly_bracket", "failure(-1)", "Previous failure", show=False),
        Binding("right_curly_bracket", "failure(1)", "Next failure", show=False),
    ]

    def __init__(
        self,
        library: RunLibrary,
        run: str,
        *,
        user: str,
        editor_command: Sequence[str] = ("vi",),
        shell_command: Sequence[str] = ("sh",),
        fleet_command: Sequence[str] = ("fleet",),
        colours: Colours = "true",
        speed: float | None = None,
        light: bool = False,
        clock: Callable[[], float] = time.time,
        program: Callable[[Sequence[str], Path | None], int] = run_program,
    ) -> None:
        super().__init__(ansi_color=colours != "true")
        self.library, self.clock, self.program = library, clock, program
        self.user, self.editor_command, self.shell_command = user, editor_command, shell_command
        for look in LOOKS.values():
            self.register_theme(look.theme)
        self.fleet_command = fleet_command
        self._looks = LOOKS_OF[colours]
        self.theme = self._looks[light].theme.name
        self.replay = RunReplay(library.open(run), clock, speed) if speed is not None else None
        self.watched = self._watch(run)
        self._others = FollowedRuns(library, clock)
        self.marked = frozenset()
        self.in_need: Sequence[str] = ()
        """Other runs that need a person. Empty in a replay, which shows another time."""
        self._looked_at = 0.0
        self._needed = 0

    # ---- what is watched

    def _watch(self, run: str) -> FollowedRun:
        clock = self.replay.now if self.replay is not None else self.clock
        return FollowedRun(self.library.open(run), clock, facts=self.replay, tell=events_of)

    def _rewatch(self, run: str) -> None:
        before, self.watched = self.watched, self._watch(run)
        before.feed.close()

    def all_runs(self) -> list[FollowedRun]:
        """The current run, then the other latest runs."""
        return [self.watched, *self._others.readable()]

    def switch(self, run: str) -> None:
        """Show another run."""
        if run != self.watched.feed.run:
            self.replay = None
            self.marked = frozenset()
            self._rewatch(run)
        self._look()
        self._load()

    # ---- the clock

    def on_mount(self) -> None:
        self._change_palette()
        self.theme_changed_signal.subscribe(self, lambda _: self._change_palette())
        self.push_screen(MainScreen())
        self._look()
        self._load()
        self.set_interval(TICK_S, self._tick)

    def _load(self) -> None:
        """Read the journal in slices, so that keys keep working."""
        if not self.watched.loaded:
            self.watched.catch_up(LOAD_S)
            self._refresh()
            self.call_later(self._load)

    def _tick(self) -> None:
        is_due = self.clock() - self._looked_at >= LOOK_S
        if is_due:
            self._look()
        elif self.replay is not None:
            self.watched.look()
        has_facts = self.watched.catch_up(READ_S)
        if is_due or has_facts or self.replay is not None or (self._view is not None and self._view.has_news()):
            self._refresh()

    def _look(self) -> None:
        """Check whether the current run has an engine, and continue reading the other runs."""
        self._looked_at = self.clock()
        self.watched.look()
        is_listing_runs = isinstance(self._view, MainScreen) and self._view.number == RUNS
        self._others.look(LOAD_S if is_listing_runs else OTHERS_S, but=self.watched.feed.run)
        others = self._others.readable() if self.replay is None else []
        self.in_need = [run.feed.run for run in others if run.loaded and needs(run)]
        self._call_for_attention()

    def _call_for_attention(self) -> None:
        """Ring once for each new need, and show their number in the terminal title."""
        needed = len(self.in_need)
        if self.replay is None and self.watched.loaded:
            needed += len(needs(self.watched))
        if needed == self._needed:
            return
        before, self._needed = self._needed, needed
        if needed and not before:
            self.bell()
        if self._driver is not None and not self.is_headless:
            self._driver.write(attention_signs(needed, is_new=bool(needed) and not before))

    @property
    def _view(self) -> BaseScreen | None:
        """The topmost full screen, possibly below a dialog."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, BaseScreen)), None)

    def _refresh(self) -> None:
        if self._view is not None:
            self._view.refresh_view()

    # ---- colors

    def _change_palette(self) -> None:
        dark, light = self._looks
        self.palette = Palette(light if self.theme == light.theme.name else dark)
        for screen in self.screen_stack:
            for widget in screen.query(Painted):
                widget.repaint()

    def action_light(self) -> None:
        dark, light = self._looks
        self.theme = (dark if self.theme == light.theme.name else light).theme.name

    # ---- screens

    def open_subtask(self, id_: str) -> None:
        snapshot = self.watched.snapshot
        if snapshot is not None and (id_ == "planner" or snapshot.has_subtask(id_)):
            self.push_screen(SubtaskScreen(SubtaskId(id_)))

    def open_incident(self, number: int) -> None:
        """Show the story of an incident."""
        snapshot = self.watched.snapshot
        if snapshot is not None:
            self.push_screen(TextDialog(*story_text(snapshot, number)))

    def action_help(self) -> None:
        if not isinstance(self.screen, TextDialog):
            self.push_screen(TextDialog("Keys", help_text(text_width(self.size.width))))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The entries of the command palette: pages, keys, runs and subtasks."""
        del screen
        for number, title in TITLES.items():
            yield SystemCommand(f"Page: {title}", f"open it (key {number})", partial(self._open_page, number))
        for key, (name, meaning) in ACTIONS.items():
            yield SystemCommand(name.capitalize(), f"{key}: {meaning}", getattr(self, f"action_{name}"))
        yield SystemCommand("Help", "Show all keys", self.action_help)
        yield SystemCommand("Switch theme", "Switch between light and dark", self.action_light)
        yield SystemCommand("Leave", "The run continues", self.exit)
        for run in self.all_runs()[1:]:
            yield SystemCommand(f"Run: {run.feed.run}", "show it", partial(self._open_run, run.feed.run))
        snapshot = self.watched.snapshot
        for id_ in snapshot.subtask_ids() if snapshot is not None else ():
            yield SystemCommand(f"Subtask: {id_}", "open it", partial(self.open_subtask, id_))

    def _open_page(self, number: int) -> None:
        while not isinstance(self.screen, MainScreen) and len(self.screen_stack) > 1:
            self.pop_screen()
        if isinstance(self.screen, MainScreen):
            self.screen.action_page(number)

    def _open_run(self, run: str) -> None:
        self._open_page(OVERVIEW)
        if isinstance(self.screen, MainScreen):
            self.screen.open_run(run)

    # ---- replay

    def action_space(self) -> None:
        if self.replay is not None:
            self.action_play()
        else:
            self.action_mark()

    def _steer(self, change: Callable[[RunReplay], None]) -> None:
        if self.replay is not None:
            change(self.replay)
            self._tick()

    def action_play(self) -> None:
        self._steer(lambda replay: replay.pause(not replay.paused))

    def action_step(self) -> None:
        self._steer(RunReplay.step)

    def action_speed(self, factor: float) -> None:
        self._steer(lambda replay: replay.faster(factor))

    def action_jump(self, seconds: float) -> None:
        self._steer(lambda replay: replay.jump(seconds))
        if self.replay is not None and seconds < 0:
            self._rewatch(self.watched.feed.run)  # reads the facts again from the start

    def action_failure(self, by: int) -> None:
        """Jump to the previous or the next failure."""
        if self.replay is not None:
            self.seek(self.replay.next_failure(by))

    def seek(self, position: float) -> None:
        """Jump to a position of the replay."""
        if self.replay is not None:
            self.action_jump(position - self.replay.position)
