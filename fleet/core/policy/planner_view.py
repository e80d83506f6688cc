"""The run as a planner sees it: the `<state>` block of the model protocol, whose keys are fixed.

The block changes with every call, so it is short. Plans and landed work are in the record (`planner_record.py`), and a
planner can request full reports and evidence. Texts are included for decisions and news. The block always contains open
subtasks, failures and questions to humans. Beyond `ALL` subtasks, closed ones are summarized, except those reported
since the last call. Texts become shorter as their number grows.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from fleet.core.base.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.facts.facts import Failure, FailureKind, Report, Strategy
from fleet.core.plans.plan import PLANNER, Subtask
from fleet.core.policy.budget import run_budgets
from fleet.core.state.state import Question, Reading, RunState
from fleet.core.state.status import Area, Status, area_spend, inside, planning_of, seen, seen_by, status_of
from fleet.core.state.subtasks import Set, SubtaskState

# ---- closed work -----------------------------------------------------------------------------------------------------
# Closed subtasks in a few lines, for a planner whose run has more of them than a prompt should list.
#
# They are counted by area: an area with a separate planner, or otherwise the directory that they changed.


GROUPS = 40  # areas and directories, the smallest counted together
RESULT = 240  # characters of one outcome
LATEST, TITLE = 4, 60  # subtasks named in it, and characters of each title
DEPTHS = (3, 2, 1)  # components of a folder's name: fewer where there would be too many folders
GLOB = frozenset("*?[")
ROOT, OTHERS = "(top of the repository)", "(others)"


class ClosedGroup(TypedDict):
    """Closed subtasks of one area, or of one folder."""

    area: str
    merged: int
    dropped: NotRequired[int]
    result: str


class ClosedWork(TypedDict):
    """The closed subtasks that are not listed."""

    count: int
    reported_since_last_call: NotRequired[int]
    """Number of subtasks reported since the last call."""
    summary: list[ClosedGroup]


def closed_work(state: RunState, ids: Sequence[SubtaskId], *, reported: int = 0) -> ClosedWork:
    """A summary of these closed subtasks."""
    areas = [id_ for id_ in ids if state.spec(id_).worker == PLANNER]
    others = [id_ for id_ in ids if state.spec(id_).worker != PLANNER]
    groups = [_area(state, id_) for id_ in areas] + [
        _folder(state, name, members) for name, members in _by_folder(state, others).items()
    ]
    groups.sort(key=lambda group: -group["merged"])
    work = ClosedWork(count=len(ids), summary=[*groups[:GROUPS], *_together(groups[GROUPS:])])
    if reported:
        work["reported_since_last_call"] = reported
    return work


def _area(state: RunState, area: SubtaskId) -> ClosedGroup:
    """All of an area's subtasks, those of areas in it included, and its planner's synthesis."""
    last = state.subtasks[area].last
    return _count(
        state,
        area,
        [area, *state.subtasks.first(inside(state, area))],
        last.report.summary if last and last.report else "",
    )


def _folder(state: RunState, name: str, ids: Sequence[SubtaskId]) -> ClosedGroup:
    landed = sorted((_landed_at(state, id_), id_) for id_ in ids if state.subtasks[id_].landed is not None)
    latest = (f"{id_} ({state.spec(id_).title[:TITLE]})" for _, id_ in reversed(landed[-LATEST:]))
    return _count(state, name, ids, f"latest: {', '.join(latest)}" if landed else "")


def _count(state: RunState, name: str, ids: Sequence[SubtaskId], result: str) -> ClosedGroup:
    merged = sum(state.subtasks[id_].landed is not None for id_ in ids)
    closed = sum(state.subtasks[id_].closed for id_ in ids)
    group = ClosedGroup(area=name, merged=merged, result=result[:RESULT])
    if closed > merged:
        group["dropped"] = closed - merged
    return group


def _together(groups: Sequence[ClosedGroup]) -> list[ClosedGroup]:
    if not groups:
        return []
    names = ", ".join(group["area"] for group in groups)
    merged = sum(group["merged"] for group in groups)
    return [ClosedGroup(area=OTHERS, merged=merged, result=f"{len(groups)} more: {names}"[:RESULT])]


def _landed_at(state: RunState, id_: SubtaskId) -> float:
    last = state.subtasks[id_].last
    return last.ended_at or 0.0 if last is not None else 0.0


def _by_folder(state: RunState, ids: Iterable[SubtaskId]) -> Mapping[str, list[SubtaskId]]:
    folders = {id_: _folder_of(state.spec(id_)) for id_ in ids}
    groups: dict[str, list[SubtaskId]] = {}
    for depth in DEPTHS:
        groups = {}
        for id_, parts in folders.items():
            groups.setdefault("/".join(parts[:depth]) or ROOT, []).append(id_)
        if len(groups) <= GROUPS:
            break
    return groups


def _folder_of(spec: Subtask) -> tuple[str, ...]:
    """The folder of the first path that a subtask may change."""
    if not spec.touches:
        return ()
    *folders, _ = spec.touches[0].split("/")
    named = next((at for at, part in enumerate(folders) if GLOB & set(part)), len(folders))
    return tuple(folders[:named])


# ---- planner view ----------------------------------------------------------------------------------------------------


ALL = 200  # subtasks up to which all are listed
SIZE = 38_000  # bytes, if shorter texts can achieve it. With the summary of closed work, fewer than 20,000 tokens
GOAL = 2_000  # characters of the goal, all of which is in the epic
ANSWERED = 20  # questions whose answers were read before
UNDECIDED: frozenset[Status] = frozenset({"failed", "blocked", "escalated"})
KNOWN = 80  # characters of a failure that was decided about
SHORT = 300  # characters of evidence. A summary is more useful than a shorter end
AREA_EVIDENCE = 3_000  # characters of evidence of an area's failure, which its planner sees once
ROUNDED = {"dollars": 4, "tokens": 0, "minutes": 1, "attempts": 0}


@dataclass(frozen=True, slots=True)
class Lengths:
    """The characters that texts may have, and how many of them there are."""

    title: int = 200
    question: int = 4_000
    result: int = 600
    """Length of a worker's result, until it has landed and was read. After that, it is in the record."""
    advice: int = 300
    pieces: int = 6
    evidence: int = 1_000
    """Of the last failure."""
    earlier: int = 300
    """Of those before it."""
    history: int = 4
    """Failures of one subtask."""
    news: int = 100
    """Closed subtasks that are listed because they were reported, where closed ones are not listed otherwise."""

    @property
    def brief(self) -> "Lengths":
        """For failures that were decided about."""
        return replace(self, evidence=min(KNOWN, self.evidence), earlier=min(KNOWN, self.earlier))


