"""The composition root: the only place that knows the concrete adapters; each gets its slice of the configuration."""

import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from anyio import CancelScope, create_task_group
from pydantic import JsonValue

from agents.minds import open_minds
from agents.models.prices import Price
from agents.settings import MindSettings, WorkerSettings
from fleet import __version__
from fleet.checking import LEAST_SLOTS, Gate
from fleet.clock import SystemClock
from fleet.collector import settle
from fleet.config import Loaded, user_file_path
from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.core.flat import flat_plan
from fleet.core.ids import result_branch
from fleet.core.lint import Grade, grade_plan
from fleet.core.plan import Criterion, Plan
from fleet.core.policy import Reviewing
from fleet.core.rollback import missing
from fleet.core.state import RunState
from fleet.core.validate import Known
from fleet.core.views import planner_state
from fleet.engine import Engine
from fleet.environment import user
from fleet.folders import RunFolder, full, make_state_dir, new_run
from fleet.journal import Journal, held, replay
from fleet.layers import FLAG
from fleet.mending import mended
from fleet.notes import planner_notes
from fleet.perform import Performer
from fleet.ports import CallGauges, FleetError, PlannerBrief, UsageError, Watcher
from fleet.settings import Config, as_policy
from fleet.sketch import Sketch
from fleet.staff import Surroundings, staff
from fleet.world import World
from worktrees.box import program_there, require
from worktrees.git import Git, text
from worktrees.settings import MIB, BoxLimits, HandSettings
from worktrees.snapshot import Snapshot
from worktrees.store import open_store
from worktrees.target import Target, inspect
from worktrees.workshop import Workshop, open_workshop

