"""Creates and works on runs: opens the adapters and gives each its part of the configuration."""

import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, cast
from urllib.parse import urlsplit

from anyio import TASK_STATUS_IGNORED, CancelScope, Event, create_task_group, sleep
from anyio.abc import TaskStatus
from pydantic import JsonValue

from agents.factory import OpenModels, open_agents
from agents.models.client import is_simulated
from fleet import __version__
from fleet.app.capacity import capacity, collect_rarely, workers_or_refuse
from fleet.app.input_files import PlanPreview
from fleet.app.past_runs import past_evidence
from fleet.app.wiring import Wiring
from fleet.config.environment import user
from fleet.config.layer import FLAG
from fleet.config.load import Loaded
from fleet.config.schema import Config
from fleet.core.base.ids import RunId, result_branch
from fleet.core.facts import facts as f
from fleet.core.facts.facts import CancelRequested, RunReopened
from fleet.core.history.evolve import OnFact, evolve
from fleet.core.plans.limits import HERE, Policy, Reviewing
from fleet.core.plans.parameters import flat_plan
from fleet.core.plans.plan import PLANNER, Plan
from fleet.core.policy.planner_view import planner_state
from fleet.core.policy.requests import missing_rollback
from fleet.core.state.state import RunState
from fleet.core.state.status import is_refused
from fleet.engine.adapters import Adapters, ChangeReviews, OpenReviews
from fleet.engine.briefs import planner_notes
from fleet.engine.loop import Engine, SystemClock, reconcile
from fleet.engine.perform import Performer
from fleet.errors import FleetError, UsageError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES, Feature
from fleet.ports.agents import CallGauges, PlannerBrief
from fleet.ports.orders import OpenCalls
from fleet.runs.journal import Journal, engine_lock
from fleet.runs.run_folder import RunFolder, all_runs, disk_full_advice, make_state_dir, new_run
from worktrees.git.program import text
from worktrees.leases.gc import clean_run
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.sandbox.box import require_bubblewrap
from worktrees.store.store import Snapshot, open_store
from worktrees.target.target import Target, inspect

HEED_S = 0.2  # the longest wait for a request for the first node in the journal

Measures = tuple[Callable[[float], None], Callable[[Callable[[], CallGauges]], None]]
"""Two functions that measure the process that works on a run. The first takes the seconds of each worker command. The
second takes the gauges of model calls, to be read on the event loop that makes the calls."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order for a new run."""

    goal: str
    repository: Path
    base: str | None = None
    name: str | None = None
    plan: Plan | None = None
    rollback: Plan | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    review: Reviewing = "none"
    rehearsal: f.Rehearsal | None = None
    """The rehearsal, if the run is one."""
    publishes: bool = True
    """Whether the run creates the result branch."""
    relanding: f.Relanding | None = None
    """The result to land again, if the run does that."""
    policy: Policy | None = None
    """Limits and choices that replace those of the configuration."""
    issue: f.IssueSource | None = None
    """The issue that contains the goal, if any."""
    begun: tuple[f.Fact, ...] = ()
    """Facts about work that is already finished."""


