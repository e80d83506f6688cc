"""The terminal UI as a whole: runs that are followed, screens over them, one clock. It only reads and asks."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from dashboards.terminal.acting import Acting
from dashboards.terminal.dialogs import Words
from dashboards.terminal.incidents import story_text
from dashboards.terminal.keys import help_text
from dashboards.terminal.main import Main
from dashboards.terminal.others import RUNS, Others
from dashboards.terminal.palette import Palette
from dashboards.terminal.ports import Library
from dashboards.terminal.replayed import Replay
from dashboards.terminal.subtask import SubtaskView
from dashboards.terminal.view import View
from dashboards.terminal.watched import Watched
from fleet.ports import FleetError

TICK_S = 0.1
TAKE_S = 0.03  # of each tick, at most, for reading
LOAD_S = 0.15  # of each slice while the journal is read for the first time
GLANCE_S = 0.02  # of each second, at most, for the other runs
LOOK_S = 1.0  # how often it is seen who is alive, and clocks move
DARK, LIGHT = "textual-dark", "textual-light"


def run_program(command: Sequence[str], folder: Path | None) -> int:
    """A program of the person's that has the terminal until it ends."""
    return subprocess.run(command, cwd=folder, check=False).returncode


class FleetApp(Acting, App[None]):
    """`fleet watch`, and what `fleet run` opens on a terminal."""

    TITLE = "fleet"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Leave; the run goes on", show=False),
        Binding("ctrl+c", "stop", "Leave, drain or cancel", show=False, priority=True),
        Binding("question_mark", "help", "Help", show=False),
        Binding("t", "light", "Light or dark", show=False),
        *Acting.KEYS,
        Binding("space", "play", "Pause a replay", show=False),
        Binding("full_stop", "step", "Step in a replay", show=False),
        Binding("plus,equals_sign", "speed(2.0)", "Faster", show=False),
        Binding("minus", "speed(0.5)", "Slower", show=False),
        Binding("less_than_sign", "jump(-10)", "Ten seconds back", show=False),
        Binding("greater_than_sign", "jump(10)", "Ten seconds on", show=False),
    ]

    def __init__(
        self,
        library: Library,
        run: str,
        *,
        user: str,
        speed: float | None = None,
        light: bool = False,
        clock: Callable[[], float] = time.time,
        program: Callable[[Sequence[str], Path | None], int] = run_program,
    ) -> None:
        colour = "NO_COLOR" not in os.environ
        super().__init__(ansi_color=not colour)
        self.library, self.clock, self.user, self.program = library, clock, user, program
        self._colour = colour
        self._runs: dict[str, Watched] = {}
        self._unreadable: set[str] = set()
        self.replay: Replay | None = None
        if speed is not None:
            self.replay = Replay(library.open(run), clock, speed)
            self._runs[run] = Watched(self.replay, self.replay.now)
        self._current = run
        self._others = Others(library, clock)
        self._looked = 0.0
        self.theme = LIGHT if light else DARK

    # ---- what is watched

    @property
    def watched(self) -> Watched:
        return self._watch(self._current)

    def _watch(self, run: str) -> Watched:
        if run not in self._runs:
            self._runs[run] = Watched(self.library.open(run), self.clock)
        return self._runs[run]

    def all_watched(self) -> list[Watched]:
        """The latest runs, as far as they were read; those that can't be are left out."""
        names = self.library.names()[:RUNS]
        for name in names:
            if name in self._unreadable or name in self._runs:
                continue
            try:
                self._watch(name)
            except FleetError:
                self._unreadable.add(name)
        return [self._runs[name] for name in names if name in self._runs]

    def switch(self, run: str) -> None:
        self._current = run
        self._look()
        self._load()
        self._tick()

    def in_need(self) -> list[str]:
        """Other runs that need somebody. A replay is of its time, and they are not."""
        return self._others.in_need() if self.replay is None else []

    def note(self) -> str:
        """What the header says about a replay."""
        replay = self.replay
        if replay is None or self._current != replay.run:
            return ""
        how = "over" if replay.over else "paused" if replay.paused else f"{replay.speed:g} times as fast"
        return f"REPLAY {how} {replay.position:.0f}/{replay.length:.0f} s"

    # ---- the clock

    def on_mount(self) -> None:
        self.push_screen(Main(self._palette()))
        self.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self._look()
        self._load()
        self.set_interval(TICK_S, self._tick)

    def _load(self) -> None:
        """Slice by slice to the end of the journal; keys are heard in between."""
        if not self.watched.loaded:
            self.watched.catch_up(LOAD_S)
            self._refresh()
            self.call_later(self._load)

    def _tick(self) -> None:
        watched, now = self.watched, self.clock()
        changed = watched.catch_up(TAKE_S)
        if now - self._looked >= LOOK_S or self.replay is not None:
            changed = True
            self._look()
        if changed or (self._view is not None and self._view.stirs()):
            self._refresh()

    def _look(self) -> None:
        """Who is alive; and on the page of runs a glance at the others."""
        self._looked = self.clock()
        self.watched.look()
        if self.replay is None:
            self._others.look(GLANCE_S, but=self._current)
        screen = next((s for s in self.screen_stack if isinstance(s, Main)), None)
        if screen is not None and screen.number == 0:
            for other in self.all_watched():
                if other is not self.watched:
                    other.look()
                    self._take(other)

    def _take(self, other: Watched) -> None:
        try:
            other.catch_up(TAKE_S)
        except FleetError:
            self._unreadable.add(other.feed.run)

    @property
    def _view(self) -> View | None:
        """The full screen that is on top, or below a dialog."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, View)), None)

    def _refresh(self) -> None:
        if self._view is not None:
            self._view.refresh_view()

    # ---- colours

    def _palette(self) -> Palette:
        return Palette(self.theme_variables, colour=self._colour)

    def _repaint(self) -> None:
        for screen in self.screen_stack:
            if isinstance(screen, View):
                screen.repaint(self._palette())

    def action_light(self) -> None:
        self.theme = DARK if self.theme == LIGHT else LIGHT

    # ---- screens

    def open_subtask(self, id_: str) -> None:
        state = self.watched.state
        if state is not None and (id_ == "planner" or id_ in state.subtasks):
            self.push_screen(SubtaskView(self._palette(), id_))

    def open_incident(self, number: int) -> None:
        """Its story, to be read."""
        state = self.watched.state
        told = story_text(state, number, self.watched.now) if state is not None else None
        if told is not None:
            self.push_screen(Words(*told))

    def action_help(self) -> None:
        if not isinstance(self.screen, Words):
            self.push_screen(Words("Keys", help_text()))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The command palette: what the keys do, by name."""
        yield from self.commands()
        yield SystemCommand("Help", "Every key", self.action_help)
        yield SystemCommand("Light or dark", "Change the colours", self.action_light)
        yield SystemCommand("Leave", "The run goes on", self.action_leave)
        del screen

    def action_leave(self) -> None:
        self.exit()

    # ---- replay

    def action_play(self) -> None:
        if self.replay is not None:
            self.replay.pause(not self.replay.paused)
            self._tick()

    def action_step(self) -> None:
        if self.replay is not None:
            self.replay.step()
            self._tick()

    def action_speed(self, factor: float) -> None:
        if self.replay is not None:
            self.replay.faster(factor)
            self._tick()

    def action_jump(self, seconds: float) -> None:
        if self.replay is not None:
            if self.replay.jump(seconds):
                self._runs[self.replay.run] = Watched(self.replay, self.replay.now)
            self._tick()