LENGTHS = (
    Lengths(),
    Lengths(question=1_000, result=300, advice=200, pieces=3, evidence=500, earlier=150, history=3),
    Lengths(title=120, question=400, result=160, advice=120, pieces=2, evidence=250, earlier=80, history=2, news=60),
    Lengths(title=80, question=200, result=80, advice=80, pieces=1, evidence=110, earlier=0, history=1, news=40),
    Lengths(title=60, question=100, result=0, advice=0, pieces=0, evidence=60, earlier=0, history=1, news=10),
)
"""From the preferred lengths to the shortest, for runs with very many failed or reported subtasks."""

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
    """Return the `<state>` block of the run or of an area."""

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
    closed: NotRequired[ClosedWork]
    """The closed subtasks that are not in `subtasks`, where there are very many."""


class AreaState(TypedDict):
    """An area, for its planner: the subtask, and why earlier attempts at it failed."""

    subtask: dict[str, object]
    attempt: int
    guidance: str
    failures: list[FailureEntry]
    results: dict[SubtaskId, str]


def planner_state(state: RunState, now: float, area: Area = None) -> PlannerState:
    view = _state(state, now, area, Lengths())
    for lengths in LENGTHS[1:]:
        if _size(view) <= SIZE:
            break
        view = _state(state, now, area, lengths)
    return _with_closed(state, view, area)


