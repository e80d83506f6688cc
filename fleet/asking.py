"""Asking a planner, the run's own or an area's: one call, the revision that comes of it, what is noticed of that."""

from collections.abc import Awaitable, Callable, Sequence

from fleet.core import facts as f
from fleet.core.areas import conversations, planning_of
from fleet.core.commands import CallPlanner
from fleet.core.flat import flat_revision
from fleet.core.lint import grade_revision
from fleet.core.remedies import backoff
from fleet.core.revision import Revision, revise_plan
from fleet.core.standing import OVER, for_revision, standings
from fleet.core.state import RunState
from fleet.core.validate import Known, Problem
from fleet.core.views import area_view, planner_state
from fleet.meter import Purse, Record
from fleet.notes import planner_notes
from fleet.ports import PlannerBrief
from fleet.world import World


class Asking:
    """Carries out the calls to planners of one run."""

    def __init__(self, engine: Record, world: World, purse: Purse, vacuous: Callable[[str], Awaitable[bool]]) -> None:
        self._engine = engine
        self._world = world
        self._purse = purse
        self._vacuous = vacuous
        self._objected: set[str] = set()
        """What was wrong with checks of plans, said once: a planner that insists is its own master."""

    def _now(self) -> float:
        return self._world.clock.now()

    async def call(self, command: CallPlanner) -> None:
        state, world = self._engine.state, self._world
        area = command.area
        if area is not None and _is_new(state, area) and await self._vacuous(area):
            return
        brief = PlannerBrief(
            run=state.run,
            call=command.call,
            epic=state.goal,
            area=area_view(state, area) if area is not None else {},
            model=state.spec(area).model if area is not None else None,
            state=planner_state(state, self._now(), area),
            workers=dict(world.descriptions),
            notes=await planner_notes(world.worktrees.at(state.tip)),
        )

        async def submit(revision: Revision) -> Sequence[Problem]:
            return await self._submit(command, revision)

        role: f.Role = "planner" if area is None else "sub_planner"
        meter = self._purse.meter(role, call=command.call, area=area)
        failure = await world.planner.plan(brief, world.worktrees.at(state.tip), submit, meter)
        if failure is None and _is_open(self._engine.state, command):
            failure = f.Failure(kind="protocol", summary="the planner ended without a revision")
        if failure is not None:
            await self.failed(command, failure)

    async def _submit(self, command: CallPlanner, revision: Revision) -> Sequence[Problem]:
        known = Known(
            max_subtasks=self._engine.state.policy.max_subtasks,
            max_areas=self._engine.state.policy.max_areas,
            workers=frozenset(self._world.workers),
            checks=frozenset(self._world.gate.named),
        )
        problems: list[Problem] = []

        def facts(state: RunState) -> Sequence[f.Fact]:
            if not _is_open(state, command):
                problems.append(Problem("", "this call is over; another one was opened"))
                return []
            now = self._now()
            made = flat_revision(revision, state.goal) if state.policy.flat and not state.plan.subtasks else revision
            revised = revise_plan(state.plan, made, for_revision(state, now, command.area), known)
            if isinstance(revised, tuple):
                problems.extend(revised)
                return []
            stand = standings(state, now)
            open_ = [id_ for id_, where in stand.items() if where not in OVER]
            grade = grade_revision(made, revised, open_, self._world.runs, self._world.steps)
            problems.extend(problem for problem in grade.errors if str(problem) not in self._objected)
            self._objected.update(map(str, grade.errors))
            if problems:
                return []
            noticed = (*(f"{problem} (the planner insists)" for problem in grade.errors), *grade.warnings)
            fact = f.PlanRevised(at=now, call=command.call, by="planner", revision=made, area=command.area)
            return [fact, *([f.PlanGraded(at=now, version=revised.version, warnings=noticed)] if noticed else [])]

        await self._engine.propose(facts)
        return problems

    async def failed(self, command: CallPlanner, failure: f.Failure) -> None:
        state, area = self._engine.state, command.area
        key = f"{state.run}/planner" if area is None else f"{state.run}/{area}/planner"
        wait = backoff(state.policy, key=key, failures=planning_of(state, area).failures + 1)
        until = self._now() + wait
        await self._engine.record(
            f.PlannerFailed(at=self._now(), call=command.call, failure=failure, not_before=until, area=area)
        )


def _is_new(state: RunState, area: str) -> bool:
    """Whether nobody has worked on it: later its checks may pass because somebody did."""
    return state.areas[area].calls == 1 and len(state.subtasks[area].attempts) == 1


def _is_open(state: RunState, command: CallPlanner) -> bool:
    """Whether anybody still waits for this call."""
    return command.area in conversations(state) and planning_of(state, command.area).open == command.call
