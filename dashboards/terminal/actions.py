"""The actions on a run. Each puts a request into the run's inbox. Destructive actions ask for confirmation."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

from dashboards.state_history import RunReplay
from dashboards.terminal.base_screen import BaseScreen, subtask_of
from dashboards.terminal.lines import wrapped
from dashboards.text.incident_text import question_lines
from dashboards.text.plan_review import review_lines
from dashboards.text.safe import safe, safe_block
from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import Drop, Revision, revision_between
from fleet.core.policy.requests import Request
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

# ---- dialogs ---------------------------------------------------------------------------------------------------------
# Dialogs: text, a choice by key, a line of input. They show plain text without markup.


WIDEST = 110


def text_width(screen: int) -> int:
    """The width of the text in a dialog, without border, padding and scroll bar."""
    return min(WIDEST, screen * 9 // 10) - 6


class Dialog(ModalScreen[str | None]):
    """A title, a text and a line of keys. The result is None if the dialog was closed."""

    DEFAULT_CSS = f"""
    Dialog {{
        align: center middle;
        & > #box {{
            width: 90%; max-width: {WIDEST}; height: auto; max-height: 90%;
            border: round $accent; padding: 0 1; background: $surface;
        }}
        & #title {{ text-style: bold; color: $accent; }}
        & #text {{ height: auto; max-height: 20; }}
        & Input {{ margin-top: 1; border: round $accent; background: $surface; }}
        & #keys {{ text-style: bold; margin-top: 1; }}
    }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def __init__(self, title: str, text: str, keys: str = "Esc close") -> None:
        super().__init__()
        self._title, self._text, self._keys = title, text, keys

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            if self._text:
                with VerticalScroll(id="text", can_focus=self.text_has_focus):
                    yield Static(Text(self._text))
            yield from self.fields()
            yield Static(Text(self._keys), id="keys")

    text_has_focus: ClassVar[bool] = True

    def fields(self) -> Iterable[Widget]:
        """The widgets between the text and the keys."""
        return ()

    def action_close(self) -> None:
        self.dismiss(None)


class TextDialog(Dialog):
    """A text to read."""

    DEFAULT_CSS = "TextDialog #text { max-height: 100%; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter,question_mark", "close", "Close")]


