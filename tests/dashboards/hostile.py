"""A run in which every text is hostile: as if its models, its repository and its operator all meant harm."""

import json
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fleet.core.base.usage import Cost
from fleet.core.facts.facts import (
    FACT,
    AskedVote,
    AttemptUnchanged,
    BaseChecked,
    BudgetRanLow,
    CallLost,
    CallRefused,
    CallsHeld,
    CheckRun,
    EvidenceRead,
    Expectation,
    Fact,
    FindingSettled,
    FindingsSettled,
    Forecast,
    GateTrial,
    GateTried,
    InstructionGiven,
    InstructionRead,
    NodeAddRequested,
    NodeConnected,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    PlanForecast,
    PlanGraded,
    PlanRejected,
    RehearsalNoted,
    Report,
    ResultScored,
    ReviewBatched,
    ReviewFinding,
    ReviewUnbatched,
    ReviewVoted,
    RollbackStarted,
    RungTally,
    ServiceChanged,
    SetupRan,
    SetupRun,
    Spread,
    SubtaskEstimate,
    Vote,
    WorkLost,
)
from fleet.core.history.evolve import evolve
from fleet.core.state.state import RunState

EVERY_KIND = Path(__file__).parents[1] / "fleet" / "core" / "journals" / "v1.jsonl"
CLIPBOARD, RED, CLEAR = "\x1b]52;c;aGk=\x07", "\x1b[31m", "\x9b2J"
HOSTILE = f"{CLIPBOARD}{RED}{CLEAR}\x00\x08\r\n\t\x0b\x85\u2028\u202e\u2066\u200b\ufeff\U000e0041[bold]x[/nope]"


def problems(lines: Iterable[str]) -> list[str]:
    """What a terminal could act on, or what would break a line."""
    return [
        f"{unicodedata.category(character)} U+{ord(character):04X} in {line!r}"
        for line in lines
        for character in line
        if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    ]


