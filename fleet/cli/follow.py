"""A run on the screen while it goes on, as its journal tells it, and the question whether its plan may run."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import anyio
import typer

from dashboards.reviewing import review_lines, waits_line
from dashboards.words import said
from fleet.core import facts as f
from fleet.core.approval import awaits_approval, revising, untouched, waiting
from fleet.core.ids import SubtaskId
from fleet.core.requests import Request, accept
from fleet.core.state import RunState
from fleet.environment import user
from fleet.folders import RunFolder
from fleet.journal import Journal, View

TICK_S = 0.25
YES, NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Screen:
    """Where events and the state go. While something is asked, nothing on it moves."""

    event: Callable[[str], None]
    show: Callable[[RunState, float], None]
    still: Callable[[], AbstractContextManager[None]] = nullcontext


@contextmanager
def open_screen(*, live: bool, quiet: bool) -> Iterator[Screen]:
    """A live screen on a terminal; one line an event in a pipe."""
    if quiet:
        yield Screen(event=lambda line: typer.echo(line, err=True), show=lambda *_: None)
    elif live:
        from rich.console import Console

        from dashboards.live import LiveScreen

        with LiveScreen(Console(highlight=False)) as shown:
            yield Screen(event=shown.event, show=shown.show, still=shown.still)
    else:
        yield Screen(event=typer.echo, show=lambda *_: sys.stdout.flush())


class Follower:
    """Shows the journal as it grows; a plan that waits for approval is shown, and asked about."""

    def __init__(self, folder: RunFolder, screen: Screen, known: int, *, interactive: bool) -> None:
        self._folder, self._screen, self._interactive = folder, screen, interactive
        self._shown = known
        self._told: tuple[SubtaskId, ...] = ()
        """What was said to wait for approval."""

    async def follow(self) -> None:
        with Journal(self._folder.journal) as journal:
            view = View(journal)
            while True:
                self._tick(view)
                if self._interactive and view.state is not None and _asks(view.state):
                    with self._screen.still():
                        await self._review(journal, view)
                await anyio.sleep(TICK_S)

    def catch_up(self) -> None:
        """The last words, written after the follower looked for the last time."""
        with Journal(self._folder.journal) as journal:
            self._tick(View(journal))

    def _tick(self, view: View) -> None:
        self._read(view)
        if view.state is not None:
            if not self._interactive:
                self._tell_what_waits(view.state)
            self._screen.show(view.state, time.time())

    def _tell_what_waits(self, state: RunState) -> None:
        """Where nobody can be asked, what only a person can let begin is said whenever there is more of it."""
        waits = waiting(state) if _asks(state) else ()
        if set(waits) - set(self._told):
            self._screen.event(f"{_clock(state, state.last_at)}  {waits_line(state)}")
        self._told = waits

    def _read(self, view: View) -> None:
        def event(state: RunState, fact: f.Fact) -> None:
            if view.seq > self._shown:
                self._shown = view.seq
                for row in (said(state, fact) or "").splitlines():
                    self._screen.event(f"{stamp(state, fact)}  {row}")

        view.refresh(event)

    async def _review(self, journal: Journal, view: View) -> None:
        """Show the plan and ask until there is an answer, here or from elsewhere; nothing runs before."""
        asked = False
        shown: tuple[int, tuple[SubtaskId, ...]] | None = None
        while view.state is not None and _asks(view.state):
            if shown != (looked_at := (view.state.plan.version, waiting(view.state))):
                shown, asked = looked_at, False
                for line in review_lines(view.state):
                    self._screen.event(line)
            if not asked:
                _prompt(view.state)
                asked = True
            with anyio.move_on_after(TICK_S):
                await anyio.wait_readable(sys.stdin)
                answer = sys.stdin.readline()
                asked = not answer  # after the end of input, an answer can only come from elsewhere
                _decide(journal, view.state, answer.strip())
            await anyio.sleep(TICK_S)
            self._read(view)


def _asks(state: RunState) -> bool:
    """Whether somebody is to be asked; not before the rules have spoken, nor while the planner revises."""
    if state.engine_since is None or state.ended or state.cancelled or state.draining:
        return False
    return awaits_approval(state) and not revising(state)


def _prompt(state: RunState) -> None:
    first = "Run this plan? Type yes or no (or: only ID…, reject WHY), then Enter: "
    later = "Let what waits begin? Type yes (or: only ID…, reject WHY), then Enter: "
    sys.stdout.write(first if untouched(state) else later)
    sys.stdout.flush()


def _decide(journal: Journal, state: RunState, answer: str) -> None:
    """What was typed, as a request; anything but a clear word is asked again."""
    now, who = time.time(), user()
    request: Request | None = None
    word, _, reason = answer.partition(" ")
    if answer.lower() in YES:
        request = f.PlanApproved(at=now, version=state.plan.version, by=who)
    elif word.lower() == "only" and reason.strip():
        part = tuple(reason.replace(",", " ").split())
        request = f.PlanApproved(at=now, version=state.plan.version, by=who, subtasks=part)
    elif answer.lower() in NO and untouched(state):
        request = f.CancelRequested(at=now, by=who)
    elif answer.lower() in NO:  # a run that is at work is not given up for a part of it
        sys.stdout.write("Say why, and the planner revises: reject WHY\n")
    elif word.lower() == "reject" and reason.strip():
        request = f.PlanRejected(at=now, version=state.plan.version, by=who, reason=reason.strip())
    if request is None:
        return
    if (problem := accept(state, request)) is not None:
        sys.stdout.write(f"{problem}\n")
    else:
        journal.ask(request)


def stamp(state: RunState, fact: f.Fact) -> str:
    """When in the run it happened."""
    return _clock(state, fact.at)


def _clock(state: RunState, at: float) -> str:
    minutes, seconds = divmod(int(max(0.0, at - state.started_at)), 60)
    return f"{minutes:3}:{seconds:02}"
