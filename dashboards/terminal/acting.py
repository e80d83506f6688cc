"""What a person asks of a run: each a request in its inbox, made sure of where it destroys. Nothing is done here."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import SuspendNotSupported, SystemCommand
from textual.binding import Binding

from dashboards.reviewing import review_lines
from dashboards.safe import safe_block
from dashboards.terminal.dialogs import Ask, Choose, Confirm, Words, text_width
from dashboards.terminal.lines import hanging, shown
from dashboards.terminal.view import View
from fleet.core import facts as f
from fleet.core.amend import amendment
from fleet.core.approval import awaits_approval, waiting
from fleet.core.ids import SubtaskId
from fleet.core.plan import Plan
from fleet.core.requests import Request, accept
from fleet.core.standing import gone
from fleet.core.state import Question, RunState

if TYPE_CHECKING:
    from textual.app import App

    from dashboards.terminal.replayed import Replay
    from dashboards.terminal.watched import Watched

    Base = App[None]
else:
    Base = object

EVIDENCE = 60  # lines


class Acting(Base):
    """The part of the application that asks."""

    KEYS: ClassVar[list[Binding]] = [
        Binding("a", "answer", "Answer a question", show=False),
        Binding("A", "approve", "Approve the plan", show=False),
        Binding("X", "reject", "Reject the plan", show=False),
        Binding("E", "edit", "Edit the plan", show=False),
        Binding("r", "retry", "Retry with guidance", show=False),
        Binding("P", "pause", "Pause, or go on", show=False),
        Binding("W", "workers", "Number of workers", show=False),
        Binding("B", "budget", "Budget", show=False),
        Binding("R", "resume", "Resume", show=False),
        Binding("C", "cancel", "Cancel the run", show=False),
        Binding("D", "drain", "Drain the run", show=False),
    ]
    clock: Callable[[], float]
    user: str
    program: Callable[[Sequence[str], Path | None], int]
    replay: Replay | None

    @property
    def watched(self) -> Watched:
        raise NotImplementedError

    def commands(self) -> Iterable[SystemCommand]:
        for binding in self.KEYS:
            action = getattr(self, f"action_{binding.action}")
            yield SystemCommand(binding.description, f"Key {binding.key}", action)

    def _state(self) -> RunState | None:
        """The run to ask something of; None, and said why, where that can't be."""
        if self.replay is not None:
            self.notify("this is a replay: nothing can be asked of it", markup=False)
            return None
        return self.watched.state

    def ask(self, request: Request, done: str) -> bool:
        """Put a request into the inbox, if it makes sense now."""
        state = self._state()
        if state is None:
            return False
        problem = accept(state, request)
        if problem is not None:
            self.notify(shown(problem), severity="warning", markup=False)
            return False
        self.watched.feed.ask(request)
        later = "" if self.watched.alive else "; nobody works on it now: R resumes it"
        self.notify(f"{done}{later}", markup=False)
        return True

    # ---- questions

    def action_answer(self, id_: str = "") -> None:
        state = self._state()
        if state is None:
            return
        question = state.questions.get(id_ or self._question_here(state))
        if question is None or question.answer is not None:
            self.notify("no question is open", markup=False)
            return
        dialog = Ask(
            f"{question.id}: {shown(question.text, 600)}",
            _evidence(question),
            options=tuple(map(shown, question.options)),
        )
        self.push_screen(dialog, lambda text: self._answered(question.id, text))

    def _question_here(self, state: RunState) -> str:
        """Of the row the cursor is on, or the first that is open."""
        here = self._key_here()
        if here.startswith("q:"):
            return here[2:]
        about = state.subtasks.get(here[2:]) if here.startswith("s:") else None
        if about is not None and about.question is not None:
            return about.question
        return next((question.id for question in state.open_questions()), "")

    def _key_here(self) -> str:
        return self.screen.key_here() if isinstance(self.screen, View) else ""

    def _answered(self, id_: str, text: str | None) -> None:
        if text:
            self.ask(f.QuestionAnswered(at=self.clock(), question=id_, answer=text, by=self.user), f"{id_} answered")

    # ---- the plan

    def _awaiting(self) -> RunState | None:
        """The run, if its plan waits for somebody's word."""
        state = self._state()
        if state is not None and not awaits_approval(state):
            self.notify("no plan waits for approval", markup=False)
            return None
        return state

    def action_approve(self) -> None:
        state = self._awaiting()
        if state is None:
            return
        version, part = state.plan.version, self._part_here(state)
        choices = {"y": "yes" if part is None else "yes, all"} | ({} if part is None else {"o": f"only {part[0]}"})
        dialog = Choose(f"Let version {version} of the plan begin?", self._to_review(state), choices)
        self.push_screen(dialog, lambda key: self._approved(version, part if key == "o" else None) if key else None)

    def _to_review(self, state: RunState, part: tuple[SubtaskId] | None = None) -> str:
        """What waits, as wide as a dialog; what goes on in a second line stays below where it began."""
        return "\n".join(hanging(line, text_width(self.size.width)) for line in review_lines(state, part))

    def _part_here(self, state: RunState) -> tuple[SubtaskId] | None:
        """The subtask under the cursor, where it waits and others do, too."""
        id_, waits = self._key_here().removeprefix("s:"), waiting(state)
        return (id_,) if id_ in waits and len(waits) > 1 else None

    def _approved(self, version: int, part: tuple[SubtaskId] | None) -> None:
        request = f.PlanApproved(at=self.clock(), version=version, by=self.user, subtasks=part)
        self.ask(request, f"plan version {version} approved{_of(part)}")

    def action_reject(self) -> None:
        state = self._awaiting()
        if state is None:
            return
        part = self._part_here(state)
        if part is None:
            self._why_not(state, None)
            return
        choices = {"a": f"all {len(waiting(state))} that wait", "o": f"only {part[0]}"}
        dialog = Choose("What do you say no to?", self._to_review(state), choices, no="nothing")
        self.push_screen(dialog, lambda key: self._why_not(state, part if key == "o" else None) if key else None)

    def _why_not(self, state: RunState, part: tuple[SubtaskId] | None) -> None:
        version = state.plan.version
        title = f"Reject version {version}{_of(part)}: what should be different?"
        dialog = Ask(title, self._to_review(state, part))
        self.push_screen(dialog, lambda reason: self._rejected(version, part, reason))

    def _rejected(self, version: int, part: tuple[SubtaskId] | None, reason: str | None) -> None:
        if reason:
            request = f.PlanRejected(at=self.clock(), version=version, by=self.user, reason=reason, subtasks=part)
            self.ask(request, f"plan version {version} rejected{_of(part)}; the planner is told")

    def action_edit(self) -> None:
        state = self._state()
        if state is None:
            return
        if not state.plan.subtasks or state.ended:
            self.notify("there is no plan to edit", markup=False)
            return
        with TemporaryDirectory(prefix="fleet-plan-") as folder:
            path = Path(folder) / "plan.toml"
            self.watched.feed.write_plan(state.plan, path)
            if not self.outside([*editor(), str(path)], None):
                return
            edited = self.watched.feed.read_plan(path)
        self._edited(state, edited)

    def _edited(self, state: RunState, edited: Plan | str) -> None:
        if isinstance(edited, str):
            self.push_screen(Words("The plan was not changed", safe_block(edited)))
            return
        made = amendment(state.plan, edited, why=f"edited by {self.user}", gone=gone(state))
        if isinstance(made, str):
            self.push_screen(Words("The plan was not changed", safe_block(made)))
        elif not made.changes_plan:
            self.notify("the plan is as it was", markup=False)
        else:
            request = f.PlanRevised(at=self.clock(), call=None, by=self.user, revision=made)
            problem = accept(state, request)
            if problem is not None:
                self.push_screen(Words("The plan was not changed", safe_block(problem)))
            else:
                self.ask(request, "the plan was changed")

    # ---- the run

    def action_retry(self) -> None:
        state, here = self._state(), self._key_here()
        if state is None:
            return
        id_ = here[2:] if here.startswith("s:") else ""
        question = state.questions.get(here[2:]) if here.startswith("q:") else None
        if question is not None and question.about:
            id_ = question.about
        problem = (
            accept(state, f.RetryRequested(at=self.clock(), subtask=id_, guidance="", by=self.user)) if id_ else ""
        )
        if problem is not None:
            self.notify(shown(problem or "move to a subtask that failed first"), severity="warning", markup=False)
            return
        failure = state.subtasks[id_].failure
        text = f"{failure.kind}: {failure.summary}\n{failure.evidence}" if failure else ""
        dialog = Ask(
            f"Retry {shown(id_)}: what should be done differently?", safe_block(text, lines=EVIDENCE), may_be_empty=True
        )
        self.push_screen(dialog, lambda guidance: self._retried(id_, guidance))

    def _retried(self, id_: str, guidance: str | None) -> None:
        if guidance is not None:
            request = f.RetryRequested(at=self.clock(), subtask=id_, guidance=guidance, by=self.user)
            self.ask(request, f"{shown(id_)} will be tried again")

    def action_pause(self) -> None:
        state = self._state()
        if state is None:
            return
        if state.paused:
            self.ask(f.Unpaused(at=self.clock(), by=self.user), "goes on")
        else:
            self.ask(f.Paused(at=self.clock(), by=self.user), "nothing new begins")

    def action_cancel(self) -> None:
        text = "What runs is stopped. What has landed stays on its branch, finished work stays in the store."
        self._sure("Cancel this run?", text, lambda: f.CancelRequested(at=self.clock(), by=self.user), "cancelled")

    def action_drain(self) -> None:
        text = "Nothing new begins; what runs may finish. Then the run stops, and `fleet resume` goes on with it."
        self._sure("Drain this run?", text, lambda: f.DrainRequested(at=self.clock(), by=self.user), "draining")

    def _sure(self, title: str, text: str, request: Callable[[], Request], done: str) -> None:
        if self._state() is not None:
            self.push_screen(Confirm(title, text), lambda yes: self._asked(request(), done) if yes else None)

    def _asked(self, request: Request, done: str) -> None:
        self.ask(request, done)

    def action_stop(self) -> None:
        """Ctrl-C: what people press when they want it to stop, so it says what that can mean."""
        options = (
            "leave: the run goes on without you",
            "drain: let what runs finish, then stop",
            "cancel: stop it now",
        )
        if not isinstance(self.screen, Ask):
            self.push_screen(Ask("Leave, drain or cancel?", "", options=options), self._stopped)

    def _stopped(self, choice: str | None) -> None:
        match (choice or "").partition(":")[0].strip().lower():
            case "leave":
                self.exit()
            case "drain":
                self.action_drain()
            case "cancel":
                self.action_cancel()
            case _:
                pass

    def action_workers(self) -> None:
        state = self._state()
        if state is not None:
            dialog = Ask(
                "How many agents at once?", "1 to 1000; those that are busy finish", value=str(state.policy.workers)
            )
            self.push_screen(dialog, lambda text: self._limit(text, int, "workers"))

    def action_budget(self) -> None:
        state = self._state()
        if state is not None:
            now = state.policy.budget_dollars
            spent = f"{state.spent.priced_dollars:.2f} dollars are spent"
            dialog = Ask("How many dollars in all?", spent, value=f"{now:g}" if now is not None else "")
            self.push_screen(dialog, lambda text: self._limit(text, float, "budget_dollars"))

    def _limit(self, text: str | None, number: Callable[[str], float], name: str) -> None:
        if text is None:
            return
        try:
            value: Any = number(text.lstrip("$ "))
            request = f.LimitsChanged.model_validate({"at": self.clock(), "by": self.user, name: value})
        except ValueError:
            self.notify(f"{shown(text)} is no number", severity="warning", markup=False)
            return
        self.ask(request, f"{name.partition('_')[0]}: {value:g}")

    def action_resume(self) -> None:
        state = self._state()
        if state is None:
            return
        if self.watched.alive:
            self.notify("it is worked on already", markup=False)
            return
        if state.paused:
            self.ask(f.Unpaused(at=self.clock(), by=self.user), "goes on")
        problem = self.watched.feed.resume()
        self.notify(
            shown(problem or "resumed, in the background"),
            severity="warning" if problem else "information",
            markup=False,
        )

    # ---- programs of the person's

    def outside(self, command: Sequence[str], folder: Path | None) -> bool:
        """Give the terminal to a program until it ends; False, and said why, where that can't be."""
        try:
            with self.suspend():
                code = self.program(command, folder)
        except SuspendNotSupported:
            self.notify("this terminal can't be given to another program", severity="warning", markup=False)
            return False
        except OSError as error:
            self.notify(f"{shown(command[0])}: {error.strerror}; set EDITOR or SHELL", severity="warning", markup=False)
            return False
        if code:
            self.notify(f"{shown(command[0])} ended with exit code {code}", markup=False)
        return True


def editor() -> list[str]:
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def _of(part: tuple[SubtaskId] | None) -> str:
    return "" if part is None else f" for {part[0]}"


def _evidence(question: Question) -> str:
    return safe_block(question.evidence, lines=EVIDENCE)


def shell() -> list[str]:
    return shlex.split(os.environ.get("SHELL") or "sh")