def _size(view: PlannerState) -> int:
    text = json.dumps(view, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace"))


def _state(state: RunState, now: float, area: Area, lengths: Lengths) -> PlannerState:
    reading, subtasks, visible = planning_of(state, area).reading, state.subtasks, seen(state, area)
    listed = visible if visible.bit_count() <= ALL else _list(state, reading, visible, lengths.news)
    listed_ids = subtasks.in_plan_order(listed)
    news = frozenset(reading.reports)
    view = PlannerState(
        run=state.run,
        goal=(state.spec(area).goal if area is not None else state.plan.goal or state.goal)[:GOAL],
        plan_version=state.plan.version,
        tip=state.tip,
        budget=budget_left(state, now, area),
        subtasks=[_subtask(state, state.spec(id_), now, lengths, is_news=id_ in news) for id_ in listed_ids],
        reports_since_last_call=_reports(reading, frozenset(listed_ids) if listed != visible else None),
        questions=_questions(state, reading, visible, area, lengths),
    )
    if area is not None:
        view["area"] = area
    if state.policy.flat:
        view["flat"] = True
    return view


def _with_closed(state: RunState, view: PlannerState, area: Area) -> PlannerState:
    """Add a summary of the subtasks that are not listed."""
    subtasks = state.subtasks
    folded = seen(state, area) & ~subtasks.set_of([entry["id"] for entry in view["subtasks"]])
    if not folded:
        return view
    reported = subtasks.set_of([id_ for id_ in planning_of(state, area).reading.reports if id_ in subtasks])
    work = closed_work(state, subtasks.in_plan_order(folded), reported=(folded & reported).bit_count())
    return {**view, "closed": work}


def _list(state: RunState, reading: Reading, visible: Set, room: int) -> Set:
    """Return the open subtasks and the newest of those reported since the last call."""
    subtasks = state.subtasks
    listed = visible & subtasks.open
    for id_ in reversed(reading.reports):
        bit = subtasks.set_of([id_]) & visible & ~listed
        if bit and room:
            listed, room = listed | bit, room - 1
    return listed


def _reports(reading: Reading, listed: frozenset[SubtaskId] | None) -> list[SubtaskId]:
    return [id_ for id_ in dict.fromkeys(reading.reports) if listed is None or id_ in listed]


def _questions(state: RunState, reading: Reading, visible: Set, area: Area, lengths: Lengths) -> list[QuestionEntry]:
    """Return open questions, newly answered ones, and the latest of the others."""

    def concerns(question: Question) -> bool:
        if question.about is None:
            return question.area == area
        return bool(state.subtasks.set_of([question.about]) & visible)

    asked = [question for question in state.questions.values() if concerns(question)]
    new = frozenset((*state.asked, *reading.answers))
    old = [question.id for question in asked if question.id not in new]
    shown = new.union(old[-ANSWERED:])
    return [
        QuestionEntry(id=q.id, about=q.about, question=q.text[: lengths.question], answer=q.answer)
        for q in asked
        if q.id in shown
    ]


def area_state(state: RunState, area: SubtaskId) -> AreaState:
    spec, subtask = state.spec(area), state.subtasks[area]
    return AreaState(
        subtask=spec.model_dump(mode="json", exclude_defaults=True),
        attempt=len(subtask.attempts),
        guidance=subtask.attempts[-1].guidance,
        failures=_failures(subtask, Lengths(evidence=AREA_EVIDENCE)),
        results={need: _result(state.subtasks[need], Lengths().result) for need in spec.depends_on},
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
    return {**remaining, "low": f"{state.low}: finish nearly complete work"} if state.low else remaining


def _subtask(state: RunState, spec: Subtask, now: float, lengths: Lengths, *, is_news: bool) -> SubtaskEntry:
    """Return a subtask with texts if it was just reported or waits for a decision. Other texts are in the record."""
    subtask = state.subtasks[spec.id]
    status = status_of(state, spec.id, now)
    landed, quoted = subtask.landed is not None, is_news or status in UNDECIDED
    report = subtask.last.report if subtask.last is not None and quoted else None
    advice = [*report.recommendations, *report.needs, *report.discovered] if report is not None else []
    evidence = lengths if quoted and not landed else lengths.brief
    return SubtaskEntry(
        id=spec.id,
        title=spec.title[: lengths.title],
        status="dropped" if status == "split" else status,
        attempts=len(subtask.attempts),
        depends_on=list(spec.depends_on),
        worker=spec.worker,
        result=_result(subtask, lengths.result if quoted else 0),
        recommendations=[each[: lengths.advice] for each in advice[: lengths.pieces]],
        failures=_failures(subtask, evidence) if quoted or not landed else [],
    )


def _result(subtask: SubtaskState, length: int) -> str:
    if subtask.parts:
        return f"split into {', '.join(subtask.parts)}"
    report = subtask.last.report if subtask.last is not None else None
    return report.summary[:length] if report else ""


def _failures(subtask: SubtaskState, lengths: Lengths) -> list[FailureEntry]:
    """Return the latest failures. The last one includes more evidence."""
    failed = [attempt for attempt in subtask.attempts if attempt.failure is not None][-lengths.history :]
    return [
        {
            "attempt": attempt.number,
            "class": attempt.failure.kind,
            "strategy": attempt.strategy,
            "evidence": _evidence(attempt.failure, lengths.evidence if attempt is failed[-1] else lengths.earlier),
        }
        for attempt in failed
        if attempt.failure is not None
    ]


def _evidence(failure: Failure, length: int) -> str:
    if length < SHORT:
        return failure.summary[:length]
    return f"{failure.summary}\n{failure.evidence}"[-length:].strip()


# ---- planner record --------------------------------------------------------------------------------------------------
# The unchanging part of a planner's input: plans and landed work, in order.
#
# Entries are only appended and never rewritten: a change adds an entry. The prompt of the next call therefore starts
# like the previous one, and the model service can read it from the cache. Changing parts are in the `<state>` block.
#
# In a long run, the oldest entries are removed many at a time, so that the following prompts share their start again.
# Entries about open subtasks stay.


RECORD_GOAL = 1_000  # characters of a goal
RECORD_RESULT = 600  # characters of a worker's report
BRIEF = 200  # of it in the list that a search finds
RECOMMENDATION, RECOMMENDATIONS = 300, 5  # characters of each, and how many
PAGE = 120_000  # characters: beyond two pages, the oldest page is left out
OLD = 60  # entries about subtasks that were planned before those, and were open when these were left out
FOUND = 50  # subtasks that a search finds
EVIDENCE = 3_000  # characters of the evidence of one failure, if a planner requests it


class RecordEntry(TypedDict):
    """One thing that happened: a subtask was planned (or planned again), or landed."""

    planned: NotRequired[SubtaskId]
    landed: NotRequired[SubtaskId]
    title: NotRequired[str]
    goal: NotRequired[str]
    touches: NotRequired[list[str]]
    acceptance: NotRequired[list[str]]
    result: NotRequired[str]
    recommendations: NotRequired[list[str]]
    left_out: NotRequired[int]
    """Number of earlier entries that are not in the record."""


FailureReport = TypedDict("FailureReport", {"attempt": int, "class": FailureKind, "summary": str, "evidence": str})


class SubtaskReport(TypedDict):
    """All that is known of one subtask: its description, its last report, and each failure with its evidence."""

    id: SubtaskId
    planned: dict[str, object]
    report: dict[str, object] | None
    failures: list[FailureReport]


class Found(TypedDict):
    """A subtask that a search found."""

    id: SubtaskId
    title: str
    status: Status
    touches: list[str]
    result: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry before its texts are put together."""

    at: float
    id: SubtaskId
    spec: Subtask | None
    """None: it landed."""


def planner_record(state: RunState, area: Area = None) -> list[RecordEntry]:
    """The record of the run, or of an area."""
    visible = seen_by(state, area)
    entries = sorted([*_planned(state, visible), *_landed(state, visible)], key=lambda entry: entry.at)
    left_out = _first_shown(_length(state, entry) for entry in entries)
    texts = [_text(state, entry) for entry in entries[left_out:]]
    old = [_text(state, entry) for entry in _still_open(state, entries[:left_out])]
    return [RecordEntry(left_out=left_out), *old, *texts] if left_out else texts


def _first_shown(lengths: Iterable[int]) -> int:
    """Return the start of the page before the last one."""
    starts, length = [0, 0], 0
    for at, more in enumerate(lengths):
        if length > PAGE:
            starts, length = [starts[1], at], 0
        length += more
    return starts[0]


def _length(state: RunState, entry: _Entry) -> int:
    """About how long its text is, without making it: in a long run, hardly any of them are shown."""
    if (spec := entry.spec) is not None:
        checks = sum(len(criterion.shown) for criterion in spec.acceptance)
        return len(spec.id) + len(spec.title) + min(len(spec.goal), RECORD_GOAL) + sum(map(len, spec.touches)) + checks
    report = _report_of(state.subtasks[entry.id])
    if report is None:
        return len(entry.id)
    advice = sum(min(len(each), RECOMMENDATION) for each in _advice(report))
    return len(entry.id) + min(len(report.summary), RECORD_RESULT) + advice


def find_subtasks(state: RunState, words: str, area: Area = None) -> list[Found]:
    """The latest subtasks a planner sees whose id, title, paths or result hold all of these words."""
    wanted = words.lower().split()
    found: list[Found] = []
    for id_ in reversed(state.subtasks.in_plan_order(seen(state, area))):
        spec, subtask = state.spec(id_), state.subtasks[id_]
        report = _report_of(subtask)
        result = report.summary if report is not None else ""
        text = "\n".join((id_, spec.title, *spec.touches, result)).lower()
        if len(found) < FOUND and all(word in text for word in wanted):
            status = status_of(state, id_, state.last_at)
            found.append(
                Found(id=id_, title=spec.title, status=status, touches=list(spec.touches), result=result[:BRIEF])
            )
    return found


def subtask_report(state: RunState, id_: SubtaskId, area: Area = None) -> SubtaskReport | None:
    """Return the report of a subtask for a planner, or None if the planner can't see the subtask."""
    if id_ not in seen_by(state, area):
        return None
    subtask = state.subtasks[id_]
    report = _report_of(subtask)
    planned = state.spec(id_).model_dump(mode="json", exclude_defaults=True)
    failures: list[FailureReport] = [
        {
            "attempt": attempt.number,
            "class": attempt.failure.kind,
            "summary": attempt.failure.summary,
            "evidence": attempt.failure.evidence[-EVIDENCE:],
        }
        for attempt in subtask.attempts
        if attempt.failure is not None
    ]
    reported = report.model_dump(mode="json") if report is not None else None
    return SubtaskReport(id=id_, planned=planned, report=reported, failures=failures)


def _planned(state: RunState, visible: frozenset[SubtaskId]) -> Iterator[_Entry]:
    """Each subtask when it was planned, and again when its plan changed."""
    for version in state.versions:
        for spec in version.changed:
            if spec.id in visible:
                yield _Entry(version.at, spec.id, spec)


def _landed(state: RunState, visible: frozenset[SubtaskId]) -> Iterator[_Entry]:
    for id_, subtask in state.subtasks.items():
        last = subtask.last
        if id_ in visible and subtask.landed is not None and last is not None and last.ended_at is not None:
            yield _Entry(last.ended_at, id_, None)


def _still_open(state: RunState, left_out: Sequence[_Entry]) -> Iterator[_Entry]:
    """The description of each subtask that was open when its entry was left out, or the latest of them."""
    kept: dict[SubtaskId, _Entry] = {}
    for entry in left_out:
        kept.pop(entry.id, None)
        if entry.spec is not None:
            kept[entry.id] = entry
    given_up = (id_ for id_ in kept if state.subtasks[id_].closed and state.subtasks[id_].landed is None)
    for id_ in list(given_up):
        del kept[id_]
    yield from list(kept.values())[-OLD:]


def _text(state: RunState, entry: _Entry) -> RecordEntry:
    return _spec(entry.spec) if entry.spec is not None else _record_result(entry.id, state.subtasks[entry.id])


def _spec(spec: Subtask) -> RecordEntry:
    return RecordEntry(
        planned=spec.id,
        title=spec.title,
        goal=spec.goal[:RECORD_GOAL],
        touches=list(spec.touches),
        acceptance=[criterion.shown for criterion in spec.acceptance],
    )


def _report_of(subtask: SubtaskState) -> Report | None:
    return subtask.last.report if subtask.last is not None else None


def _record_result(id_: SubtaskId, subtask: SubtaskState) -> RecordEntry:
    report = _report_of(subtask)
    entry = RecordEntry(landed=id_, result=report.summary[:RECORD_RESULT] if report else "")
    if report is not None and (advice := _advice(report)):
        entry["recommendations"] = [each[:RECOMMENDATION] for each in advice]
    return entry


def _advice(report: Report) -> tuple[str, ...]:
    return (*report.recommendations, *report.needs, *report.discovered)[:RECOMMENDATIONS]