NO_KEY = "no-key-is-needed"
REAL_HOST = "api.anthropic.com"
Opened = tuple[World, Workshop]


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asked for."""

    goal: str
    repository: Path
    base: str | None = None
    name: str | None = None
    plan: Plan | None = None
    rollback: Plan | None = None
    values: Mapping[str, JsonValue] = field(default_factory=dict)
    review: Reviewing = "none"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that is the same for all runs of one invocation."""

    loaded: Loaded
    environ: Mapping[str, str]

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def state_dir(self) -> Path:
        return Path(self.config.state.dir)

    def known(self) -> Known:
        """What plans may refer to."""
        return Known(
            max_subtasks=self.config.planner.max_subtasks,
            max_areas=self.config.planner.max_areas,
            workers=frozenset(self.config.workers),
            checks=frozenset(self.config.checks.named),
        )

    def runs(self, program: str) -> bool:
        """Whether checks would find a program of this name. What the set-up brings nobody knows before."""
        return bool(self.config.worktrees.setup) or program_there(self.hands(), program)

    def grade(self, plan: Plan) -> Grade:
        """What there is to say of a plan before it runs."""
        return grade_plan(plan, self.runs, self.steps)

    @property
    def steps(self) -> frozenset[str]:
        """The workers that are programs."""
        return frozenset(name for name, own in self.config.workers.items() if own.kind == "command")

    def api_key(self) -> str:
        """The key for the model's service; raises `FleetError` where there is none and one is needed."""
        models = self.config.models
        key = self.environ.get(models.api_key_env, "").strip()
        if not key and urlsplit(models.base_url).hostname == REAL_HOST:
            raise FleetError(
                f"there is no API key: set {models.api_key_env}, or name another service with --base-url "
                "(`fleet simulate` starts a simulated model)"
            )
        return key or NO_KEY

    # ---- runs

    async def create(self, order: Order) -> RunFolder:
        """A new run, checked and journalled, that nothing has worked on yet."""
        require_git()
        target = await _target(order)
        make_state_dir(self.state_dir)
        folder = new_run(self.state_dir, order.goal, order.name)
        require(self.hands())
        self.api_key()
        branch = result_branch(folder.run)
        await _refuse_branch(target, branch)
        from agents.models.claude import is_simulated  # noqa: PLC0415 - the SDK takes a second; mistakes come first

        simulated = await is_simulated(self.config.models.base_url)
        started = self._started(order, target, folder.run, simulated=simulated)
        notes: list[f.Fact] = [
            f.WarningNoted(at=started.at, text=text) for text in (*target.warnings, *self._warnings())
        ]
        missed = missing(order.plan, order.rollback) if order.plan is not None else ()
        notes += (f.WarningNoted(at=started.at, text=text) for text in missed)
        if order.plan is not None and (noticed := self.grade(order.plan).all):
            notes.append(f.PlanGraded(at=started.at, version=order.plan.version, warnings=noticed))
        try:
            with Journal.create(folder.journal) as journal:
                journal.append([started, *notes])
        except BaseException:
            folder.remove()
            raise
        return folder

    def _started(self, order: Order, target: Target, run: str, *, simulated: bool = False) -> f.RunStarted:
        return f.RunStarted(
            at=time.time(),
            run=run,
            goal=order.goal,
            repository=str(target.root),
            base=target.base,
            base_name=target.base_name,
            result_branch=result_branch(run),
            policy=as_policy(self.config).model_copy(
                update={"review": order.review == "human", "reviewing": order.review}
            ),
            plan=flat_plan(order.plan) if order.plan is not None and self.config.run.flat else order.plan,
            rollback=order.rollback,
            values=dict(order.values),
            sandbox=self.config.box.sandbox,
            simulated=simulated,
        )

    def _warnings(self) -> tuple[str, ...]:
        if self.config.box.sandbox == "none":
            return ("no sandbox: commands that a model wrote run as you, with your files and your network",)
        return ()

    async def run(self, folder: RunFolder, *, stop: CancelScope, watcher: Watcher | None = None) -> RunState:
        """Work on a run until it has ended, is drained, or `stop` is cancelled."""
        with held(folder.journal), Journal(folder.journal) as journal:
            state = replay(journal.facts())
            if state is None:
                raise FleetError(f"{folder.journal} is empty; remove {folder.path}")
            with stop:
                async with self._world(folder, state, watcher) as (world, hands):
                    state = await mended(state, journal, hands, world.clock.now())
                    settle()
                    engine = Engine(_open(state, journal), journal, world.clock)
                    state = await engine.run(Performer(engine, world), self._engine_started(state))
            return state

    def _engine_started(self, state: RunState) -> f.EngineStarted:
        return f.EngineStarted(
            at=time.time(),
            epoch=state.epoch + 1,
            pid=os.getpid(),
            host=socket.gethostname(),
            version=__version__,
            sandbox=self.config.box.sandbox,
            base_url=self._named_service(),
        )

    def _named_service(self) -> str | None:
        """What `--base-url` said, so that nobody who resumes the run has to say it again. A password is not kept."""
        url = self.config.models.base_url
        named = self.loaded.origin.get("models.base_url") == FLAG
        return url if named and urlsplit(url).username is None else None

    @asynccontextmanager
    async def _world(self, folder: RunFolder, state: RunState, watcher: Watcher | None) -> AsyncIterator[Opened]:
        target = await inspect(Path(state.repository), state.base)
        on_command = watcher.commanded if watcher is not None else None
        hands = replace(self.hands(), check_logs=folder.checks, on_command=on_command)
        async with (
            open_workshop(target, hands, state.run, state.base) as workshop,
            open_minds(self._minds(folder)) as minds,
            _watched(watcher, minds.gauges),
        ):
            world = World(
                planner=minds.planner,
                workers=minds.workers,
                descriptions=minds.descriptions,
                worktrees=workshop,
                integrator=workshop,
                clock=SystemClock(),
                gate=self._gate(),
                steps=self.steps,
                runs=self.runs,
                full=partial(full, self.state_dir),
            )
            yield world, workshop

    async def plan_only(self, order: Order) -> Plan:
        """What the planner would do first. Nothing is journalled, nothing runs."""
        self.api_key()
        require_git()
        target = await _target(order)
        make_state_dir(self.state_dir)
        store = await open_store(self.state_dir, target, target.base)
        run = new_run(self.state_dir, order.goal, None).run
        sketch = Sketch(self.known(), order.goal, self.grade, flat=self.config.run.flat)
        state = evolve(None, self._started(order, target, run))
        with TemporaryDirectory(prefix="fleet-plan-") as passing:  # there is no run to keep a transcript in
            async with open_minds(self._minds(RunFolder(Path(passing)))) as minds:
                brief = PlannerBrief(
                    run=run,
                    call=1,
                    epic=order.goal,
                    state=planner_state(state, time.time()),
                    workers=minds.descriptions,
                    notes=await planner_notes(Snapshot(store.git, target.base)),
                )
                failure = await minds.planner.plan(brief, Snapshot(store.git, target.base), sketch.submit, sketch)
        if failure is not None:
            raise FleetError(f"the planner failed: {self.explained(failure)}")
        return sketch.plan

    def explained(self, failure: f.Failure) -> str:
        """A failure of the model's service, and what to look at."""
        models, said = self.config.models, failure.summary
        if failure.status in {401, 403}:
            return f"{said}; {models.base_url} was asked with the key in {models.api_key_env}"
        if failure.kind == "configuration":
            names = "planner.model and models.worker choose the models, --base-url the service"
            return f"{said} ({failure.evidence}; {models.base_url}); {names}"
        if failure.kind == "transient":
            return f"{said}; {models.base_url} was asked: see whether it is up, or choose another with --base-url"
        return said

    # ---- slices of the configuration

    def _gate(self) -> Gate:
        checks = self.config.checks
        whole = Criterion(
            criterion="the project's gate", run=checks.gate, timeout_s=checks.gate_timeout_s, fails_before=False
        )
        return Gate(
            criteria=(whole,) if checks.gate.strip() else (),
            named=dict(checks.named),
            reruns=checks.reruns,
            slots=max(LEAST_SLOTS, checks.slots_on(os.cpu_count() or 1)),
            expected_tests=checks.expected_tests,
        )

    def hands(self) -> HandSettings:
        box, trees, cores = self.config.box, self.config.worktrees, os.cpu_count() or 1
        return HandSettings(
            state_dir=self.state_dir,
            sandbox=box.sandbox,
            read_only=tuple(map(Path, box.read_only)),
            path=tuple(map(Path, box.path)),
            environment=dict(box.environment),
            network=box.network,
            syscall_filter=box.syscall_filter,
            limits=BoxLimits(memory_bytes=box.memory_mb * MIB, disk_bytes=box.disk_mb * MIB),
            box_commands=box.commands_on(cores),
            check_slots=self.config.checks.slots_on(cores),
            max_file_bytes=box.max_file_mb * MIB,
            max_files=box.max_files,
            expected_tests=self.config.checks.expected_tests,
            protected=self.config.checks.protected,
            email=self.config.git.email,
            lease=trees.lease,
            setup=trees.setup,
            setup_s=trees.setup_timeout_s,
            lock_files=trees.lock_files,
            include=trees.include,
            first_port=trees.first_port,
            ports=trees.ports,
            sparse=trees.sparse,
            max_pool_bytes=int(trees.max_gb * 1e9) if trees.max_gb else None,
        )

    def staff(self) -> dict[str, WorkerSettings]:
        """The workers there are."""
        return staff(self.config.workers, Surroundings(user_file_path().parent, self.environ))

    def _minds(self, folder: RunFolder) -> MindSettings:
        models, planner, limits = self.config.models, self.config.planner, self.config.limits
        return MindSettings(
            base_url=models.base_url,
            api_key=self.api_key(),
            transcripts=folder.transcripts,
            planner_model=planner.model,
            worker_model=models.worker,
            workers=self.staff(),
            max_tokens=models.max_tokens,
            explore_turns=planner.explore_turns,
            repairs=planner.repairs,
            horizon=planner.horizon,
            retries=models.retries,
            backoff_first_s=limits.backoff_first_s,
            retry_after_cap_s=models.retry_after_cap_s,
            fallbacks=dict(models.fallbacks),
            silence_s=models.silence_s,
            call_s=models.call_s,
            compact_at=models.compact_at,
            compact_to=models.compact_to,
            prices={name: Price(**price.model_dump(exclude_none=True)) for name, price in models.prices.items()},
        )


