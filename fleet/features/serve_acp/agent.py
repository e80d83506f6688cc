"""fleet as an ACP agent. A session is a run and has the run's name. No other state is kept."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

import anyio
import anyio.lowlevel
from acp import PROTOCOL_VERSION, Client, run_agent
from acp.exceptions import RequestError
from acp.helpers import (
    plan_entry,
    text_block,
    tool_content,
    update_agent_message_text,
    update_available_commands,
    update_plan,
    update_user_message_text,
)
from acp.schema import (
    AcceptElicitationResponse,
    AgentCapabilities,
    AllowedOutcome,
    AvailableCommand,
    ClientCapabilities,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EmbeddedResourceContentBlock,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PlanEntry,
    PlanEntryStatus,
    PromptCapabilities,
    PromptResponse,
    ResourceContentBlock,
    SessionCapabilities,
    SessionInfo,
    SessionListCapabilities,
    TextContentBlock,
    TextResourceContents,
    ToolCallUpdate,
    UnstructuredCommandInput,
)
from acp.stdio import stdio_streams
from anyio import to_thread
from anyio.abc import TaskGroup

from dashboards.text.event_text import event_lines
from dashboards.text.plan_review import review_lines
from dashboards.text.safe import safe, safe_block
from dashboards.text.summary import summary_lines
from fleet import __version__
from fleet.app.fleet import Fleet, Order
from fleet.app.input_files import checked_epic
from fleet.cli import common
from fleet.cli.engine import BackgroundRun
from fleet.config.environment import current
from fleet.config.load import Loaded
from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import CancelRequested, PlanApproved, PlanRejected, QuestionAnswered
from fleet.core.plans.limits import Reviewing
from fleet.core.policy.requests import Request
from fleet.errors import FleetError, UsageError
from fleet.features.serve_acp.slash_commands import COMMANDS, by, parsed
from fleet.ports.worktrees import EffectError
from fleet.read.follow import RunFollower, Step
from fleet.read.question_view import QuestionView
from fleet.read.run import RunSnapshot, just_after
from fleet.read.run_view import SubtaskStatus
from fleet.runs.journal_feed import JournalFeed
from fleet.runs.run_folder import FirstFact, RunFolder, git_folder, root_of, runs_by_start

# ---- shown -----------------------------------------------------------------------------------------------------------
# A run as shown in an editor: its plan as a list, its events and its end. Pure.


TITLE = 200
_DONE: frozenset[SubtaskStatus] = frozenset({"merged", "split", "dropped"})
_UNDERWAY: frozenset[SubtaskStatus] = frozenset({"running", "verifying", "landing"})
Block = object
"""A block of a prompt, of any kind."""


def plan_entries(run: RunSnapshot) -> list[PlanEntry]:
    """Return the current plan. Before the first plan, the only entry is planning."""
    if not run.plan.subtasks:
        return [plan_entry("Plan the epic", status="completed" if run.figures.is_over else "in_progress")]
    entries = []
    for id_, status in run.statuses.items():
        spec = run.spec(id_)
        mark = "" if status in {"merged", "waiting", "ready", *_UNDERWAY} else f" ({status})"
        title = f"{safe(id_)}: {safe(spec.title, limit=TITLE)}{mark}"
        entries.append(plan_entry(title, priority="high" if spec.risk == "high" else "medium", status=_status(status)))
    return entries


def _status(status: SubtaskStatus) -> PlanEntryStatus:
    if status in _DONE:
        return "completed"
    return "in_progress" if status in _UNDERWAY else "pending"


def ending_text(run: RunSnapshot) -> str:
    """Describe the status or end of a run, with the commands that merge its result."""
    return as_code("\n".join(summary_lines(run)))


def review_text(run: RunSnapshot, ids: Sequence[SubtaskId]) -> str:
    """Describe the subtasks that need approval."""
    return as_code("\n".join(review_lines(run.review, ids)))


def question_text(question: QuestionView) -> str:
    options = (
        f"\n\nFor example: {' | '.join(safe(each, limit=300) for each in question.options)}" if question.options else ""
    )
    return f"{safe(question.id)}: {safe_block(question.question)}{options}"


def info_of(run: FirstFact, cwd: str) -> SessionInfo:
    """Return a run as a session for an editor's list."""
    goal = run.state.goal if run.state is not None else ""
    title = safe(goal.strip().split("\n", 1)[0], limit=TITLE)
    return SessionInfo(session_id=run.folder.run, cwd=cwd, title=title)


