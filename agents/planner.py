"""The planner: one conversation per call, which starts with the epic and the state and ends with one revision.

It submits the revision with `submit_revision`. An inconsistent revision is returned with all its problems.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.conversation.guards import Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.conversation.settings import AgentSettings
from agents.models.answer import Block
from agents.models.calls import Caller
from agents.models.text import capped, fenced, render
from agents.models.transcripts import Transcripts
from agents.tools.registry import PLANNER_TOOLS
from agents.tools.report import FindSubtasks, ReadReport
from agents.tools.tool import ReportDone, ToolResult, strict_declaration
from fleet.core.facts.facts import Failure
from fleet.core.plans.parameters import parse
from fleet.core.plans.revision import Problem, Revision
from fleet.ports.agents import Meter, PlannerBrief, PlannerRepository

_TAGS = re.compile(r"<(?=\s*/?\s*(?:epic|state|workers|notes|area|record)\b)", re.IGNORECASE)
_PAGE = 4
"""Record entries per block. Only complete blocks are shared with later calls."""

Submit = Callable[[Revision], Awaitable[Sequence[Problem]]]

_LONGEST = 20_000  # characters of a list of problems
_LONGEST_PROBLEM = 200  # characters of the problem in a summary
_DESCRIPTION = (
    "Submits the changes to the plan, and ends this call. Leave lists without changes empty. "
    "A revision is applied completely or not at all. An inconsistent revision is returned with all "
    "its problems. Fix each of them and submit the full revision again."
)


class SubmitRevision:
    """Submits a revision, and lets the model repair it a few times."""

    name = "submit_revision"
    declaration: Block = strict_declaration(name, _DESCRIPTION, Revision)

    def __init__(self, submit: Submit, *, repairs: int) -> None:
        self._submit = submit
        self._repairs_left = repairs

    async def run(self, raw: Mapping[str, Any]) -> ToolResult | ReportDone[Failure | None]:
        parsed = parse(Revision, dict(raw), at="")
        problems = await self._submit(parsed) if isinstance(parsed, Revision) else parsed
        if not problems:
            return ReportDone(None)
        listed = capped("\n".join(f"- {problem}" for problem in problems), _LONGEST)
        if self._repairs_left <= 0:
            why = f"the revision is still inconsistent: {capped(str(problems[0]), _LONGEST_PROBLEM)}"
            return ReportDone(Failure(kind="protocol", summary=why, evidence=listed))
        self._repairs_left -= 1
        return ToolResult(f"The revision is inconsistent. None of it was applied.\n{listed}", is_error=True)


@dataclass(frozen=True, slots=True)
class ClaudePlanner:
    """Plans with a model."""

    settings: AgentSettings
    caller: Caller
    transcripts: Transcripts

    async def plan(
        self, brief: PlannerBrief, repository: PlannerRepository, submit: Submit, meter: Meter
    ) -> Failure | None:
        """Submit one revision through `submit`, repaired until it is consistent."""
        settings, state = self.settings, fenced("state", brief.state)
        settled, latest = _blocks(brief)
        model = brief.model or settings.planner.model
        accepts = await self.caller.limits(model)
        closing = settings.planner.repairs + 2  # a revision, its repairs, and one nudge
        exploring = (tool(repository, output_chars=settings.output_chars) for tool in PLANNER_TOOLS.values())
        spec: ConversationSpec[Failure | None] = ConversationSpec(
            model=model,
            max_tokens=settings.answer_tokens(accepts),
            system=render("planner", horizon=settings.planner.horizon),
            tools=(
                *exploring,
                FindSubtasks(brief.find, settings.output_chars),
                ReadReport(brief.report, settings.output_chars),
                SubmitRevision(submit, repairs=settings.planner.repairs),
            ),
            ending=SubmitRevision.name,
            effort=brief.effort or settings.planner.effort,
            recurs=True,
            guards=Guards(turns=settings.planner.explore_turns + closing, seconds=settings.planner_s, closing=closing),
            limits=settings.prompt_limits(model, accepts),
            reminder=state,
            shared=len(settled),
        )
        first = [*settled, *latest, state]
        with self.transcripts.open("planner", brief.call) as transcript:
            return await Conversation(spec, self.caller, meter, transcript).hold(first)


def epic_text(epic: str) -> str:
    """Return the epic with fleet's tags escaped, so that it can't end its block."""
    return _TAGS.sub("&lt;", epic)


def _blocks(brief: PlannerBrief) -> tuple[list[str], list[str]]:
    """Return the blocks of the first message: those that the next call starts with too, then those that may differ."""
    parts = {"workers": brief.workers, "notes": brief.notes, "area": brief.area}
    settled = [f"<epic>{epic_text(brief.epic)}</epic>"]
    settled += [fenced(name, dict(part)) for name, part in parts.items() if part]
    pages = [brief.record[start : start + _PAGE] for start in range(0, len(brief.record), _PAGE)]
    whole = [fenced("record", list(page)) for page in pages if len(page) == _PAGE]
    rest = [fenced("record", list(page)) for page in pages if len(page) < _PAGE]
    return [*settled, *whole], rest
