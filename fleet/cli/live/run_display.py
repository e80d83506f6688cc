"""A run on the terminal as this process works on it, and the question whether its plan may start."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import anyio
import typer

from dashboards.text.event_text import event_lines
from dashboards.text.formats import clock_in
from dashboards.text.plan_review import review_lines, waits_line
from fleet.cli import verbosity
from fleet.cli.common import send_requests
from fleet.cli.verbosity import is_quiet, show_note
from fleet.config.environment import user
from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.policy.requests import Request
from fleet.read.run import RunSnapshot, at_moment
from fleet.runs.run_folder import RunFolder

TICK_S = 0.25
YES, NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True, slots=True)
class Screen:
    """Where events and the state go. Nothing moves inside a `still` block."""

    event: Callable[[str], None]
    decision: Callable[[str], None]
    """Where a line goes that a person decides by; -q leaves it."""
    show: Callable[[RunSnapshot], None]
    still: Callable[[], AbstractContextManager[None]] = nullcontext


@contextmanager
def open_screen(*, live: bool, as_json: bool) -> Iterator[Screen]:
    """A live screen on a terminal; in a pipe one line for each event, beside JSON on standard error."""
    if as_json:
        yield Screen(event=show_note, decision=_echo_error, show=lambda *_: None)
    elif is_quiet():
        yield Screen(event=lambda _: None, decision=typer.echo, show=lambda *_: None)
    elif live:
        from rich.console import Console  # noqa: PLC0415 - only for a terminal

        from dashboards.text.summary import LiveScreen  # noqa: PLC0415

        with LiveScreen(Console(highlight=False, no_color=not verbosity.is_wanted())) as screen:
            yield Screen(screen.event, screen.event, screen.show, screen.still)
    else:
        yield Screen(typer.echo, typer.echo, show=lambda *_: sys.stdout.flush())


def _echo_error(line: str) -> None:
    typer.echo(line, err=True)


class RunDisplay:
    """Shows what the engine of this process records. If a person can answer, it asks about a plan that waits."""

    def __init__(self, folder: RunFolder, screen: Screen, shown: int = 0, *, interactive: bool) -> None:
        self._folder, self._screen, self._interactive = folder, screen, interactive
        self._skipped = shown
        """How many facts that the journal begins with are not shown."""
        self._new: list[tuple[f.Fact, RunSnapshot]] = []
        """Recorded, not shown yet."""
        self._run: RunSnapshot | None = None
        """The run after what is shown."""
        self._pending: tuple[SubtaskId, ...] = ()
        """The subtasks last shown as waiting for approval."""

    def take(self, fact: f.Fact, after: RunSnapshot) -> None:
        """Keep a fact for the next refresh. The engine calls this, so nothing is printed here."""
        if self._skipped:
            self._skipped, self._run = self._skipped - 1, after
        else:
            self._new.append((fact, after))

    async def follow(self) -> None:
        while True:
            self.refresh()
            if self._interactive and self._run is not None and self._run.asks_about_plan:
                with self._screen.still():
                    await self._ask()
            await anyio.sleep(TICK_S)

    def refresh(self) -> None:
        """Show the facts that were recorded since the last refresh, and the state."""
        self._show_new()
        if self._run is not None:
            if not self._interactive:
                self._show_pending(self._run)
            self._screen.show(at_moment(self._run, time.time()))

    def _show_pending(self, run: RunSnapshot) -> None:
        """Without a terminal to ask on: print what needs approval each time something is added to it."""
        pending = run.waiting_for_approval if run.asks_about_plan else ()
        if set(pending) - set(self._pending):
            self._screen.decision(f"{clock_in(run, run.last_at)}  {waits_line(run.review)}")
        self._pending = pending

    def _show_new(self) -> None:
        new, self._new = self._new, []
        for fact, self._run in new:
            for line in event_lines(self._run, fact):
                self._screen.event(line)

    async def _ask(self) -> None:
        """Show the plan and ask until it is approved or rejected, here or elsewhere. Nothing starts before that."""
        is_asked = False
        version_shown: tuple[int, tuple[SubtaskId, ...]] | None = None
        while (run := self._run) is not None and run.asks_about_plan:
            if version_shown != (current := (run.plan.version, run.waiting_for_approval)):
                version_shown, is_asked = current, False
                for line in review_lines(run.review):
                    self._screen.decision(line)
            if not is_asked:
                question = "Run this plan?" if run.review.unreviewed else "Approve these subtasks?"
                sys.stdout.write(f"{question} Type yes or no (or: only ID…, reject WHY), then Enter: ")
                sys.stdout.flush()
                is_asked = True
            with anyio.move_on_after(TICK_S):
                await anyio.wait_readable(sys.stdin)
                answer = sys.stdin.readline()
                is_asked = not answer  # after the end of input, an answer can only come from elsewhere
                _send_answer(self._folder, run, answer.strip())
            await anyio.sleep(TICK_S)
            self._show_new()


def _send_answer(folder: RunFolder, run: RunSnapshot, answer: str) -> None:
    """Send what was typed as a request. Anything else than a clear answer is asked again."""
    request: Request | None = None
    now, by, version = time.time(), user(), run.plan.version
    word, _, rest = answer.partition(" ")
    word, rest = word.lower(), rest.strip()
    if answer.lower() in YES:
        request = f.PlanApproved(at=now, version=version, by=by)
    elif word == "only" and rest:
        subtasks = tuple(rest.replace(",", " ").split())
        request = f.PlanApproved(at=now, version=version, by=by, subtasks=subtasks)
    elif word == "reject" and rest:
        request = f.PlanRejected(at=now, version=version, by=by, reason=rest)
    elif answer.lower() in NO and run.review.unreviewed:
        request = f.CancelRequested(at=now, by=by)
    elif answer.lower() in NO:  # a run that is at work is not cancelled because of some subtasks
        sys.stdout.write("Give a reason, and the planner revises the plan: reject WHY\n")
    if request is None:
        return
    if (problem := run.problem_of(request)) is not None:
        sys.stdout.write(f"{problem}\n")
    else:
        send_requests(folder, request)
