"""The planner: one conversation a call, from the epic and the state to one revision. It reads, and changes nothing."""

import re
from dataclasses import dataclass

from agents.conversation import Conversation, Guards, Setting
from agents.models.calls import Caller
from agents.prompting import render
from agents.settings import MindSettings
from agents.text import fenced
from agents.tools.registry import PLANNER_TOOLS
from agents.tools.submit_revision import Submit, SubmitRevision
from agents.transcripts import Transcripts
from fleet.core.facts import Failure
from fleet.ports import Meter, PlannerBrief, Repository

_TAGS = re.compile(r"<(?=\s*/?\s*(?:epic|state|workers|notes|area)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClaudePlanner:
    """Plans with a model."""

    settings: MindSettings
    caller: Caller
    transcripts: Transcripts

    async def plan(self, brief: PlannerBrief, repository: Repository, submit: Submit, meter: Meter) -> Failure | None:
        """Hand in one revision through `submit`, mended until it holds together."""
        settings = self.settings
        state = fenced("state", brief.state)
        closing = settings.repairs + 2  # a revision, its repairs, and one nudge
        looking = (tool(repository, output_chars=settings.output_chars) for tool in PLANNER_TOOLS.values())
        setting: Setting[Failure | None] = Setting(
            model=brief.model or settings.planner_model,
            max_tokens=settings.max_tokens,
            system=render("planner", horizon=settings.horizon),
            tools=(*looking, SubmitRevision(submit, repairs=settings.repairs)),
            ending=SubmitRevision.name,
            guards=Guards(turns=settings.explore_turns + closing, seconds=settings.planner_s, closing=closing),
            room=settings.room(settings.planner_model),
            reminder=state,
        )
        first = [f"<epic>{epic_text(brief.epic)}</epic>", *_blocks(brief), state]
        with self.transcripts.open("planner", brief.call) as transcript:
            return await Conversation(setting, self.caller, meter, transcript).hold(first)


def epic_text(epic: str) -> str:
    """The epic as it stands, but for tags of ours, which would end its block."""
    return _TAGS.sub("&lt;", epic)


def _blocks(brief: PlannerBrief) -> list[str]:
    blocks = {"area": brief.area, "workers": brief.workers, "notes": brief.notes}
    return [fenced(name, dict(block)) for name, block in blocks.items() if block]
