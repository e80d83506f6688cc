"""For `fleet plan`: a meter and a submission without a run. Nothing is journalled, and nothing is waited for."""

from collections.abc import Callable

from fleet.core import facts as f
from fleet.core.flat import flat_revision
from fleet.core.lint import Grade
from fleet.core.plan import Plan
from fleet.core.revision import Revision, Standings, revise_plan
from fleet.core.usage import Cost
from fleet.core.validate import Known, Problem
from fleet.ports import ModelUse, ServiceNews


class Sketch:
    """Takes the first revision of a planner that is only asked for its plan."""

    def __init__(self, known: Known, goal: str, graded: Callable[[Plan], Grade], *, flat: bool) -> None:
        self._flat = flat
        self._known = known
        self._graded = graded
        self._objected = False
        self.plan = Plan(goal=goal)

    async def submit(self, revision: Revision) -> tuple[Problem, ...]:
        made = flat_revision(revision, self.plan.goal) if self._flat else revision
        revised = revise_plan(self.plan, made, Standings(), self._known)
        if isinstance(revised, tuple):
            return revised
        grade = self._graded(revised)
        if grade.errors and not self._objected:  # as in a run: said once, and an author who insists is heard
            self._objected = True
            return grade.errors
        self.plan = revised
        return ()

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> f.Failure | None:
        """Nobody counts here: there is no run."""

    async def used(self, use: ModelUse) -> None:
        """Nobody counts here."""

    def release(self, *, lost: bool = False) -> None:
        """Nobody counts here."""

    def waits_for(self, condition: f.ServiceCondition) -> bool:
        del condition
        return False

    def words(self) -> int:
        return 0

    def may_wait(self) -> bool:
        return True

    async def noticed(self, news: ServiceNews) -> None:
        """Nobody reads here: what is wrong is in the failure."""