class ChoiceDialog(Dialog):
    """A choice between keys. The result is the key."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("n,q", "close", "No")]

    def __init__(self, title: str, text: str, choices: Mapping[str, str], *, no: str = "no") -> None:
        keys = [*(f"{key} {word}" for key, word in choices.items()), f"n {no}"]
        super().__init__(title, text, "    ".join(keys))
        self._choices = choices

    def on_key(self, event: events.Key) -> None:
        if event.character in self._choices:
            event.stop()
            self.dismiss(event.character)


class AnswerDialog(Input):
    """A line of input. A digit chooses an option as long as the line is empty."""

    def __init__(self, options: Sequence[str], value: str) -> None:
        super().__init__(value)
        self._options = options

    def on_key(self, event: events.Key) -> None:
        number = int(event.character) if event.character and event.character.isdecimal() else 0
        if not self.value and 1 <= number <= len(self._options):
            event.stop()
            event.prevent_default()
            self.value = self._options[number - 1]
            self.cursor_position = len(self.value)


class InputDialog(Dialog):
    """A line of input, with numbered options. The result is the text."""

    text_has_focus = False

    def __init__(
        self, title: str, text: str, *, options: Sequence[str] = (), value: str = "", may_be_empty: bool = False
    ) -> None:
        numbers = f"1-{len(options)}" if len(options) > 1 else "1"
        super().__init__(title, text, "Enter send    Esc close" + f"    {numbers} choose an option" * bool(options))
        self._options, self._value, self._may_be_empty = options, value, may_be_empty

    def fields(self) -> Iterable[Widget]:
        if self._options:
            yield Static(Text("\n".join(f"{n}  {text}" for n, text in enumerate(self._options, 1))), id="options")
        yield AnswerDialog(self._options, self._value)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() or self._may_be_empty:
            self.dismiss(event.value.strip())


# ---- actions ---------------------------------------------------------------------------------------------------------


EVIDENCE = 60  # lines
WAITING = ("sh", "-c", '"$@"; code=$?; printf "\\nPress Enter to return to fleet. "; read -r _; exit $code', "sh")
"""A shell wrapper that runs a command and waits for Enter before the screen returns."""


class Actions(App[None]):
    """The part of the application that sends requests."""

    clock: Callable[[], float]
    user: str
    editor_command: Sequence[str]
    """The command line of the user's editor."""
    fleet_command: Sequence[str]
    """The command line of fleet itself."""
    shell_command: Sequence[str]
    program: Callable[[Sequence[str], Path | None], int]
    watched: FollowedRun
    replay: RunReplay | None
    marked: frozenset[SubtaskId]
    """The subtasks for the next action."""

    def _snapshot(self) -> RunSnapshot | None:
        """The run to send a request to. None in a replay, with a notice."""
        if self.replay is not None:
            self._note("not available in a replay")
            return None
        return self.watched.snapshot

    def _note(self, text: str) -> None:
        self.notify(text, markup=False)

    def _warn(self, problem: str) -> None:
        self.notify(safe(problem), severity="warning", markup=False)

    def ask(self, request: Request, done: str) -> None:
        """Put a request into the inbox if it is valid now."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        problem = snapshot.problem_of(request)
        if problem is not None:
            self._warn(problem)
            return
        self.watched.feed.ask(request)
        self._note(done if self.watched.alive else f"{done} (not running: press R to resume)")

    def _open(self, dialog: Dialog, act: Callable[[str], None]) -> None:
        """Show a dialog. Call `act` with its result unless it was closed."""
        self.push_screen(dialog, lambda result: act(result) if result is not None else None)

    def _current(self, kind: str) -> str:
        """The id under the cursor, if the row is a subtask (`s`) or a question (`q`)."""
        key = self.screen.current_key() if isinstance(self.screen, BaseScreen) else ""
        return key.removeprefix(f"{kind}:") if key.startswith(f"{kind}:") else ""

    # ---- questions

    def action_answer(self, id_: str = "") -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        question = snapshot.questions.get(QuestionId(id_) if id_ else self._current_question(snapshot))
        if question is None:
            self._note("no open questions")
            return
        number = question.id

        def answer(text: str) -> None:
            request = f.QuestionAnswered(at=self.clock(), question=number, answer=text, by=self.user)
            self.ask(request, f"{number} answered")

        width = text_width(self.size.width)
        lines = (piece for line in question_lines(question, evidence=EVIDENCE) for piece in wrapped(line, width))
        title = f"{number}: {safe(question.question, limit=600)}"
        self._open(InputDialog(title, "\n".join(lines), options=tuple(map(safe, question.options))), answer)

    def _current_question(self, snapshot: RunSnapshot) -> QuestionId:
        """The selected question, or the first open one."""
        about = snapshot.question_about(SubtaskId(self._current("s")))
        if chosen := QuestionId(self._current("q")):
            return chosen
        return about.id if about is not None else next(iter(snapshot.questions), QuestionId(""))

    # ---- the plan

    def _awaiting(self) -> RunSnapshot | None:
        """The run, if its plan is waiting for approval."""
        snapshot = self._snapshot()
        if snapshot is not None and not snapshot.awaits_approval:
            self._note("no plan is waiting for approval")
            return None
        return snapshot

    def action_approve(self) -> None:
        snapshot = self._awaiting()
        if snapshot is None:
            return
        version, part = snapshot.plan.version, self._part(snapshot)

        def approve(key: str) -> None:
            only = part if key == "o" else None
            request = f.PlanApproved(at=self.clock(), version=version, by=self.user, subtasks=only)
            self.ask(request, f"plan version {version} approved{_for(only)}")

        choices = {"y": "approve"} if part is None else {"y": "approve all", "o": f"only {subtasks_named(part)}"}
        self._open(ChoiceDialog(f"Approve plan version {version}?", self._review(snapshot), choices), approve)

    def action_reject(self) -> None:
        snapshot = self._awaiting()
        if snapshot is None:
            return
        part = self._part(snapshot)
        if part is None:
            self._ask_reason(snapshot, None)
            return
        choices = {"a": f"all {len(snapshot.waiting_for_approval)}", "o": f"only {subtasks_named(part)}"}
        dialog = ChoiceDialog("Reject which subtasks?", self._review(snapshot), choices, no="none")
        self._open(dialog, lambda key: self._ask_reason(snapshot, part if key == "o" else None))

    def _ask_reason(self, snapshot: RunSnapshot, part: tuple[SubtaskId, ...] | None) -> None:
        version = snapshot.plan.version

        def reject(reason: str) -> None:
            request = f.PlanRejected(at=self.clock(), version=version, by=self.user, reason=reason, subtasks=part)
            self.ask(request, f"plan version {version} rejected{_for(part)}: the planner revises it")

        title = f"Reject plan version {version}{_for(part)}: what should change?"
        self._open(InputDialog(title, self._review(snapshot, part)), reject)

    def _review(self, snapshot: RunSnapshot, part: tuple[SubtaskId, ...] | None = None) -> str:
        """The pending review, wrapped for a dialog."""
        width = text_width(self.size.width)
        return "\n".join(piece for line in review_lines(snapshot.review, part) for piece in wrapped(line, width))

    def _part(self, snapshot: RunSnapshot) -> tuple[SubtaskId, ...] | None:
        """The marked or selected subtasks that wait for approval. None if that is none or all of them."""
        ids, chosen = snapshot.waiting_for_approval, self.marked or {self._current("s")}
        part = tuple(id_ for id_ in ids if id_ in chosen)
        return part if 0 < len(part) < len(ids) else None

    def action_edit(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        if not snapshot.plan.subtasks or snapshot.figures.is_over:
            self._note("no plan to edit")
            return
        with TemporaryDirectory(prefix="fleet-plan-") as folder:
            path = Path(folder) / "plan.toml"
            self.watched.feed.write_plan(snapshot.plan, path)
            if not self.outside([*self.editor_command, str(path)], None):
                return
            edited = self.watched.feed.read_plan(path)
        problem = edited if isinstance(edited, str) else self._submit_edit(snapshot, edited)
        if problem is not None:
            self.push_screen(TextDialog("Plan not changed", safe_block(problem)))

    def _submit_edit(self, snapshot: RunSnapshot, edited: Plan) -> str | None:
        """Request the edited plan. Return an error message if it is not valid."""
        without = snapshot.split_or_dropped
        revision = revision_between(snapshot.plan, edited, why=f"edited by {self.user}", without=without)
        if isinstance(revision, str):
            return revision
        if not revision.changes_plan:
            self._note("the plan is unchanged")
            return None
        request = f.PlanRevised(at=self.clock(), call=None, by=self.user, revision=revision)
        problem = snapshot.problem_of(request)
        if problem is None:
            self.ask(request, "plan changed")
        return problem

    # ---- the run

    def action_pause(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        if snapshot.figures.is_paused:
            self.ask(f.Unpaused(at=self.clock(), by=self.user), "unpaused")
        else:
            self.ask(f.Paused(at=self.clock(), by=self.user), "paused: running agents finish, no new ones start")

    def action_cancel(self) -> None:
        text = (
            "This stops all running agents. Landed commits stay on their branch, and finished work stays in the store."
        )
        self._confirm("Cancel this run?", text, f.CancelRequested, "cancelled")

    def action_drain(self) -> None:
        text = "Running agents finish, and no new ones start. Then the run stops. `fleet resume` continues it."
        self._confirm("Drain this run?", text, f.DrainRequested, "draining")

    def _confirm(self, title: str, text: str, request: type[f.CancelRequested | f.DrainRequested], done: str) -> None:
        if self._snapshot() is not None:
            dialog = ChoiceDialog(title, text, {"y": "yes"})
            self._open(dialog, lambda _: self.ask(request(at=self.clock(), by=self.user), done))

    def action_stop(self) -> None:
        """Ask whether to leave, drain or cancel."""
        if isinstance(self.screen, ChoiceDialog):
            return
        snapshot = self.watched.snapshot
        is_open = snapshot is not None and not snapshot.figures.is_over
        title, choices = "Leave?", {"l": "leave"}
        text = "l  leave: the run continues without you" if is_open else "l  leave"
        if is_open and self.replay is None:
            title = "Leave, drain or cancel?"
            text += "\nd  drain: running agents finish, then the run stops\nc  cancel: stop running agents now"
            choices |= {"d": "drain", "c": "cancel"}
        actions = {"l": self.exit, "d": self.action_drain, "c": self.action_cancel}
        self._open(ChoiceDialog(title, text, choices, no="stay"), lambda key: actions[key]())

    def action_workers(self) -> None:
        snapshot = self._snapshot()
        if snapshot is not None:
            text, value = "If you lower the limit, running agents finish.", str(snapshot.figures.workers)
            self._ask_limit("Maximum number of agents (1 to 1000)", text, value, "workers", int)

    def action_budget(self) -> None:
        snapshot = self._snapshot()
        if snapshot is not None:
            spent, limit = snapshot.figures.spent.priced_dollars, snapshot.figures.budget_dollars
            text, value = f"Spent so far: ${spent:.2f}", "" if limit is None else f"{limit:g}"
            self._ask_limit("Total budget (USD)", text, value, "budget_dollars", float)

    def _ask_limit(self, title: str, text: str, value: str, name: str, number: Callable[[str], float]) -> None:
        def change(entered: str) -> None:
            try:
                limit = {name: number(entered.lstrip("$ "))}
                request = f.LimitsChanged.model_validate({"at": self.clock(), "by": self.user, **limit})
            except ValueError:
                self._warn(f"{entered} is not a number")
                return
            self.ask(request, f"{name.partition('_')[0]}: {limit[name]:g}")

        self._open(InputDialog(title, text, value=value), change)

    def action_resume(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return
        if self.watched.alive:
            self._note("the run is already running")
            return
        if snapshot.figures.is_paused:
            self.ask(f.Unpaused(at=self.clock(), by=self.user), "unpaused")
        problem = self.watched.feed.resume()
        if problem is not None:
            self._warn(problem)
        else:
            self._note("resumed in the background")

    def action_take(self) -> None:
        """Run `fleet merge` in the repository after a confirmation. It prints to the terminal."""
        snapshot = self._snapshot()
        if snapshot is None:
            return
        figures = snapshot.figures
        if not figures.is_published:
            self._note("no landed work to merge yet")
            return
        command, folder = [*WAITING, *self.fleet_command, "merge", snapshot.run], Path(figures.repository)
        into = f"Merges the landed work into the branch that is checked out in {safe(figures.repository)}."
        text = f"fleet merge {safe(snapshot.run)}\n{into}"
        dialog = ChoiceDialog("Merge the result?", text, {"y": "yes"})

        def take(_: str) -> None:
            self.outside(command, folder)

        self._open(dialog, take)

    # ---- other programs

    def outside(self, command: Sequence[str], folder: Path | None) -> bool:
        """Run a program in the foreground. Show a notice and return False if that fails."""
        try:
            with self.suspend():
                code = self.program(command, folder)
        except SuspendNotSupported:
            self._warn("can't run another program in this terminal")
            return False
        except OSError as error:
            self._warn(f"{command[0]}: {error.strerror} (set EDITOR or SHELL)")
            return False
        if code:
            self._note(f"{safe(command[0])} exited with code {code}")
        return True


def _for(part: tuple[SubtaskId, ...] | None) -> str:
    return "" if part is None else f" for {subtasks_named(part)}"


def subtasks_named(ids: Sequence[SubtaskId]) -> str:
    """The name of one subtask, or the number of several."""
    return safe(ids[0], limit=60) if len(ids) == 1 else f"{len(ids)} subtasks"


# ---- subtask actions -------------------------------------------------------------------------------------------------
# The actions on subtasks: the selected one, or all marked ones.


INTERRUPT = "!"
"""The prefix of an instruction that also stops the running command."""
NAMED = 12  # subtasks in a dialog


class SubtaskActions(Actions):
    """The part of the application that marks subtasks, and sends requests about them."""

    # ---- marks

    def action_mark(self) -> None:
        """Mark or unmark the selected subtask, then move to the next row."""
        screen, id_ = self.screen, SubtaskId(self._current("s"))
        if isinstance(screen, BaseScreen) and screen.marks_rows and id_:
            self.mark(self.marked ^ {id_})
            screen.listing.action_move(1)

    def action_mark_all(self) -> None:
        """Mark all subtasks on the page, or unmark them if all are marked."""
        screen = self.screen
        if self.replay is None and isinstance(screen, BaseScreen) and screen.marks_rows:
            listed = frozenset(filter(None, map(subtask_of, screen.listing.keys)))
            self.mark(self.marked - listed if listed <= self.marked else self.marked | listed)

    def mark(self, ids: frozenset[SubtaskId]) -> None:
        self.marked = ids
        if isinstance(self.screen, BaseScreen):
            self.screen.refresh_view()

    # ---- requests

    def _about(self, snapshot: RunSnapshot) -> Sequence[SubtaskId]:
        """The marked subtasks, or the selected one. Empty if there is none, with a notice."""
        if self.marked:
            return [id_ for id_ in snapshot.plan.ids if id_ in self.marked]
        question = snapshot.questions.get(QuestionId(self._current("q")))
        id_ = SubtaskId(self._current("s")) or (question.about if question is not None else None)
        if not id_:
            self._warn("select a subtask first")
        return [id_] if id_ else []

    def _possible(
        self, snapshot: RunSnapshot, ids: Sequence[SubtaskId], make: Callable[[SubtaskId], Request]
    ) -> Sequence[SubtaskId]:
        """The subtasks for which the request is valid now. Shows a notice about the others."""
        problems = {id_: snapshot.problem_of(make(id_)) for id_ in ids}
        refused = [problem for problem in problems.values() if problem is not None]
        if refused:
            self._warn(refused[0] if len(ids) == 1 else f"{len(refused)} of {len(ids)} skipped: {refused[0]}")
        return [id_ for id_, problem in problems.items() if problem is None]

    def _ask_for_each(self, ids: Sequence[SubtaskId], make: Callable[[SubtaskId], Request], done: str) -> None:
        """Send a request for each subtask for which it is still valid, then clear the marks."""
        snapshot = self._snapshot()
        if snapshot is not None:
            for id_ in self._possible(snapshot, ids, make):
                self.watched.feed.ask(make(id_))
            self._confirm_sent(done)

    def _confirm_sent(self, done: str) -> None:
        self.mark(frozenset())
        self._note(done if self.watched.alive else f"{done} (not running: press R to resume)")

    def action_retry(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return

        def retry(id_: SubtaskId, guidance: str = "") -> f.RetryRequested:
            return f.RetryRequested(at=self.clock(), subtask=id_, guidance=guidance, by=self.user)

        ids = self._possible(snapshot, self._about(snapshot), retry)
        if not ids:
            return
        failure = snapshot.failure_of(ids[0]) if len(ids) == 1 else None
        text = f"{failure.kind}: {failure.summary}\n{failure.evidence}" if failure else _list(ids)
        title = f"Retry {subtasks_named(ids)}: guidance for the next attempt"
        dialog = InputDialog(title, safe_block(text, lines=EVIDENCE), may_be_empty=True)
        done = f"retry of {subtasks_named(ids)} requested"
        self._open(dialog, lambda guidance: self._ask_for_each(ids, lambda id_: retry(id_, guidance), done))

    def action_tell(self) -> None:
        snapshot = self._snapshot()
        if snapshot is None:
            return

        def instruct(id_: SubtaskId, entered: str = "-") -> f.InstructionGiven:
            text, interrupt = entered.removeprefix(INTERRUPT).strip(), entered.startswith(INTERRUPT)
            return f.InstructionGiven(at=self.clock(), subtask=id_, text=text, by=self.user, interrupt=interrupt)

        ids = self._possible(snapshot, self._about(snapshot), instruct)
        if not ids:
            return
        when = snapshot.when_read(ids[0]) if len(ids) == 1 else _list(ids)

        def tell(entered: str) -> None:
            is_interrupt = entered.startswith(INTERRUPT)
            one = snapshot.when_read(ids[0], interrupt=is_interrupt)
            self._ask_for_each(ids, lambda id_: instruct(id_, entered), one if len(ids) == 1 else "instructions sent")

        text = f"{when}.\nStart with {INTERRUPT} to stop the running command."
        self._open(InputDialog(f"Instruction for {subtasks_named(ids)}", safe_block(text)), tell)

    def action_drop(self) -> None:
        """Drop subtasks with a reason, in a single change of the plan."""
        snapshot = self._snapshot()
        if snapshot is None:
            return

        def drop(ids: Sequence[SubtaskId], why: str = "-") -> f.PlanRevised:
            dropped = tuple(Drop(id=id_, why=why) for id_ in ids)
            revision = Revision(assessment=f"dropped by {self.user}: {why}", drop=dropped)
            return f.PlanRevised(at=self.clock(), call=None, by=self.user, revision=revision)

        ids = self._possible(snapshot, self._about(snapshot), lambda id_: drop([id_]))
        if not ids:
            return

        def send(why: str) -> None:
            now = self._snapshot()
            problem = now.problem_of(request := drop(ids, why)) if now is not None else None
            if problem is not None:
                self._warn(problem)
            elif now is not None:
                self.watched.feed.ask(request)
                self._confirm_sent(f"{subtasks_named(ids)} dropped")

        text = f"{_list(ids)}.\nSubtasks that depend on it can't start then. The reason is recorded in the plan."
        self._open(InputDialog(f"Drop {subtasks_named(ids)}: why?", safe_block(text)), send)


def _list(ids: Sequence[SubtaskId]) -> str:
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(safe(id_, limit=60) for id_ in ids[:NAMED]) + more
