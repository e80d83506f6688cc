"""A run as a planner sees it: the `<state>` block of the model protocol, whose keys are fixed.

It changes with every call, so it is short: what was planned and what landed is in the record (`planner_record.py`), and
a planner that needs a whole report or all evidence asks for it.
"""

from typing import Literal, NotRequired, TypedDict

from fleet.core.base.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.plans.plan import Subtask
from fleet.core.policy.budget import run_budgets
from fleet.core.state.areas import Area, area_spend, planning_of, seen_by
from fleet.core.state.facts import Failure, FailureKind, Strategy
from fleet.core.state.state import RunState
from fleet.core.state.status import Status, status_of
from fleet.core.state.subtask_state import SubtaskState

EVIDENCE, EARLIER = 1_000, 300  # characters of evidence a planner sees of the last failure, and of those before
AREA_EVIDENCE = 3_000  # characters of evidence of an area's failure, which its planner sees once
RESULT = 600  # characters of what a worker reported, until it has landed and was read: then it is in the record
ADVICE, PIECES = 300, 6  # characters of each recommendation, and how many
HISTORY = 4  # failures of one subtask it sees
ROUNDED = {"dollars": 4, "tokens": 0, "minutes": 1, "attempts": 0}

FailureEntry = TypedDict("FailureEntry", {"attempt": int, "class": FailureKind, "strategy": Strategy, "evidence": str})


class SubtaskEntry(TypedDict):
    """A subtask in the state."""

    id: SubtaskId
    title: str
    status: Status
    attempts: int
    depends_on: list[SubtaskId]
    worker: str
    result: str
    recommendations: list[str]
    failures: list[FailureEntry]


class QuestionEntry(TypedDict):
    """A question to a human, with its answer if there is one."""

    id: QuestionId
    about: SubtaskId | None
    question: str
    answer: str | None


class PlannerState(TypedDict):
    """The `<state>` block: of the whole run, or of an area."""

    run: RunId
    area: NotRequired[SubtaskId]
    goal: str
    flat: NotRequired[Literal[True]]
    plan_version: int
    tip: Sha
    budget: dict[str, float | str | None]
    subtasks: list[SubtaskEntry]
    reports_since_last_call: list[SubtaskId]
    questions: list[QuestionEntry]


class AreaState(TypedDict):
    """An area, for its planner: the subtask, and why earlier attempts at it failed."""

    subtask: dict[str, object]
    attempt: int
    guidance: str
    failures: list[FailureEntry]
    results: dict[SubtaskId, str]


def planner_state(state: RunState, now: float, area: Area = None) -> PlannerState:
    reading = planning_of(state, area).reading
    seen = seen_by(state, area)
    asked = (q for q in state.questions.values() if (q.about in seen if q.about is not None else q.area == area))
    view = PlannerState(
        run=state.run,
        goal=state.spec(area).goal if area is not None else state.plan.goal or state.goal[:2000],
        plan_version=state.plan.version,
        tip=state.tip,
        budget=budget_left(state, now, area),
        subtasks=[
            _subtask(state, spec, now, is_news=spec.id in reading.reports)
            for spec in state.plan.subtasks
            if spec.id in seen
        ],
        reports_since_last_call=list(dict.fromkeys(reading.reports)),
        questions=[QuestionEntry(id=q.id, about=q.about, question=q.text, answer=q.answer) for q in asked],
    )
    if area is not None:
        view["area"] = area
    if state.policy.flat:
        view["flat"] = True
    return view


def area_state(state: RunState, area: SubtaskId) -> AreaState:
    spec, subtask = state.spec(area), state.subtasks[area]
    return AreaState(
        subtask=spec.model_dump(mode="json", exclude_defaults=True),
        attempt=len(subtask.attempts),
        guidance=subtask.attempts[-1].guidance,
        failures=_failures(subtask, AREA_EVIDENCE),
        results={need: _result(state.subtasks[need], RESULT) for need in spec.depends_on},
    )


def budget_left(state: RunState, now: float, area: Area = None) -> dict[str, float | str | None]:
    """The remaining budgets, with dollars and minutes always (None: no limit), and a notice when one is low."""
    budgets = {budget.unit: budget.remaining for budget in run_budgets(state, now)}
    share = state.subtasks[area].attempts[-1].allowance if area is not None else None
    if area is not None and share is not None:
        rest = max(0.0, share - area_spend(state, area))
        budgets["dollars"] = min(rest, budgets.get("dollars", rest))
    remaining: dict[str, float | str | None] = {"dollars_left": None, "minutes_left": None}
    remaining |= {f"{unit}_left": round(amount, ROUNDED[unit]) for unit, amount in budgets.items()}
    return {**remaining, "low": f"{state.low}: finish what is nearly done"} if state.low else remaining


def _subtask(state: RunState, spec: Subtask, now: float, *, is_news: bool) -> SubtaskEntry:
    """What has landed and was read is in the record, and not said again here."""
    subtask = state.subtasks[spec.id]
    status = status_of(state, spec.id, now)
    report = subtask.last.report if subtask.last is not None else None
    known = subtask.landed is not None and not is_news
    advice = [*report.recommendations, *report.needs, *report.discovered] if report and not known else []
    return SubtaskEntry(
        id=spec.id,
        title=spec.title,
        status="dropped" if status == "split" else status,
        attempts=len(subtask.attempts),
        depends_on=list(spec.depends_on),
        worker=spec.worker,
        result=_result(subtask, 0 if known else RESULT),
        recommendations=[each[:ADVICE] for each in advice[:PIECES]],
        failures=[] if known else _failures(subtask, EVIDENCE),
    )


def _result(subtask: SubtaskState, length: int) -> str:
    if subtask.parts:
        return f"split into {', '.join(subtask.parts)}"
    report = subtask.last.report if subtask.last is not None else None
    return report.summary[:length] if report else ""


def _failures(subtask: SubtaskState, length: int) -> list[FailureEntry]:
    """The latest failures, the last one with more of its evidence than those before."""
    failed = [attempt for attempt in subtask.attempts if attempt.failure is not None][-HISTORY:]
    return [
        {
            "attempt": attempt.number,
            "class": attempt.failure.kind,
            "strategy": attempt.strategy,
            "evidence": _evidence(attempt.failure, length if attempt is failed[-1] else EARLIER),
        }
        for attempt in failed
        if attempt.failure is not None
    ]


def _evidence(failure: Failure, length: int) -> str:
    return f"{failure.summary}\n{failure.evidence}"[-length:].strip()
