"""The planner: one conversation per call, from the epic and the state to one revision. It changes nothing itself."""

import re
from dataclasses import dataclass

from agents.conversation.guards import Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.conversation.settings import AgentSettings
from agents.models.calls import Caller
from agents.models.text import fenced, render
from agents.models.transcripts import Transcripts
from agents.tools.registry import PLANNER_TOOLS
from agents.tools.report import FindSubtasks, ReadReport
from agents.tools.submit_review import Submit, SubmitRevision
from fleet.core.state.facts import Failure
from fleet.ports.agents import Meter, PlannerBrief, Repository

_TAGS = re.compile(r"<(?=\s*/?\s*(?:epic|state|workers|notes|area|record)\b)", re.IGNORECASE)
_PAGE = 4
"""Entries of the record in one block. A block is complete before it is shared with later calls."""


@dataclass(frozen=True, slots=True)
class ClaudePlanner:
    """Plans with a model."""

    settings: AgentSettings
    caller: Caller
    transcripts: Transcripts

    async def plan(self, brief: PlannerBrief, repository: Repository, submit: Submit, meter: Meter) -> Failure | None:
        """Hand in one revision through `submit`, repaired until it holds together."""
        settings, state = self.settings, fenced("state", brief.state)
        settled, latest = _blocks(brief)
        model = brief.model or settings.planner_model
        accepts = await self.caller.limits(model)
        closing = settings.repairs + 2  # a revision, its repairs, and one nudge
        exploring = (tool(repository, output_chars=settings.output_chars) for tool in PLANNER_TOOLS.values())
        spec: ConversationSpec[Failure | None] = ConversationSpec(
            model=model,
            max_tokens=settings.answer_tokens(accepts),
            system=render("planner", horizon=settings.horizon),
            tools=(
                *exploring,
                FindSubtasks(brief.find, settings.output_chars),
                ReadReport(brief.report, settings.output_chars),
                SubmitRevision(submit, repairs=settings.repairs),
            ),
            ending=SubmitRevision.name,
            effort=brief.effort or settings.planner_effort,
            recurs=True,
            guards=Guards(turns=settings.explore_turns + closing, seconds=settings.planner_s, closing=closing),
            limits=settings.prompt_limits(model, accepts),
            reminder=state,
            shared=len(settled),
        )
        first = [*settled, *latest, state]
        with self.transcripts.open("planner", brief.call) as transcript:
            return await Conversation(spec, self.caller, meter, transcript).hold(first)


def epic_text(epic: str) -> str:
    """The epic, except that tags of ours, which would end its block, are escaped."""
    return _TAGS.sub("&lt;", epic)


def _blocks(brief: PlannerBrief) -> tuple[list[str], list[str]]:
    """What begins the first message: what the next call will begin with, too, and then what it may not."""
    parts = {"workers": brief.workers, "notes": brief.notes, "area": brief.area}
    settled = [f"<epic>{epic_text(brief.epic)}</epic>"]
    settled += [fenced(name, dict(part)) for name, part in parts.items() if part]
    pages = [brief.record[start : start + _PAGE] for start in range(0, len(brief.record), _PAGE)]
    whole = [fenced("record", list(page)) for page in pages if len(page) == _PAGE]
    rest = [fenced("record", list(page)) for page in pages if len(page) < _PAGE]
    return [*settled, *whole], rest
