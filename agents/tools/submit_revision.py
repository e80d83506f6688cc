"""`submit_revision`: how the planner ends its call. What does not hold together goes back with every problem it has."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agents.models.answer import Block
from agents.text import capped
from agents.tools.schema import strict_schema
from agents.tools.tool import Ended, Said
from fleet.core.facts import Failure
from fleet.core.planfile import parse
from fleet.core.revision import Revision
from fleet.core.validate import Problem

Submit = Callable[[Revision], Awaitable[Sequence[Problem]]]

_LONGEST = 20_000  # characters of a list of problems
_LONGEST_PROBLEM = 200  # characters of the one that is told where there is a line for it


class SubmitRevision:
    """Hands in a revision, and lets the model mend it a few times."""

    name = "submit_revision"

    def __init__(self, submit: Submit, *, repairs: int) -> None:
        self._submit = submit
        self._repairs_left = repairs

    @property
    def declaration(self) -> Block:
        return {
            "name": self.name,
            "description": (
                "Hands in what changes in the plan, and ends this call. Leave lists empty where nothing changes. "
                "A revision is applied whole or not at all: one that does not hold together comes back with every "
                "problem it has; mend them all and submit it again, complete."
            ),
            "strict": True,
            "input_schema": strict_schema(Revision),
        }

    def reads_only(self, raw: Mapping[str, Any]) -> bool:  # noqa: ARG002 - it ends everything
        return False

    async def run(self, raw: Mapping[str, Any]) -> Said | Ended[Failure | None]:
        read = parse(Revision, dict(raw), at="")
        problems = await self._submit(read) if isinstance(read, Revision) else read
        if not problems:
            return Ended(None)
        listed = capped("\n".join(f"- {problem}" for problem in problems), _LONGEST)
        if self._repairs_left <= 0:
            why = f"the revision still does not hold together: {capped(str(problems[0]), _LONGEST_PROBLEM)}"
            return Ended(Failure(kind="protocol", summary=why, evidence=listed))
        self._repairs_left -= 1
        return Said(f"The revision does not hold together; nothing of it was applied.\n{listed}", is_error=True)