@asynccontextmanager
async def _watched(watcher: Watcher | None, look: Callable[[], CallGauges]) -> AsyncIterator[None]:
    if watcher is None:
        yield
        return
    async with create_task_group() as sides:
        sides.start_soon(watcher.watch_calls, look)
        yield
        sides.cancel_scope.cancel()


def _open(state: RunState, journal: Journal) -> RunState:
    """An ended run that someone goes on with is open again."""
    if not state.ended:
        return state
    again = f.RunReopened(at=time.time(), by=user())
    journal.append([again])
    return evolve(state, again)


def require_git() -> None:
    """Raises `FleetError` with the remedy where there is no git."""
    if shutil.which("git") is None:
        raise FleetError("git is not installed, or not in PATH; install it: apt-get install git")


async def _target(order: Order) -> Target:
    target = await inspect(order.repository, order.base)
    if any(map(_is_surrogate, str(target.root))):
        shown = os.fsencode(target.root).decode("utf-8", "backslashreplace")
        raise UsageError(f"the path {shown} is not UTF-8, and the journal can't name it; rename that folder")
    return target


def _is_surrogate(char: str) -> bool:
    """What stands for a byte that is no UTF-8."""
    return "\ud800" <= char <= "\udfff"


async def _refuse_branch(target: Target, branch: str) -> None:
    """Raises `UsageError` where a branch is in the way. Git keeps them like files: `a` and `a/b` exclude each other."""
    folder = branch.partition("/")[0]
    listed = text(await Git(target.git_dir)("for-each-ref", "--format=%(refname)", f"refs/heads/{folder}"))
    there = [ref.removeprefix("refs/heads/") for ref in listed.splitlines()]
    if folder in there:
        raise UsageError(
            f"{target.root} has a branch {folder!r}, so there can be no {branch!r} beside it; "
            f"rename it: git branch -m {folder} {folder}-1"
        )
    taken = next((name for name in there if name == branch or name.startswith(f"{branch}/")), None)
    if taken is not None:
        raise UsageError(
            f"{target.root} has a branch {taken!r} already; choose another --name, or remove it: git branch -D {taken}"
        )
