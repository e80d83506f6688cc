"""What the program is given: the reviews of a run, and what the doctor finds about them."""

from collections.abc import AsyncIterator

from agents.factory import OpenModels
from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.engine.commands.adapters import Adapters
from fleet.engine.commands.reservations import RunBudget
from fleet.features.reviews.reviewer import ClaudeReviewer
from fleet.features.reviews.reviews import Reviews
from fleet.features.reviews.settings import Reviewer
from fleet.ports.journal import Recorder
from fleet.read.base_view import Finding


def open_reviews(fleet: Fleet, models: OpenModels, adapters: Adapters, engine: Recorder, budget: RunBudget) -> Reviews:
    """The reviews of a run. Of history that is replayed, only what its plan asks for is reviewed."""
    section, state = fleet.config.of(Reviewer), engine.state
    if state.rehearsal is not None and not state.for_real:
        section = section.model_copy(update={"look_for": ""})
    return Reviews(engine, ClaudeReviewer(section, models), adapters.commits, adapters.clock, budget, section)


async def findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Who reviews changes, if the configuration says anything about it."""
    reviewer, planner = fleet.config.of(Reviewer), fleet.config.planner.model
    if reviewer.look_for.strip() or reviewer.model:
        model = reviewer.model or f"{planner} (or {fleet.config.models.worker}, if that did the work)"
        which = "every change" if reviewer.look_for.strip() else "changes whose plan asks for it"
        how = f"{counted(reviewer.votes, 'vote')}{', as batches' if reviewer.batch else ''}"
        yield Finding("reviewer", ok=True, says=f"{safe(model, limit=200)} reviews {which}, {how}")
