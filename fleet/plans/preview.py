"""For `fleet plan`: a meter and a submission without a run. There is no journal, and no call waits for the service."""

from collections.abc import Callable

from fleet.core.base.usage import Cost
from fleet.core.plans.lint import Grade
from fleet.core.plans.plan import Plan
from fleet.core.plans.plan_file import flat_revision
from fleet.core.plans.revision import Revision, SubtaskStatuses, revise_plan
from fleet.core.plans.validate import Known, Problem
from fleet.core.state import facts as f
from fleet.ports.agents import ModelUse, ServiceGate, ServiceNotice, WaitRules


class PlanPreview:
    """Takes the first revision of a planner. Satisfies `Meter` and `ServiceGate` without any limit."""

    def __init__(self, known: Known, goal: str, grade: Callable[[Plan], Grade], *, flat: bool) -> None:
        self._flat = flat
        self._known = known
        self._grade = grade
        self._has_objected = False
        self.plan = Plan(goal=goal)

    async def submit(self, revision: Revision) -> tuple[Problem, ...]:
        if self._flat:
            revision = flat_revision(revision, self.plan.goal)
        revised = revise_plan(self.plan, revision, SubtaskStatuses(), self._known)
        if isinstance(revised, tuple):
            return revised
        grade = self._grade(revised)
        if grade.errors and not self._has_objected:  # as in a run: reported once, and a planner may insist
            self._has_objected = True
            return grade.errors
        self.plan = revised
        return ()

    # ---- the meter

    @property
    def service(self) -> ServiceGate:
        return self

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> f.Failure | None:
        """Without a run there is no budget."""

    async def widen(self, most: Cost) -> float:
        """Without a budget there is room."""
        del most
        return 1.0

    async def used(self, use: ModelUse) -> None:
        """Without a run there is no journal."""

    def release(self, *, lost: bool = False) -> None:
        """Nothing was reserved."""

    # ---- the service gate

    def rules(self) -> WaitRules:
        """No call waits: its failure says why there is no plan."""
        return WaitRules()

    async def warn(self, text: str) -> None:
        """There is no run to warn."""

    async def report(self, notice: ServiceNotice) -> None:
        """The failure of the call says what is wrong."""