def offered_commands() -> list[AvailableCommand]:
    """Return the slash commands for an editor."""
    return [
        AvailableCommand(
            name=name,
            description=command.description,
            input=UnstructuredCommandInput(hint=command.hint) if command.hint else None,
        )
        for name, command in COMMANDS.items()
    ]


def typed_text(prompt: Sequence[Block]) -> str:
    """Return the typed text, without attached files."""
    return "\n\n".join(block.text for block in prompt if isinstance(block, TextContentBlock)).strip()


def epic_text(prompt: Sequence[Block]) -> str:
    """Return the prompt as an epic, including attached text. Raises `UsageError` for other attachments."""
    parts = []
    for block in prompt:
        if isinstance(block, TextContentBlock):
            parts.append(block.text)
        elif isinstance(block, ResourceContentBlock):
            parts.append(f"See {block.uri}")
        elif isinstance(block, EmbeddedResourceContentBlock) and isinstance(block.resource, TextResourceContents):
            parts.append(f"Attached, {block.resource.uri}:\n\n{as_code(block.resource.text)}")
        else:
            raise UsageError("images and audio are not supported", hint="describe the goal in text")
    return "\n\n".join(parts)


# ---- text ------------------------------------------------------------------------------------------------------------
# Text for an editor: Markdown, with untrusted text escaped.


LINES = 400