LATER: tuple[Fact, ...] = (
    BaseChecked(
        at=0,
        base="b" * 40,
        checks=(CheckRun(criterion="the gate", command="make test", passed=False, exit_code=2, output="1 failed"),),
    ),
    EvidenceRead(
        at=0,
        runs=3,
        tallies=(RungTally(worker="coder", model="m", effort="low", size="small", landed=2, priced=2, dollars=0.1),),
        estimates=(
            SubtaskEstimate(
                worker="coder",
                size="medium",
                model="m",
                landed=5,
                dollars=Spread(median=0.2, low=0.1, high=0.3),
                seconds=Spread(median=60, low=50, high=70),
            ),
        ),
    ),
    SetupRan(
        at=0,
        setup=SetupRun(
            commit="b" * 40,
            check=CheckRun(criterion="the set-up", command="npm ci", passed=False, exit_code=1, causes=("EAI_AGAIN",)),
            network=True,
        ),
    ),
    CallsHeld(at=0, cost=Cost(calls=2, tokens=2000, dollars=0.2)),
    CallLost(at=0, role="planner", model="m", cost=Cost(calls=1, tokens=1000, dollars=0.1)),
    BudgetRanLow(at=0, why="80% of the budget of $5 is used"),
    CallRefused(at=0, why="the run's budget of $5 does not cover another call"),
    PlanGraded(at=0, version=1, warnings=("app.py is contended by 8 subtasks",)),
    ServiceChanged(at=0, scope="opus", condition="limited", why="HTTP 429 rate_limit_error: slow down", status=429),
    PlanRejected(at=0, version=1, by="ada", reason="too wide"),
    PlanForecast(
        at=0,
        version=1,
        forecast=Forecast(
            dollars=Expectation(median=1.5, p90=2.25),
            planner=0.2,
            minutes=Expectation(median=10, p90=20),
            subtasks=2,
            workers=4,
        ),
    ),
)
"""Kinds that the journal of the first version does not hold."""
FINDING = ReviewFinding(file="auth.py", line=7, problem="the password is logged", text="log(password)")
ASKED = AskedVote(id="fleet-1", criterion="no secrets", focus="secrets", vote=1, model="m")
VOTE = Vote(criterion="no secrets", focus="secrets", vote=1, model="m", findings=(FINDING,), discarded=1)
LATEST: tuple[Fact, ...] = (
    AttemptUnchanged(at=0, subtask="schema", number=1, report=Report(status="done", summary="kept in auth.db")),
    WorkLost(at=0, tip="b" * 40, commits=("1" * 40,), reland=("schema",), unpublished=True),
    RollbackStarted(at=0, why="deploy failed: 503"),
    GateTried(at=0, command="make check", trials=(GateTrial(passed=True), GateTrial(passed=False))),
    ResultScored(at=0, subtask="schema", commit="5" * 40, passed=False, lost=("tests/test_auth.py::test_it",)),
    InstructionGiven(at=0, subtask="schema", text="use UTC", by="ada", interrupt=True),
    InstructionRead(at=0, subtask="schema", number=1, count=1),
    RehearsalNoted(at=0, what="by_hand", subtask="schema", text="adds a submodule: vendor/x"),
    NodeAddRequested(at=0, node="builder", by="ada"),
    NodeConnected(
        at=0,
        node="builder",
        version="1",
        host="builder.example",
        processors=8,
        memory_bytes=1,
        workers=8,
        checks=1,
        labels=("gpu",),
    ),
    NodeDrained(at=0, node="builder", by="ada"),
    NodeUndrained(at=0, node="builder", by="ada"),
    NodeLost(at=0, node="builder", why="no route to host"),
    ReviewBatched(at=0, subtask="schema", number=1, asked=(ASKED,), cost=Cost(calls=1), batch="msgbatch_01"),
    ReviewUnbatched(at=0, subtask="schema", number=1, why="the service takes no batches"),
    ReviewVoted(at=0, subtask="schema", number=1, votes=(VOTE,)),
    FindingsSettled(
        at=0,
        subtask="schema",
        number=1,
        settled=(FindingSettled(subtask="schema", attempt=1, finding=FINDING, result="fixed"),),
    ),
)
"""More of them, that are about subtasks. They come too late to change what the run is."""


def every_fact() -> list[Fact]:
    """One of each kind and more, harmless, in an order that makes a run."""
    first, *others = map(FACT.validate_json, EVERY_KIND.read_text(encoding="utf-8").splitlines())
    earlier = (later.model_copy(update={"at": first.at}) for later in LATER)
    return [first, *earlier, *others, *(latest.model_copy(update={"at": others[-1].at}) for latest in LATEST)]


def hostile_story() -> Iterator[tuple[RunState, Fact]]:
    """The same run with each text made hostile, each fact with the state after it."""
    state: RunState | None = None
    for fact in every_fact():
        bad = poisoned(fact)
        state = evolve(state, bad)
        yield state, bad


def hostile_run() -> RunState:
    *_, (state, _) = hostile_story()
    return state


def poisoned(fact: Fact, poison: str = HOSTILE, *, names: Collection[str] = ()) -> Fact:
    """The fact with poison at the end of each text but these names, and but where only known values are valid or a
    verdict would change."""
    data = json.loads(fact.model_dump_json())
    for path, text in list(_texts(data)):
        if (
            text in names
            or path[-1] in {"kind", "excused"}
            or (fact.kind == "question_answered" and path == ("question",))
        ):
            continue
        changed = _with_poison(data, path, poison)
        try:
            FACT.validate_python(changed)
        except ValidationError:
            continue
        data = changed
    return FACT.validate_python(data)


def _texts(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(data, str):
        yield path, data
    elif isinstance(data, dict):
        for name, value in data.items():
            yield from _texts(value, (*path, name))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _texts(value, (*path, index))


def _with_poison(data: Any, path: tuple[str | int, ...], poison: str) -> Any:
    copy = json.loads(json.dumps(data))
    here = copy
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] += poison
    return copy
