"""Calls to a planner, the run's own or an area's: one call, and the revision that it submits."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.lint import Grade, grade_revision
from fleet.core.plans.parameters import flat_revision
from fleet.core.plans.revision import PlanContext, Problem, Revision, revise_plan, with_reviews
from fleet.core.policy.effects import CallPlanner
from fleet.core.policy.planner_view import area_state, find_subtasks, planner_record, planner_state, subtask_report
from fleet.core.policy.remedies import backoff
from fleet.core.state.machines import known_machines
from fleet.core.state.state import RunState
from fleet.core.state.status import conversations, for_revision, planning_of
from fleet.engine.adapters import Adapters
from fleet.engine.briefs import planner_notes
from fleet.engine.internal_errors import Advice
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.ports.agents import PlannerBrief
from fleet.ports.journal import Recorder


class PlannerCalls:
    """Carries out the calls to planners of one run."""

    def __init__(
        self,
        engine: Recorder,
        adapters: Adapters,
        budget: RunBudget,
        advice: Advice,
        proves_nothing: Callable[[SubtaskId], Awaitable[bool]],
    ) -> None:
        self._engine = engine
        self._adapters = adapters
        self._budget = budget
        self._advice = advice
        self._proves_nothing = proves_nothing
        """Whether the checks of an area prove nothing, which ends its attempt."""
        self._called: set[int] = set()
        """The calls for which a model was asked: these are not made twice."""
        self._reported: set[str] = set()
        """Problems with checks that a planner has seen once: it may insist on them."""

    def may_repeat(self, command: CallPlanner) -> bool:
        """Return whether a call can be repeated after an internal error without paying twice."""
        return command.call not in self._called

    async def call(self, command: CallPlanner) -> None:
        if command.area is not None and self._is_new(command.area) and await self._proves_nothing(command.area):
            return
        state, adapters, area = self._engine.state, self._adapters, command.area
        repository = adapters.commits.at(state.tip)
        brief = PlannerBrief(
            run=state.run,
            call=command.call,
            epic=state.goal,
            area=area_state(state, area) if area is not None else {},
            model=state.spec(area).model if area is not None else None,
            effort=state.spec(area).effort if area is not None else None,
            state=planner_state(state, adapters.clock.now(), area),
            workers=dict(adapters.descriptions),
            notes=await self._advice.take(
                "the repository's notes for the planner", partial(planner_notes, repository), without={}
            ),
            record=planner_record(state, area),
            report=lambda id_: subtask_report(self._engine.state, id_, area),
            find=lambda words: find_subtasks(self._engine.state, words, area),
        )
        role: f.Role = "planner" if area is None else "sub_planner"
        meter = CallMeter(self._budget, Purpose(role, call=command.call, area=area))
        try:
            failure = await adapters.planner.plan(brief, repository, partial(self._submit, command), meter)
        finally:
            if meter.called:
                self._called.add(command.call)
        if failure is None and _is_open(self._engine.state, command):
            failure = f.Failure(kind="protocol", summary="the planner ended without a revision")
        if failure is not None:
            await self.failed(command, failure)

    def _is_new(self, area: SubtaskId) -> bool:
        """Return whether the planner has never been called. After its first call, its work may make checks pass."""
        state = self._engine.state
        return state.areas[area].calls == 1 and len(state.subtasks[area].attempts) == 1

    async def _submit(self, command: CallPlanner, revision: Revision) -> Sequence[Problem]:
        """Check a revision against the state at the moment of recording, so that no fact can come in between."""
        problems: Sequence[Problem] = ()

        def facts(state: RunState) -> Sequence[f.Fact]:
            nonlocal problems
            accepted, problems = self._judge(state, command, revision)
            return accepted

        await self._engine.propose(facts)
        return problems

    def _judge(
        self, state: RunState, command: CallPlanner, revision: Revision
    ) -> tuple[Sequence[f.Fact], Sequence[Problem]]:
        """The facts that follow from a revision, or the problems that it goes back with."""
        if not _is_open(state, command):
            return (), (Problem("", "this call has ended, and a new one was started"),)
        adapters, now = self._adapters, self._adapters.clock.now()
        if state.policy.flat and not state.plan.subtasks:
            revision = flat_revision(revision, state.goal)
        revision = with_reviews(state.plan, revision)
        changeable = for_revision(state, command.area)
        revised = revise_plan(state.plan, revision, changeable, self._known(state), is_valid=True)
        if isinstance(revised, tuple):
            return (), revised
        pending = state.subtasks.ids(state.subtasks.open)
        grade = self._advice.take_now(
            "the linter's check of a revision",
            lambda: grade_revision(revision, revised, pending, adapters.has_program, adapters.command_workers),
            without=Grade(),
        )
        new = tuple(problem for problem in grade.errors if str(problem) not in self._reported)
        self._reported.update(map(str, grade.errors))
        if new:
            return (), new
        warnings = (
            *(f"{problem} (the planner kept this despite the warning)" for problem in grade.errors),
            *grade.warnings,
        )
        facts: list[f.Fact] = [
            f.PlanRevised(at=now, call=command.call, by="planner", revision=revision, area=command.area)
        ]
        if warnings:
            facts.append(f.PlanGraded(at=now, version=revised.version, warnings=warnings))
        return facts, ()

    def _known(self, state: RunState) -> PlanContext:
        return PlanContext(
            max_subtasks=state.policy.max_subtasks,
            max_areas=state.policy.max_areas,
            workers=frozenset(self._adapters.workers),
            checks=frozenset(self._adapters.gate.named),
            machines=known_machines(state),
        )

    async def failed(self, command: CallPlanner, failure: f.Failure) -> None:
        state, area, now = self._engine.state, command.area, self._adapters.clock.now()
        key = f"{state.run}/planner" if area is None else f"{state.run}/{area}/planner"
        wait = backoff(state.policy, key=key, failures=planning_of(state, area).failures + 1)
        await self._engine.record(
            f.PlannerFailed(at=now, call=command.call, failure=failure, not_before=now + wait, area=area)
        )


def _is_open(state: RunState, command: CallPlanner) -> bool:
    """Whether the run still waits for this call."""
    return command.area in conversations(state) and planning_of(state, command.area).open == command.call
