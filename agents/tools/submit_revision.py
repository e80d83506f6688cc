"""`submit_revision`: how the planner ends its call. An inconsistent revision comes back with all its problems."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agents.base.text import capped
from agents.models.answer import Block
from agents.tools.tool import Finished, ToolResult, strict_declaration
from fleet.core.plans.plan_file import parse
from fleet.core.plans.revision import Revision
from fleet.core.plans.validate import Problem
from fleet.core.state.facts import Failure

Submit = Callable[[Revision], Awaitable[Sequence[Problem]]]

_LONGEST = 20_000  # characters of a list of problems
_LONGEST_PROBLEM = 200  # characters of the problem that a summary quotes
_DESCRIPTION = (
    "Submits the changes to the plan, and ends this call. Leave lists empty if nothing changes. "
    "A revision is applied completely or not at all: one that does not hold together comes back with all "
    "its problems; fix every one and submit the whole revision again."
)


class SubmitRevision:
    """Hands in a revision, and lets the model repair it a few times."""

    name = "submit_revision"
    declaration: Block = strict_declaration(name, _DESCRIPTION, Revision)

    def __init__(self, submit: Submit, *, repairs: int) -> None:
        self._submit = submit
        self._repairs_left = repairs

    async def run(self, raw: Mapping[str, Any]) -> ToolResult | Finished[Failure | None]:
        parsed = parse(Revision, dict(raw), at="")
        problems = await self._submit(parsed) if isinstance(parsed, Revision) else parsed
        if not problems:
            return Finished(None)
        listed = capped("\n".join(f"- {problem}" for problem in problems), _LONGEST)
        if self._repairs_left <= 0:
            why = f"the revision still does not hold together: {capped(str(problems[0]), _LONGEST_PROBLEM)}"
            return Finished(Failure(kind="protocol", summary=why, evidence=listed))
        self._repairs_left -= 1
        return ToolResult(f"The revision does not hold together; none of it was applied.\n{listed}", is_error=True)
