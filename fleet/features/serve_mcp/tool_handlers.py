"""The implementation of each tool, for the repository that the operator named. It uses the functions of the verbs."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from fleet.app.fleet import Fleet, Order
from fleet.app.input_files import LONGEST_EPIC, checked_epic
from fleet.cli import common
from fleet.cli.common import flags, limits_of
from fleet.cli.engine import BackgroundRun
from fleet.cli.verbs.look import change_of
from fleet.config.environment import current, user
from fleet.config.load import Loaded
from fleet.core.facts.facts import Paused, PlanApproved, QuestionAnswered
from fleet.core.plans.limits import Reviewing
from fleet.core.policy.requests import waiting_for_approval
from fleet.errors import UsageError
from fleet.read.base_view import View, dump_view
from fleet.read.follow import RunFollower
from fleet.read.plan_views import RunPlanView
from fleet.read.question_view import RequestView, review_view
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.journal_feed import JournalFeed
from fleet.runs.run_folder import RunFolder, git_folder, runs_by_start

# ---- arguments -------------------------------------------------------------------------------------------------------
# The arguments of each tool, as written by a client's model. Unknown arguments are rejected.


LONGEST_WAIT_S = 300

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._/-]+$")]
Run = Annotated[Name | None, Field(description="The name of the run. Defaults to the latest run of this repository.")]
NamedRun = Annotated[Name, Field(description="The name of the run.")]
SubtaskId = Annotated[Name, Field(description="The id of a subtask.")]


class ToolArguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Begin(ToolArguments):
    epic: str = Field(
        min_length=1, max_length=LONGEST_EPIC, description="The goal, as text: the state that the run should reach."
    )
    budget_dollars: float = Field(gt=0, description="The maximum cost of the run, in USD. Required.")
    minutes: float | None = Field(default=None, gt=0, description="The maximum duration of the run, in minutes.")
    workers: int | None = Field(
        default=None, ge=1, le=1000, description="The maximum number of agents that work in parallel."
    )
    name: Annotated[Name | None, Field(description="The name of the run. Its result branch is fleet/NAME.")] = None


class OfRun(ToolArguments):
    run: Run = None


class Show(ToolArguments):
    run: Run = None
    subtask: Annotated[Name | None, Field(description="Show this subtask with its attempts and checks.")] = None
    what: Literal["plan", "incidents"] = Field(
        default="plan", description="Without a subtask: the current plan, or the incidents with their remedies."
    )


class DiffArguments(ToolArguments):
    run: Run = None
    subtask: SubtaskId
    attempt: int | None = Field(
        default=None, ge=1, description="The attempt number. Defaults to the last attempt with a commit."
    )


class AnswerArguments(ToolArguments):
    run: NamedRun
    question: Annotated[Name, Field(description="The id of an open question, such as q1.")]
    text: str = Field(min_length=1, max_length=20_000, description="The answer, for the planner.")


class Approve(ToolArguments):
    run: NamedRun
    version: int = Field(ge=1, description="The plan version that you reviewed. Any other version is rejected.")
    subtasks: list[Name] = Field(min_length=1, max_length=1000, description="The ids of the subtasks to approve.")


class Pause(ToolArguments):
    run: NamedRun


class Wait(ToolArguments):
    run: Run = None
    seconds: float = Field(default=30, gt=0, le=LONGEST_WAIT_S, description="The maximum time to wait, in seconds.")
    until: Literal["news", "end"] = Field(
        default="news",
        description="`news`: return when the run needs a person or ends. `end`: return only when it ends.",
    )


# ---- desk ------------------------------------------------------------------------------------------------------------


POLL_S = 0.2
Data = dict[str, Any]


@dataclass(slots=True)
class ToolHandlers:
    """The tools of one session. It only reads and changes runs of its repository."""

    repository: Path
    config_file: Path | None = None
    base_url: str | None = None
    sandbox: str | None = None
    budget_dollars: float | None = None
    """The total budget of all runs that this session starts."""
    granted: float = 0.0
    _engines: list[BackgroundRun] = field(default_factory=list)
    """Kept so that engines that exited are reaped."""

    # ---- work

    async def plan(self, given: Begin) -> Data:
        return await self._begin(given, "human")

    async def run(self, given: Begin) -> Data:
        return await self._begin(given, "auto")

    async def _begin(self, given: Begin, review: Reviewing) -> Data:
        epic = checked_epic(given.epic)
        loaded = self._configuration(given)
        self._grant(given.budget_dollars)
        try:
            fleet = Fleet(loaded, current())
            order = Order(goal=epic, repository=self.repository, name=given.name, review=review)
            folder = await fleet.create(order)
            engine = BackgroundRun(folder)
            await to_thread.run_sync(engine.start, fleet)
            self._engines.append(engine)
        except BaseException:
            self.granted -= given.budget_dollars
            raise
        await to_thread.run_sync(engine.wait_started)
        return await self.status(OfRun(run=folder.run))

    def _configuration(self, given: Begin) -> Loaded:
        """Return the operator's configuration with the requested limits, none of which may exceed the operator's."""
        options = flags(base_url=self.base_url, sandbox=self.sandbox)
        theirs = common.configuration(self.repository, self.config_file, options).config.run
        wanted = (
            ("budget_dollars", given.budget_dollars, theirs.budget_dollars),
            ("minutes", given.minutes, theirs.budget_minutes),
            ("workers", given.workers, theirs.workers),
        )
        for name, asked, limit in wanted:
            if asked is not None and limit is not None and asked > limit:
                raise UsageError(f"{name}: {asked:g} is above the operator's limit of {limit:g}")
        limits = limits_of(workers=given.workers, budget=given.budget_dollars, minutes=given.minutes)
        return common.configuration(self.repository, self.config_file, options | flags(limits))

    def _grant(self, dollars: float) -> None:
        if self.budget_dollars is not None and self.granted + dollars > self.budget_dollars:
            left = max(0.0, self.budget_dollars - self.granted)
            hint = "ask the operator to raise `fleet mcp --budget`"
            raise UsageError(f"budget_dollars: {dollars:g} exceeds the remaining session budget of {left:g}", hint=hint)
        self.granted += dollars

    # ---- looking

    async def status(self, given: OfRun) -> Data:
        return dump_view((await self._read(given.run)).status)

    async def show(self, given: Show) -> Data:
        run = await self._read(given.run)
        if given.subtask is not None:
            return dump_view(run.subtask(common.find_subtask(run, given.subtask).id))
        if given.what == "incidents":
            return dump_view(run.story)
        return dump_view(RunPlanView(run.run, run.plan.version, run.plan))

    async def diff(self, given: DiffArguments) -> Data:
        folder = await to_thread.run_sync(self._find, given.run)
        return dump_view(await change_of(folder, given.subtask, given.attempt))

    async def report(self, given: OfRun) -> Data:
        folder = await to_thread.run_sync(self._find, given.run)
        return dump_view(await to_thread.run_sync(common.report_of, folder))

    async def wait(self, given: Wait) -> Data:
        """Follow the journal until the run has news or the time is up."""
        folder = await to_thread.run_sync(self._find, given.run)
        with anyio.move_on_after(given.seconds), JournalFeed(folder) as feed:
            follower = RunFollower(feed, time.time)
            while True:
                follower.look()
                follower.catch_up(0)  # in slices, so that other calls are answered in between
                if not follower.loaded:
                    await anyio.lowlevel.checkpoint()
                    continue
                if (run := follower.snapshot) is not None and _has_news(run, given):
                    break
                await anyio.sleep(POLL_S)
        return await self.status(OfRun(run=folder.run))

    # ---- deciding

    async def answer(self, given: AnswerArguments) -> Data:
        folder = await to_thread.run_sync(self._find, given.run)
        known = just_after(await to_thread.run_sync(folder.state)).question_named(given.question)
        request = QuestionAnswered(at=time.time(), question=known, answer=given.text, by=_by())
        common.send_checked(folder, request)
        return _requested(folder, request.kind, f"{known} answered")

    async def pause(self, given: Pause) -> Data:
        folder = await to_thread.run_sync(self._find, given.run)
        request = Paused(at=time.time(), by=_by())
        common.send_checked(folder, request)
        return _requested(folder, request.kind, "no new agents start until a person runs `fleet resume`")

    async def approve(self, given: Approve) -> Data:
        folder = await to_thread.run_sync(self._find, given.run)
        state = folder.requested_state()
        if given.version != state.plan.version:
            raise UsageError(
                f"the plan is at version {state.plan.version}, not {given.version}", hint="call `show` again"
            )
        ids = tuple(dict.fromkeys(given.subtasks))
        high = [id_ for id_ in ids if common.find_subtask(state, id_).risk == "high"]
        if high:
            hint = f"a person can run `fleet approve {folder.run} --only {high[0]}`"
            raise UsageError(f"{', '.join(high)}: only a person can approve high-risk subtasks", hint=hint)
        if not_waiting := [id_ for id_ in ids if id_ not in waiting_for_approval(state)]:
            raise UsageError(f"{', '.join(not_waiting)}: not waiting for approval")
        approved = PlanApproved(at=time.time(), version=given.version, by=_by(), subtasks=ids)
        common.check_request(state, approved)
        common.send_requests(folder, approved)
        return dump_view(review_view(state, approved, done=True, alive=folder.alive))

    # ---- runs

    async def _read(self, name: str | None) -> RunSnapshot:
        folder = await to_thread.run_sync(self._find, name)
        return RunSnapshot(await to_thread.run_sync(folder.state), time.time(), folder.alive)

    def _find(self, name: str | None) -> RunFolder:
        """Return a run of this repository. Runs of other repositories are not found, even by their exact name."""
        here = git_folder(self.repository)
        runs = [run.folder for run in runs_by_start(common.state_dir()) if run.is_of(here)]
        if not runs:
            raise UsageError("no runs in this repository yet", hint="call `plan` or `run` to start one")
        if name is None:
            return runs[-1]
        wanted = name.removeprefix("fleet/")
        found = next((folder for folder in runs if folder.run == wanted), None)
        if found is None:
            raise UsageError(f"no run {wanted!r} in this repository", hint=f"the latest run is {runs[-1].run}")
        return found


def _has_news(run: RunSnapshot, given: Wait) -> bool:
    """Whether a run has ended, has stopped or needs a person."""
    if run.figures.is_over or not run.alive:
        return True
    return given.until == "news" and bool(run.needs)


def _requested(folder: RunFolder, kind: str, message: str) -> Data:
    view: View = RequestView(run=folder.run, request=kind, message=message, alive=folder.alive)
    return dump_view(view)


def _by() -> str:
    """Return the name that the journal records for decisions made over MCP."""
    return f"{user()} by mcp"
