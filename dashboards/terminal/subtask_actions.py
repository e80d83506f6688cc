"""What a person can do to subtasks: the one under the cursor, or all that are marked."""

from collections.abc import Callable, Sequence

from dashboards.terminal.actions import EVIDENCE, Actions, subtasks_named
from dashboards.terminal.base_screen import BaseScreen, subtask_of
from dashboards.terminal.widgets.dialogs import InputDialog
from dashboards.text.safe import safe, safe_block
from fleet.core.base.ids import SubtaskId
from fleet.core.plans.revision import Drop, Revision
from fleet.core.policy.requests import Request, request_problem
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.views.run.instruction_view import when_read

INTERRUPT = "!"
"""In front of what an agent is told: the command that it runs is stopped."""
NAMED = 12  # subtasks in a dialog


class SubtaskActions(Actions):
    """The part of the application that marks subtasks, and sends requests about them."""

    # ---- marks

    def action_mark(self) -> None:
        """Mark the subtask under the cursor, or unmark it, and go on to the next row."""
        screen, id_ = self.screen, self._current("s")
        if isinstance(screen, BaseScreen) and screen.marks_rows and id_:
            self.mark(self.marked ^ {id_})
            screen.listing.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all subtasks that the page lists; if they are, unmark them."""
        screen = self.screen
        if self.replay is None and isinstance(screen, BaseScreen) and screen.marks_rows:
            listed = frozenset(filter(None, map(subtask_of, screen.listing.keys)))
            self.mark(self.marked - listed if listed <= self.marked else self.marked | listed)

    def mark(self, ids: frozenset[SubtaskId]) -> None:
        self.marked = ids
        if isinstance(self.screen, BaseScreen):
            self.screen.refresh_view()

    # ---- requests

    def _about(self, state: RunState) -> Sequence[SubtaskId]:
        """The marked subtasks, or the one under the cursor; none, with a notice, if there is none."""
        if self.marked:
            return [id_ for id_ in state.plan.ids if id_ in self.marked]
        question = state.questions.get(self._current("q"))
        id_ = self._current("s") or (question.about if question is not None else None)
        if not id_:
            self._warn("first select a subtask")
        return [SubtaskId(id_)] if id_ else []

    def _possible(
        self, state: RunState, ids: Sequence[SubtaskId], make: Callable[[SubtaskId], Request]
    ) -> Sequence[SubtaskId]:
        """Those that may be asked for now, with a notice about the others."""
        problems = {id_: request_problem(state, make(id_)) for id_ in ids}
        refused = [problem for problem in problems.values() if problem is not None]
        if refused:
            self._warn(refused[0] if len(ids) == 1 else f"{len(refused)} of {len(ids)} left out: {refused[0]}")
        return [id_ for id_, problem in problems.items() if problem is None]

    def _ask_for_each(self, ids: Sequence[SubtaskId], make: Callable[[SubtaskId], Request], done: str) -> None:
        """Send a request for each that may still have it. The marks are used up."""
        state = self._state()
        if state is not None:
            for id_ in self._possible(state, ids, make):
                self.watched.feed.ask(make(id_))
            self._sent(done)

    def _sent(self, done: str) -> None:
        self.mark(frozenset())
        self._note(done if self.watched.alive else f"{done}; no process is running it: R resumes it")

    def action_retry(self) -> None:
        state = self._state()
        if state is None:
            return

        def retry(id_: SubtaskId, guidance: str = "") -> f.RetryRequested:
            return f.RetryRequested(at=self.clock(), subtask=id_, guidance=guidance, by=self.user)

        ids = self._possible(state, self._about(state), retry)
        if not ids:
            return
        failure = state.subtasks[ids[0]].failure if len(ids) == 1 else None
        text = f"{failure.kind}: {failure.summary}\n{failure.evidence}" if failure else _listed(ids)
        title = f"Retry {subtasks_named(ids)}: guidance for the next attempt"
        dialog = InputDialog(title, safe_block(text, lines=EVIDENCE), may_be_empty=True)
        done = f"retry of {subtasks_named(ids)} requested"
        self._open(dialog, lambda guidance: self._ask_for_each(ids, lambda id_: retry(id_, guidance), done))

    def action_tell(self) -> None:
        state = self._state()
        if state is None:
            return

        def instruct(id_: SubtaskId, entered: str = "-") -> f.InstructionGiven:
            text, interrupt = entered.removeprefix(INTERRUPT).strip(), entered.startswith(INTERRUPT)
            return f.InstructionGiven(at=self.clock(), subtask=id_, text=text, by=self.user, interrupt=interrupt)

        ids = self._possible(state, self._about(state), instruct)
        if not ids:
            return
        when = when_read(state, ids[0]) if len(ids) == 1 else _listed(ids)

        def tell(entered: str) -> None:
            is_interrupt = entered.startswith(INTERRUPT)
            one = when_read(state, ids[0], interrupt=is_interrupt)
            self._ask_for_each(ids, lambda id_: instruct(id_, entered), one if len(ids) == 1 else "instructions sent")

        text = f"{when}.\n{INTERRUPT} in front of it stops the command that runs."
        whom = "the agent at" if len(ids) == 1 else "the agents at"
        self._open(InputDialog(f"Tell {whom} {subtasks_named(ids)}", safe_block(text)), tell)

    def action_drop(self) -> None:
        """Give subtasks up, with a reason: one change of the plan, however many they are."""
        state = self._state()
        if state is None:
            return

        def drop(ids: Sequence[SubtaskId], why: str = "-") -> f.PlanRevised:
            dropped = tuple(Drop(id=id_, why=why) for id_ in ids)
            revision = Revision(assessment=f"dropped by {self.user}: {why}", drop=dropped)
            return f.PlanRevised(at=self.clock(), call=None, by=self.user, revision=revision)

        ids = self._possible(state, self._about(state), lambda id_: drop([id_]))
        if not ids:
            return

        def send(why: str) -> None:
            now = self._state()
            problem = request_problem(now, request := drop(ids, why)) if now is not None else None
            if problem is not None:
                self._warn(problem)
            elif now is not None:
                self.watched.feed.ask(request)
                self._sent(f"{subtasks_named(ids)} dropped")

        text = f"{_listed(ids)}.\nWhat depends on it can't be done then. The reason is recorded in the plan."
        self._open(InputDialog(f"Drop {subtasks_named(ids)}: why?", safe_block(text)), send)


def _listed(ids: Sequence[SubtaskId]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(safe(id_, limit=60) for id_ in ids[:NAMED]) + more