def as_code(text: str) -> str:
    """Return a code block that its content can't close."""
    shown = safe_block(text, lines=LINES)
    longest = max((len(run) for run in _runs_of_ticks(shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{shown}\n{fence}"


def _runs_of_ticks(text: str) -> list[str]:
    return "".join(char if char == "`" else " " for char in text).split()


# ---- people ----------------------------------------------------------------------------------------------------------
# Decisions for a person, shown in the editor: the approval of a plan as a permission request, a question as a form.
# Editors can be set to allow every request. High-risk subtasks are therefore never approved here.


LONGEST_ANSWER = 20_000
Outcome = Literal["sent", "dismissed"]


@dataclass(frozen=True, slots=True)
class Matter:
    """A pending decision. It is shown once per turn, and again if it changes."""

    run: RunSnapshot
    question: QuestionView | None = None
    subtasks: tuple[SubtaskId, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        return (self.question.id,) if self.question else (self.run.plan.version, self.subtasks)


def matters(run: RunSnapshot) -> list[Matter]:
    """Return the pending decisions that an editor may show, approvals first."""
    if not run.may_ask:
        return []
    here = tuple(id_ for id_ in run.waiting_for_approval if run.spec(id_).risk != "high") if run.plan_waits else ()
    approval = [Matter(run, subtasks=here)] if here else []
    return [*approval, *(Matter(run, each) for each in run.questions.values())]


def only_elsewhere(run: RunSnapshot) -> tuple[SubtaskId, ...]:
    """Return the subtasks that can't be approved in an editor."""
    return tuple(id_ for id_ in run.waiting_for_approval if run.spec(id_).risk == "high") if run.plan_waits else ()


@dataclass(frozen=True, slots=True)
class PermissionRequests:
    """Requests decisions from the person at the editor of one session."""

    client: Client
    session: str
    folder: RunFolder
    has_forms: bool

    def can_ask(self, matter: Matter) -> bool:
        """Whether the editor can show this decision. Otherwise, the next prompt is the answer to a question."""
        return matter.question is None or self.has_forms or bool(matter.question.options)

    async def ask(self, matter: Matter) -> Outcome:
        """Ask for a decision and send it to the run. An editor that can't show the request counts as dismissing it."""
        try:
            request = await (self._approval(matter) if matter.question is None else self._answer(matter.question))
        except RequestError:
            request = None
        if request is None:
            return "dismissed"
        try:
            common.send_checked(self.folder, request)
        except FleetError:
            return "dismissed"  # it was decided elsewhere in the meantime
        return "sent"

    async def _approval(self, matter: Matter) -> Request | None:
        version, ids = matter.run.plan.version, matter.subtasks
        call = ToolCallUpdate(
            tool_call_id=f"plan-{version}",
            title=f"Approve version {version} of the plan: {', '.join(ids[:5])}{' …' if len(ids) > 5 else ''}",  # noqa: PLR2004
            kind="think",
            status="pending",
            content=[tool_content(text_block(review_text(matter.run, ids)))],
        )
        options = [
            PermissionOption(option_id="approve", name=f"Approve {len(ids)} of the subtasks", kind="allow_once"),
            PermissionOption(option_id="reject", name="Reject and let the planner revise the plan", kind="reject_once"),
        ]
        match await self._choice(call, options):
            case "approve":
                return PlanApproved(at=time.time(), version=version, by=by(), subtasks=ids)
            case "reject":
                why = "rejected in the editor, without a reason"
                return PlanRejected(at=time.time(), version=version, by=by(), reason=why, subtasks=ids)
        return None

    async def _answer(self, question: QuestionView) -> Request | None:
        text = await (self._form(question) if self.has_forms else self._options(question))
        if not text or len(text) > LONGEST_ANSWER:
            return None
        return QuestionAnswered(at=time.time(), question=question.id, answer=text, by=by())

    async def _form(self, question: QuestionView) -> str:
        answer = ElicitationStringPropertySchema(type="string", title="Answer", min_length=1)
        schema = ElicitationSchema(properties={"answer": answer}, required=["answer"])
        mode = ElicitationFormSessionMode(mode="form", session_id=self.session, requested_schema=schema)
        reply = await self.client.create_elicitation(question_text(question), mode)
        given = (reply.content or {}).get("answer") if isinstance(reply, AcceptElicitationResponse) else ""
        return given.strip() if isinstance(given, str) else ""

    async def _options(self, question: QuestionView) -> str:
        call = ToolCallUpdate(
            tool_call_id=f"question-{question.id}",
            title=f"Question {question.id}",
            kind="think",
            status="pending",
            content=[tool_content(text_block(question_text(question)))],
        )
        options = [
            PermissionOption(option_id=str(number), name=option[:200], kind="allow_once")
            for number, option in enumerate(question.options)
        ]
        later = PermissionOption(option_id="later", name="Answer in my own words", kind="reject_once")
        chosen = await self._choice(call, [*options, later])
        return question.options[int(chosen)] if chosen.isdigit() and int(chosen) < len(options) else ""

    async def _choice(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str:
        """Return the chosen option, or an empty string."""
        reply = await self.client.request_permission(session_id=self.session, tool_call=call, options=options)
        outcome = reply.outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else ""


# ---- turn ------------------------------------------------------------------------------------------------------------
# A turn in an editor: it follows a run until the run ends or needs another prompt.


POLL_S = 0.2


@dataclass(slots=True)
class PromptTurn:
    """Follows a run. Everything shown is read from the journal."""

    client: Client
    session: str
    folder: RunFolder
    people: PermissionRequests
    since: float = 0.0
    """The time from which events are shown."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _lines: list[str] = field(default_factory=list)
    _plan: list[PlanEntry] = field(default_factory=list)
    _settled: set[tuple[object, ...]] = field(default_factory=set)
    _named: set[str] = field(default_factory=set)
    _asking: tuple[tuple[object, ...], anyio.CancelScope] | None = None
    _closing: str | None = None
    """The last message of a turn that ends before its run."""

    async def follow(self) -> None:
        """Show events, ask for decisions and show how the run ended."""
        with JournalFeed(self.folder) as feed:
            follower = RunFollower(feed, time.time, take=self._note)
            async with anyio.create_task_group() as tasks:
                while self._closing is None:
                    follower.look()
                    follower.catch_up(0)
                    run = follower.snapshot
                    if not follower.loaded or run is None:
                        await anyio.lowlevel.checkpoint()
                        continue
                    await self._show(run)
                    if run.figures.is_over or not run.alive:
                        break
                    await self._ask_next(run, tasks)
                    await anyio.sleep(POLL_S)
                tasks.cancel_scope.cancel()
            follower.catch_up()
            follower.look()
        if (run := follower.snapshot) is not None:
            await self._show(run)
            await self.say(self._closing or ending_text(run))

    async def say(self, text: str) -> None:
        await self.client.session_update(session_id=self.session, update=update_agent_message_text(f"{text}\n\n"))

    def _note(self, step: Step) -> None:
        if step.fact.at >= self.since:
            self._lines += event_lines(step.run, step.fact)

    async def _show(self, run: RunSnapshot) -> None:
        """Send the news since the last call."""
        if self._lines:
            lines, self._lines = self._lines, []
            await self.say(as_code("\n".join(lines)))
        if (plan := plan_entries(run)) != self._plan:
            self._plan = plan
            await self.client.session_update(session_id=self.session, update=update_plan(plan))

    async def _ask_next(self, run: RunSnapshot, tasks: TaskGroup) -> None:
        """Ask for one decision at a time. Requests that were decided elsewhere are withdrawn."""
        waiting = matters(run)
        if self._asking is not None:
            key, scope = self._asking
            if all(matter.key != key for matter in waiting):
                scope.cancel()
            return
        if elsewhere := set(only_elsewhere(run)) - self._named:
            self._named |= elsewhere
            self._lines.append(
                f"high-risk subtasks can't be approved in an editor: {', '.join(sorted(elsewhere))}. "
                f"Run `fleet approve {self.folder.run} --only {min(elsewhere)}` instead."
            )
        unsettled = [matter for matter in waiting if matter.key not in self._settled]
        if not unsettled:
            return
        requested = {
            matter.key for matter in matters(just_after(await to_thread.run_sync(self.folder.requested_state)))
        }
        for matter in unsettled:
            if matter.key not in requested:
                continue  # the decision is being sent to the run
            if not self.people.can_ask(matter):
                self._closing = _by_prompt(matter)
                return
            scope = anyio.CancelScope()
            self._asking = (matter.key, scope)
            tasks.start_soon(self._ask, matter, scope)
            return

    async def _ask(self, matter: Matter, scope: anyio.CancelScope) -> None:
        with scope:
            if await self.people.ask(matter) == "dismissed":
                self._closing = _by_prompt(matter)
        self._settled.add(matter.key)
        self._asking = None


def _by_prompt(matter: Matter) -> str:
    """Explain how to decide if the editor did not show the request or it was dismissed."""
    if matter.question is not None:
        return f"{question_text(matter.question)}\n\nYour next message is the answer."
    return "The plan is still waiting for approval. Type `/approve` to approve it, or `/reject WHY` to have it revised."


# ---- agent -----------------------------------------------------------------------------------------------------------


FAILED = -32000  # the code of errors that a person can fix. Clients show the message.
LISTED = 50
LONGEST_LINE = 50 * 1024 * 1024  # bytes, the package's limit
Configure = Callable[[Path], Loaded]
"""Loads the configuration for a repository, with the command-line options."""


@dataclass(slots=True)
class EditorAgent:
    """Implements the package's `Agent`."""

    configure: Configure
    review: Reviewing
    client: Client | None = None
    has_forms: bool = False
    _roots: dict[str, Path] = field(default_factory=dict)
    """The repository of each session in this process."""
    _turns: dict[str, PromptTurn | None] = field(default_factory=dict)
    """The active turns; None while a turn is starting."""
    _engines: list[BackgroundRun] = field(default_factory=list)
    """Kept so that engines that exited are reaped."""

    def on_connect(self, client: Client) -> None:
        self.client = client

    async def initialize(
        self, protocol_version: int, client_capabilities: ClientCapabilities | None = None, **_: Any
    ) -> InitializeResponse:
        del protocol_version  # clients report an unsupported version themselves
        elicitation = client_capabilities.elicitation if client_capabilities is not None else None
        self.has_forms = elicitation is not None and elicitation.form is not None
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
            agent_info=Implementation(name="fleet", title="Fleet", version=__version__),
            auth_methods=[],
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        root = _repository(cwd)
        with _shown_errors():
            await to_thread.run_sync(self.configure, root)  # report mistakes in it immediately
        session = f"editor-{token_hex(4)}"
        self._roots[session] = root
        return NewSessionResponse(session_id=session)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:
        """Attach to a run of this repository, even if it was started elsewhere."""
        root = _repository(cwd)
        with _shown_errors():
            folder = await to_thread.run_sync(_find, root, session_id)
            state = await to_thread.run_sync(folder.state)
        self._roots[session_id] = root
        client, run = self._connected, RunSnapshot(state, state.last_at, folder.alive)
        await client.session_update(
            session_id=session_id, update=update_user_message_text(safe_block(run.figures.goal))
        )
        await client.session_update(session_id=session_id, update=update_plan(plan_entries(run)))
        await self._say(session_id, ending_text(run))
        return LoadSessionResponse()

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> ListSessionsResponse:
        """Return the latest runs of a repository, newest first."""
        if cwd is None:
            return ListSessionsResponse(sessions=[])
        root = _repository(cwd)
        runs = await to_thread.run_sync(_runs_of, root)
        return ListSessionsResponse(sessions=[info_of(run, str(root)) for run in reversed(runs[-LISTED:])])

    async def prompt(self, prompt: Sequence[Any], session_id: str, **_: Any) -> PromptResponse:
        """Start a run from an epic. In a session with a run, handle a slash command or an answer."""
        if session_id not in self._roots:
            raise RequestError(FAILED, "unknown session: load it first")
        if session_id in self._turns:
            raise RequestError(FAILED, "this session is busy: cancel its turn first")
        self._turns[session_id] = None
        try:
            with _shown_errors():
                return await self._turn(prompt, session_id)
        finally:
            del self._turns[session_id]

    async def cancel(self, session_id: str, **_: Any) -> None:
        """End the active turn. In the turn that started a run, also cancel the run."""
        if (turn := self._turns.get(session_id)) is not None:
            turn.scope.cancel()

    # ---- turns

    async def _turn(self, prompt: Sequence[Any], session: str) -> PromptResponse:
        root = self._roots[session]
        folder = next(
            (run.folder for run in await to_thread.run_sync(_runs_of, root) if run.folder.run == session), None
        )
        begins, since = folder is None, 0.0
        if folder is None:
            if typed_text(prompt).startswith("/"):
                raise UsageError("this session has no run yet", hint="describe a goal to start one")
            folder = await self._begin(epic_text(prompt), root, session)
        else:
            state = await to_thread.run_sync(folder.state)
            since = state.last_at
            if (said := await self._act(folder, typed_text(prompt))) is not None:
                await self._say(session, said)
        await self._connected.session_update(session_id=session, update=update_available_commands(offered_commands()))
        people = PermissionRequests(self._connected, session, folder, self.has_forms)
        turn = self._turns[session] = PromptTurn(self._connected, session, folder, people, since)
        with turn.scope:
            await turn.follow()
        if not turn.scope.cancelled_caught:
            return PromptResponse(stop_reason="end_turn")
        if begins:
            common.send_checked(folder, CancelRequested(at=time.time(), by=by()))
        return PromptResponse(stop_reason="cancelled")

    async def _begin(self, text: str, root: Path, session: str) -> RunFolder:
        """Start a run of this epic in the background. It continues when the editor exits."""
        epic = checked_epic(text)
        fleet = Fleet(await to_thread.run_sync(self.configure, root), current())
        folder = await fleet.create(Order(goal=epic, repository=root, name=session, review=self.review))
        engine = BackgroundRun(folder)
        await to_thread.run_sync(engine.start, fleet)
        self._engines.append(engine)
        await self._say(session, f"Started run `{folder.run}`. Its result will be on the branch `fleet/{folder.run}`.")
        await to_thread.run_sync(engine.wait_started)
        return folder

    async def _act(self, folder: RunFolder, text: str) -> str | None:
        """Handle text typed in a session with a run. Return the reply."""
        run = just_after(folder.requested_state())
        command = parsed(text)
        if command is not None:
            request = command[0].request(run, command[1]) if command[0].request is not None else None
        elif run.figures.is_over:
            raise UsageError(f"the run {folder.run} has ended", hint="open a new session to start another epic")
        elif questions := run.question_lines():
            request = QuestionAnswered(at=time.time(), question=questions[0].id, answer=text, by=by())
        else:
            raise UsageError(
                "this run has no open question",
                hint="use /tell SUBTASK TEXT to instruct an agent, or /status to follow the run",
            )
        if request is None:
            return None
        common.send_checked(folder, request)
        return f"Sent: {request.kind.replace('_', ' ')}."

    # ---- messages

    @property
    def _connected(self) -> Client:
        if self.client is None:
            raise AssertionError("no client is connected")
        return self.client

    async def _say(self, session: str, text: str) -> None:
        await self._connected.session_update(session_id=session, update=update_agent_message_text(f"{text}\n\n"))


async def serve(agent: EditorAgent) -> None:
    """Serve on stdin and stdout until the editor closes them. Runs started by the session continue."""
    logging.disable(logging.CRITICAL)  # errors go to the editor as answers, not to a log
    try:
        output, given = await stdio_streams(limit=LONGEST_LINE)
    except ValueError as error:  # stdin or stdout is a file
        hint = "configure your editor to start `fleet acp`; `fleet acp --list` lists its slash commands"
        raise UsageError("stdin and stdout must be pipes", hint=hint) from error
    await run_agent(agent, given, output)  # type: ignore[arg-type] # missing methods are answered as unknown


@contextmanager
def _shown_errors() -> Iterator[None]:
    """Convert errors that a person can fix to errors that an editor shows."""
    try:
        yield
    except FleetError as error:
        raise RequestError(FAILED, error.text) from error
    except EffectError as error:
        raise RequestError(FAILED, error.failure.summary) from error


def _repository(cwd: str) -> Path:
    folder = Path(cwd)
    root = root_of(folder) if folder.is_absolute() and folder.is_dir() else None
    if root is None:
        raise RequestError(FAILED, f"{safe(cwd, limit=300)} is not in a git repository: open one in the editor")
    return root


def _runs_of(root: Path) -> list[FirstFact]:
    """Return the runs of a repository. Runs of other repositories are not found, even by their exact name."""
    here = git_folder(root)
    return [run for run in runs_by_start(common.state_dir()) if run.is_of(here)]


def _find(root: Path, session: str) -> RunFolder:
    found = next((run.folder for run in _runs_of(root) if run.folder.run == session), None)
    if found is None:
        raise UsageError(f"no run {safe(session, limit=80)!r} in this repository")
    return found