@dataclass(frozen=True)
class Fleet:
    """The configuration and environment shared by all runs of a process."""

    loaded: Loaded
    environ: Mapping[str, str]
    _targets: dict[str, Target] = field(default_factory=dict)
    """The repositories of runs created by this process. They and the sandbox are not checked again."""

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def state_dir(self) -> Path:
        return Path(self.config.state.dir)

    @cached_property
    def wiring(self) -> Wiring:
        return Wiring(self.config, self.environ)

    def of_run(self, state: RunState) -> "Fleet":
        """The `Fleet` with the configuration of a run."""
        player = player_of(state)
        return self if player is None else Fleet(player.configure(self.loaded, state), self.environ, self._targets)

    # ---- runs

    async def create(self, order: Order) -> RunFolder:
        """Check the requirements of a new run and write the first facts of its journal. Does not start an engine."""
        target = await self._inspect(order)
        await self.make_way(order.name)
        self.workers_that_fit()
        folder = new_run(self.state_dir, order.goal, order.name)
        require_bubblewrap(self.wiring.worktrees)
        if order.relanding is None:
            self.wiring.require_models(workers_of(order.plan, order.rollback))
        if order.publishes:
            await refuse_branch(target, result_branch(folder.run))
        simulated = await is_simulated(self.config.models.base_url)
        started = self._started(order, target, folder.run, simulated=simulated)
        notes: list[f.Fact] = [f.WarningNoted(at=started.at, text=text) for text in self._warnings(order, target)]
        is_new = order.rehearsal is None and order.relanding is None
        if order.plan is not None and is_new and (graded := self.wiring.grade(order.plan).all):
            notes.append(f.PlanGraded(at=started.at, version=order.plan.version, warnings=graded))
        if is_new or any(ladder.first is None for ladder in started.policy.rungs.values()):
            notes.append(past_evidence(self.state_dir, target.root, simulated=simulated))
        try:
            with Journal.create(folder.journal) as journal:
                journal.append([started, *notes, *order.begun])
        except BaseException:
            folder.remove()
            raise
        self._targets[folder.run] = target
        return folder

    def require_models_for(self, state: RunState) -> None:
        """Raise `FleetError` if models can't be called, unless all open subtasks use programs."""
        programs_may_do = state.given and not state.plan.asks_for_reviews
        self.wiring.require_models(open_workers(state) if programs_may_do else None)

    def require_workers_for(self, state: RunState) -> None:
        """Raise `UsageError` if unfinished subtasks name workers that are not configured."""
        if state.rehearsal is not None and not state.for_real:
            return  # a rehearsal has a special worker
        needed = open_workers(state) - {PLANNER}
        missing = sorted(needed - (self.wiring.known.workers or needed))
        if missing:
            raise UsageError(
                f"{state.run} requires workers that are not configured: {', '.join(missing)}",
                hint=f"if the run was started with --config FILE, run `fleet resume {state.run} --config FILE`",
            )

    async def make_way(self, name: str | None) -> None:
        """Remove a refused run with the name of a new run. It does not contain any work."""
        folder = next((run for run in all_runs(self.state_dir) if run.run == name), None)
        if folder is None or folder.alive:
            return
        with suppress(FleetError):  # a run that can't be read stays
            if is_refused(folder.state()):
                await clean_run(self.state_dir, folder.run, refs=True)
                folder.remove()

    async def _inspect(self, order: Order) -> Target:
        """The repository of a new run, and the state directory made for it."""
        if shutil.which("git") is None:
            raise FleetError("git not found in PATH", hint="apt-get install git")
        target = await inspect(order.repository, order.base)
        try:
            str(target.root).encode()
        except UnicodeEncodeError:
            shown = os.fsencode(target.root).decode("utf-8", "backslashreplace")
            raise UsageError(f"the path of the repository is not UTF-8: {shown}", hint="rename it") from None
        make_state_dir(self.state_dir)
        return target

    def _started(self, order: Order, target: Target, run: RunId, *, simulated: bool = False) -> f.RunStarted:
        reviewed = {"review": order.review == "human", "reviewing": order.review}
        policy = order.policy or self.wiring.policy.model_copy(update=reviewed)
        return f.RunStarted(
            at=time.time(),
            run=run,
            goal=order.goal,
            repository=str(target.root),
            base=target.base,
            base_name=target.base_name,
            result_branch=result_branch(run),
            policy=policy,
            plan=flat_plan(order.plan) if order.plan is not None and policy.flat else order.plan,
            rollback=order.rollback,
            values=dict(order.values),
            sandbox=self.config.box.sandbox,
            simulated=simulated,
            choices=self.loaded.choices,
            gate=self.config.checks.gate.strip(),
            rehearsal=order.rehearsal,
            relanding=order.relanding,
            issue=order.issue,
        )

    def _warnings(self, order: Order, target: Target) -> Iterator[str]:
        yield from target.warnings
        if not self.config.checks.gate.strip():
            yield "no gate: only the checks of subtasks run. `fleet init` detects a gate for checks.gate."
        if not self.wiring.has_models:
            yield "no API key: fleet can't call models, so you handle failures instead of the planner"
        elif ignored := self.wiring.ignored_service:
            yield ignored
        trees = self.config.worktrees
        if trees.setup.strip() and trees.setup_network != "none":
            yield f"the setup command has network access (worktrees.setup_network = {trees.setup_network})"
        if self.config.box.sandbox == "none":
            yield "no sandbox: commands written by a model run as you, with access to your files and network"
        if order.plan is not None:
            yield from missing_rollback(order.plan, order.rollback)

    def workers_that_fit(self, wanted: int | None = None) -> tuple[int, str]:
        """The number of workers that this machine can run, and the limit. Raises `FleetError` if it is 0."""
        wanted = self.config.run.workers if wanted is None else wanted
        free_bytes = self.wiring.worktrees.limits.free_bytes
        supply = capacity(self.state_dir, wanted=wanted, free_bytes=free_bytes)
        return workers_or_refuse(supply, wanted), supply.why

    def _fewer_workers(self, state: RunState) -> list[f.Fact]:
        """The facts about workers that this machine can't run. Raises `FleetError` if it can't run any."""
        wanted = state.policy.workers
        workers, why = self.workers_that_fit(wanted)
        if _joins(state):
            workers = min(wanted, workers + sum(most for _, most in self.wiring.others.values()))
        if workers == wanted:
            return []
        text = f"{workers} workers instead of {wanted}: {why}"
        warning = f.WarningNoted(at=time.time(), text=text)
        return [warning, f.LimitsChanged(at=time.time(), by="fleet", workers=workers)]

    async def run(
        self, folder: RunFolder, *, stop: CancelScope, measures: Measures | None = None, on_fact: OnFact | None = None
    ) -> RunState:
        """Work on a run until it has ended, is drained, or `stop` is cancelled.

        Calls `on_fact` for each fact of the run, starting with the first in the journal.
        """
        with engine_lock(folder.journal), Journal(folder.journal) as journal:
            clock = SystemClock()
            engine = Engine(folder.state(on_fact=on_fact), journal, clock, on_fact)
            with stop:
                async with self._open_adapters(folder, engine.state, clock, measures) as (adapters, worktrees, calls):
                    engine.begin_with(await reconcile(engine.state, worktrees.recover, clock.now()))
                    collect_rarely()
                    engine.begin_with(_reopening(engine.state))
                    engine.begin_with(self._fewer_workers(engine.state))
                    performer = Performer(engine, await played(engine, adapters, worktrees))
                    async with self._joined_by_nodes(folder, engine, performer, worktrees, calls):
                        await engine.run(performer, self._engine_started(engine.state))
            return engine.state

    def _engine_started(self, state: RunState) -> f.EngineStarted:
        return f.EngineStarted(
            at=time.time(),
            epoch=state.epoch + 1,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=__version__,
            sandbox=self.config.box.sandbox,
            base_url=self._named_service(),
            choices=self.loaded.choices,
            planner=self.wiring.has_models and (state.relanding is None or state.relanding.resolves),
        )

    def _named_service(self) -> str | None:
        """The value of `--base-url` for `fleet resume`. A URL with a password is not stored."""
        url = self.config.models.base_url
        is_named = self.loaded.origin.get("models.base_url") == FLAG
        return url if is_named and urlsplit(url).username is None else None

    @asynccontextmanager
    async def _open_adapters(
        self, folder: RunFolder, state: RunState, clock: SystemClock, measures: Measures | None
    ) -> AsyncIterator[tuple[Adapters, RunWorktrees, OpenCalls]]:
        target = self._targets.get(state.run)
        if target is None:  # another process created the run
            require_bubblewrap(self.wiring.worktrees)
            target = await inspect(Path(state.repository), state.base)
        on_command, on_calls = measures or (None, None)
        settings = replace(self.wiring.worktrees, check_logs=folder.checks, on_command=on_command)
        async with (
            open_worktrees(target, settings, state.run, state.base, only_past=state.for_real) as worktrees,
            open_agents(self.wiring.agents(folder.transcripts)) as agents,
        ):
            if on_calls is not None:
                on_calls(agents.gauges)
            adapters = Adapters(
                planner=agents.planner,
                workers=agents.workers,
                descriptions=agents.descriptions,
                worktrees=worktrees,
                commits=worktrees,
                integrator=worktrees.integrator,
                publish=worktrees.publisher.publish,
                clock=clock,
                gate=self.wiring.gate,
                reviews=self._reviews(agents.models),
                reviews_all=any(self.config.is_set(key) for each in FEATURES.values() for key in each.reviews),
                command_workers=self.wiring.command_workers,
                has_program=self.wiring.has_program,
                disk_full=partial(disk_full_advice, self.state_dir),
            )
            yield adapters, worktrees, agents.calls

    def _reviews(self, models: OpenModels | None) -> OpenReviews | None:
        place = next((place for feature in FEATURES.values() for place in feature.reviews.values()), None)
        if place is None or models is None:
            return None
        return lambda *run: cast("ChangeReviews", load_part(place)(self, models, *run))

    @asynccontextmanager
    async def _joined_by_nodes(
        self, folder: RunFolder, engine: Engine, performer: Performer, worktrees: RunWorktrees, calls: OpenCalls
    ) -> AsyncIterator[None]:
        """Let nodes work on a run: those in its configuration, or from the first that a user adds."""
        state = engine.state
        place = _joins(state)
        if not place:
            yield
            return
        over, nobody = Event(), CancelScope()

        async def join(*, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
            async with load_part(place)(self, folder, engine.state, worktrees, calls) as nodes:
                performer.join(nodes)
                task_status.started()
                await over.wait()

        async def join_later() -> None:
            with nobody:
                while not engine.state.nodes:  # noqa: ASYNC110 - a recorded fact does not set an event
                    await sleep(HEED_S)
            if not nobody.cancelled_caught:
                await join()

        async with create_task_group() as tasks:
            if self.wiring.others or state.nodes or state.policy.machines.offers.keys() - {HERE}:
                await tasks.start(join)
            else:
                tasks.start_soon(join_later)
            yield
            over.set()
            nobody.cancel()

    async def plan_only(self, order: Order) -> Plan:
        """Get the first plan from the planner, without a journal or a run."""
        self.wiring.require_models()
        target = await self._inspect(order)
        store = await open_store(self.state_dir, target, target.base)
        repository = Snapshot(store.git, target.base)
        run = new_run(self.state_dir, order.goal, None).run
        preview = PlanPreview(self.wiring.known, order.goal, self.wiring.grade, flat=self.config.run.flat)
        state = evolve(None, self._started(order, target, run))
        with TemporaryDirectory(prefix="fleet-plan-") as folder:  # no run folder for the transcript
            async with open_agents(self.wiring.agents(RunFolder(Path(folder)).transcripts)) as agents:
                brief = PlannerBrief(
                    run=run,
                    call=1,
                    epic=order.goal,
                    state=planner_state(state, time.time()),
                    workers=agents.descriptions,
                    notes=await planner_notes(repository),
                )
                failure = await agents.planner.plan(brief, repository, preview.submit, preview)
        if failure is not None:
            message, hint = self.explained(failure)
            raise FleetError(f"the planner failed: {message}", hint=hint)
        return preview.plan

    def explained(self, failure: f.Failure) -> tuple[str, str]:
        """Return the message and the hint for a failure of the model service."""
        models, summary = self.config.models, failure.summary
        service = self.wiring.base_url or models.service
        if failure.status in {401, 403}:
            if models.service != "api":
                return summary, f"check the credentials for {models.service}: fleet uses those that its own tools find"
            return summary, f"check the key in {models.api_key_env}: it was sent to {models.base_url}"
        if failure.kind == "configuration":
            hint = "check planner.model, models.worker and --base-url, or run `fleet doctor --live`"
            return f"{summary} ({failure.evidence}, {service})", hint
        if failure.kind == "transient":
            return summary, f"check that {service} is up, or select another service with --base-url"
        return summary, ""


OF_FEATURES = ("rehearsal", "relanding")
"""The fields of `RunState` that mark runs of a feature."""


class Player(Protocol):
    """Configures and resumes the runs of a feature."""

    def configure(self, loaded: Loaded, state: RunState) -> Loaded:
        """The configuration for such a run."""
        ...

    def resume(self, fleet: Fleet, folder: RunFolder, *, changed: bool, as_json: bool) -> int:
        """Finish the run and show its result. Returns the exit code."""
        ...


def player_of(state: RunState) -> Player | None:
    """The player of this run, if it belongs to a feature."""
    places = {name: place for feature in FEATURES.values() for name, place in feature.plays.items()}
    found: Player | None = next((load_part(place) for name, place in places.items() if _is_set(state, name)), None)
    return found


async def played(
    engine: Engine, adapters: Adapters, worktrees: RunWorktrees, features: Mapping[str, Feature] = FEATURES
) -> Adapters:
    """The adapters of a run, replaced by those of its feature. Raises `FleetError` if the feature is missing."""
    places = {name: place for feature in features.values() for name, place in feature.adapters.items()}
    for name in OF_FEATURES:
        if _is_set(engine.state, name):
            if name not in places:
                raise FleetError(f"{engine.state.run} is a {name}, which this installation does not support")
            adapters = await load_part(places[name])(engine, adapters, worktrees)
    return adapters


def _is_set(state: RunState, name: str) -> bool:
    return getattr(state, name) is not None


def _joins(state: RunState) -> str:
    """The function that lets nodes work on a run.

    It is empty for rehearsals and relandings, which stay on this machine, and if no feature provides nodes.
    """
    if state.rehearsal is not None or state.relanding is not None:
        return ""
    return next((feature.joins for feature in FEATURES.values() if feature.joins), "")


def _reopening(state: RunState) -> list[f.Fact]:
    """The fact that reopens an ended run."""
    return [f.RunReopened(at=time.time(), by=user())] if state.ended else []


# ---- needed ----------------------------------------------------------------------------------------------------------
# The workers of a run. If all are programs and there are no reviews, it does not require a model.


def workers_of(plan: Plan | None, rollback: Plan | None) -> frozenset[str] | None:
    """The workers in the plans of an order. None if models are required to plan or to review."""
    plans = [each for each in (plan, rollback) if each is not None]
    if plan is None or any(each.asks_for_reviews for each in plans):
        return None
    return frozenset(subtask.worker for each in plans for subtask in each.subtasks)


def open_workers(state: RunState) -> set[str]:
    """The workers of unfinished subtasks."""
    return {spec.worker for spec in state.plan.subtasks if not state.subtasks[spec.id].closed}


# ---- reopen ----------------------------------------------------------------------------------------------------------
# Withdraws a cancel that no engine has applied, for a user who resumes the run.


def withdraw_cancel(folder: RunFolder) -> None:
    """Remove cancels from the inbox of a stopped run, and reopen the run if one is recorded."""
    if not _cancels(folder) and not folder.state().cancelled:
        return
    with engine_lock(folder.journal), Journal(folder.journal) as journal:
        state, pending = folder.state(), _cancels(folder)
        if not state.ended and (pending or state.cancelled):
            journal.append([RunReopened(at=time.time(), by=user())], taken=pending)


def _cancels(folder: RunFolder) -> list[int]:
    with Journal(folder.journal) as journal:
        return [id_ for id_, request in journal.requests() if isinstance(request, CancelRequested)]


# ---- result branch ---------------------------------------------------------------------------------------------------
# Checks that a run can create its result branch in the user's repository.


async def refuse_branch(target: Target, branch: str) -> None:
    """Raise `UsageError` if another branch conflicts with it. Like files, `a` and `a/b` can't both exist."""
    folder = branch.partition("/")[0]
    refs = text(await target.git("for-each-ref", "--format=%(refname)", f"refs/heads/{folder}"))
    branches = [ref.removeprefix("refs/heads/") for ref in refs.splitlines()]
    if folder in branches:
        message = f"{target.root} has a branch {folder!r}, so git can't create {branch!r}"
        raise UsageError(message, hint=f"rename it: git branch -m {folder} {folder}-1")
    taken = next((name for name in branches if name == branch or name.startswith(f"{branch}/")), None)
    if taken is not None:
        hint = f"use another --name, or delete the branch: git branch -D {taken}"
        raise UsageError(f"{target.root} already has a branch {taken!r}", hint=hint)
