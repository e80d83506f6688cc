"""All runs in four lanes, with what waits for a person. Which lane a run is in follows from its state."""

from dataclasses import dataclass
from typing import Literal

from dashboards.runs.needs import Need, needs
from dashboards.runs.run_follower import FollowedRun
from dashboards.web.pages.page import Reader, Shown, repository_name
from fleet.core.state.status import Progress, progress
from fleet.core.views.run.run_view import run_word

Lane = Literal["needs", "working", "landing", "done"]
LANES: dict[Lane, str] = {"needs": "Needs you", "working": "Working", "landing": "Landing", "done": "Done"}


@dataclass(frozen=True, slots=True)
class Card:
    """A run on the board."""

    run: str
    repository: str
    goal: str
    word: str
    lane: Lane
    needs: list[Need]
    landed: Progress
    agents: int
    dollars: float | None
    seconds: float
    simulated: bool


async def board_page(reader: Reader) -> Shown:
    cards = [card for run in reader.runs.latest() if (card := _card(run)) is not None]
    loading = sum(not run.loaded for run in reader.runs.latest())
    parts = {
        f"lane-{lane}": reader.part(
            "lane", title=title, lane=lane, cards=[card for card in cards if card.lane == lane], loading=loading
        )
        for lane, title in LANES.items()
    }
    return Shown("Runs", parts)


def _card(run: FollowedRun) -> Card | None:
    state = run.state
    if state is None or not run.loaded:
        return None
    waiting = needs(run)
    return Card(
        run=run.feed.run,
        repository=repository_name(run),
        goal=state.plan.goal or state.goal,
        word=run_word(state, run.now, alive=run.alive),
        lane=_lane(run, waiting),
        needs=waiting,
        landed=progress(state),
        agents=run.working,
        dollars=state.spent.dollars,
        seconds=state.seconds(run.now),
        simulated=state.simulated,
    )


def _lane(run: FollowedRun, waiting: list[Need]) -> Lane:
    state = run.state
    if waiting:
        return "needs"
    if state is None or state.ended:
        return "done"
    is_landing = bool(state.landing.queue or state.landing.open_batches)
    return "landing" if is_landing and not run.working and state.planning.open is None else "working"
