"""Everything that waits for a person, over all runs, with what it takes to answer. And what was answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.runs.needs import Need, needs
from dashboards.runs.run_follower import FollowedRun
from dashboards.web.pages.page import Reader, Shown, repository_name
from fleet.core.plans.plan import Subtask
from fleet.core.policy.approval import objections, waiting_for_approval
from fleet.core.state.state import RunState
from fleet.core.views.run.question_view import QuestionView, question_view

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
