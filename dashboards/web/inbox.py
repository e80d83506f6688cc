"""Everything that waits for a person, over all runs, with what it takes to answer. And what was answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dashboards.runs.needs import Need, needs
from dashboards.runs.run_follower import FollowedRun
from dashboards.web.rendering import Reader, Shown, repository_name
from fleet.core.plans.plan import Subtask
from fleet.core.policy.requests import objections, waiting_for_approval
from fleet.core.state.state import RunState
from fleet.core.state.status import Progress, progress
from fleet.core.views.question_view import QuestionView, question_view
from fleet.core.views.run_view import run_word

ANSWERED = 20
MOST_APPROVALS = 100


@dataclass(frozen=True, slots=True)
class Approval:
    """A subtask that waits for approval."""

    spec: Subtask
    why: Sequence[str]


@dataclass(frozen=True, slots=True)
class Item:
    """Something that waits, with what a person has to know to decide it."""

    run: str
    repository: str
    need: Need
    question: QuestionView | None
    asked_s: float
    """How long ago it was asked."""
    version: int
    approvals: Sequence[Approval]
    more_approvals: int


def items_of(run: FollowedRun) -> list[Item]:
    state = run.state
    return [] if state is None else [_item(run, state, need) for need in needs(run)]


async def inbox_page(reader: Reader) -> Shown:
    runs = reader.runs.latest()
    items = [item for run in runs for item in items_of(run)]
    answered = [
        (run.feed.run, question)
        for run in runs
        if run.state is not None
        for question in run.state.questions.values()
        if question.answer is not None
    ]
    parts = {
        "inbox": reader.part("needs", items=items, with_run=True, empty="Nothing waits for you."),
        "answered": reader.part("answered", answered=answered[-ANSWERED:]),
    }
    return Shown("Inbox", parts)


def _item(run: FollowedRun, state: RunState, need: Need) -> Item:
    question = state.questions.get(need.key.removeprefix("q:")) if need.key.startswith("q:") else None
    waiting = waiting_for_approval(state) if need.key == "approve" else ()
    shown = [Approval(state.spec(id_), objections(state, id_)) for id_ in waiting[:MOST_APPROVALS]]
    return Item(
        run=run.feed.run,
        repository=repository_name(run),
        need=need,
        question=question_view(state, question, run.now, alive=run.alive) if question is not None else None,
        asked_s=run.now - question.asked_at if question is not None else 0.0,
        version=state.plan.version,
        approvals=shown,
        more_approvals=len(waiting) - len(shown),
    )


# ---- board -----------------------------------------------------------------------------------------------------------
# All runs in four lanes, with what waits for a person. Which lane a run is in follows from its state.


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
