"""Orders and events as JSON, parsed at the border. What a node reports is untrusted: bounded here, data ever after."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, TypeVar, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.plan import Criterion, Effort, Subtask
from fleet.core.state.facts import CheckRun, Failure, RanTests, Report, SetupRun
from fleet.core.state.subtask_state import Instruction
from fleet.nodes.frames import FrameError
from fleet.ports.agents import WorkerBrief
from fleet.ports.nodes import (
    AttemptDone,
    AttemptOrder,
    Began,
    ChecksDone,
    ChecksOrder,
    NotDone,
    NumberedEvent,
    Order,
    Worked,
)
from fleet.ports.operator import SILENT, GivenOperator

LONGEST_ORDER = 32 * 1024 * 1024
LONGEST_EVENT = 16 * 1024 * 1024
LONGEST_TRANSCRIPT = 8 * 1024 * 1024
LONGEST_INSTRUCTION = 1024 * 1024
LONGEST_LOG = 3 * 1024 * 1024
LONGEST_LOGS = 16 * 1024 * 1024
"""Of one report."""
MOST_CHECKS = 10_000
MOST_SETUPS = 64
SHOWN = 300


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Brief(_Payload):
    """A worker's brief. What the operator told before the order was given comes with it, the rest as it is told."""

    run: RunId
    subtask: Subtask
    attempt: int
    model: str | None
    effort: Effort | None = None
    guidance: str = ""
    failures: tuple[tuple[int, Failure], ...] = ()
    results: tuple[tuple[SubtaskId, Report], ...] = ()
    layout: str = ""
    notes: str = ""
    told: tuple[Instruction, ...] = ()


class _AttemptOrder(_Payload):
    base: Sha
    worker: str
    brief: _Brief


class _ChecksOrder(_Payload):
    commit: Sha
    criteria: tuple[Criterion, ...]
    lands: bool = False


class _Order(_Payload):
    """One of the two."""

    attempt: _AttemptOrder | None = None
    checks: _ChecksOrder | None = None


class _Attempt(_Payload):
    report: Report | None = None
    failure: Failure | None = None
    commit: str | None = None
    refused: Failure | None = None


class _Checks(_Payload):
    runs: Annotated[tuple[CheckRun, ...], Field(max_length=MOST_CHECKS)]
    setups: Annotated[tuple[SetupRun, ...], Field(max_length=MOST_SETUPS)] = ()
    tests: Annotated[tuple[RanTests | None, ...], Field(max_length=MOST_CHECKS)]
    """What their runners reported, which a check does not carry with it."""


class _NotDone(_Payload):
    failure: Failure
    setup: CheckRun | None = None


class _Event(_Payload):
    """One of these."""

    began: bool = False
    worked: bool = False
    attempt: _Attempt | None = None
    checks: _Checks | None = None
    not_done: _NotDone | None = None
    logs: dict[str, Annotated[int, Field(ge=0, le=LONGEST_LOG)]] = {}
    """Their sizes, in the order in which they follow each other."""


Payload = TypeVar("Payload")
_orders, _events, _instructions = TypeAdapter(_Order), TypeAdapter(_Event), TypeAdapter(Instruction)


def dump_order(order: Order) -> bytes:
    """An order as it travels."""
    if isinstance(order, ChecksOrder):
        checks = _ChecksOrder(commit=order.commit, criteria=order.criteria, lands=order.lands)
        return _orders.dump_json(_Order(checks=checks))
    values = {name: getattr(order.brief, name) for name in _Brief.model_fields if name != "told"}
    brief = _Brief(**values, told=tuple(order.brief.operator.told()))
    return _orders.dump_json(_Order(attempt=_AttemptOrder(base=order.base, worker=order.worker, brief=brief)))


def load_order(data: bytes) -> Order:
    """Raises `FrameError`."""
    order = _load(_orders, data, LONGEST_ORDER, "an order")
    if order.checks is not None and order.attempt is None:
        return ChecksOrder(order.checks.commit, order.checks.criteria, order.checks.lands)
    if order.attempt is None or order.checks is not None:
        raise FrameError("an order is either an attempt or checks")
    found = order.attempt.brief
    values = {name: getattr(found, name) for name in _Brief.model_fields if name != "told"}
    brief = WorkerBrief(**values, operator=GivenOperator(found.told) if found.told else SILENT)
    return AttemptOrder(order.attempt.base, order.attempt.worker, brief)


def dump_instruction(instruction: Instruction) -> bytes:
    return _instructions.dump_json(instruction)


def load_instruction(data: bytes) -> Instruction:
    """Raises `FrameError`."""
    return _load(_instructions, data, LONGEST_INSTRUCTION, "an instruction")


def dump_event(event: NumberedEvent) -> tuple[bytes, bytes, bytes]:
    """The event; of an attempt's report its pack and its transcript, of other reports their logs as the last part."""
    pack = last = b""
    match event:
        case Began():
            payload = _Event(began=True)
        case Worked():
            payload = _Event(worked=True)
        case AttemptDone(outcome=outcome):
            report, failure = (outcome, None) if isinstance(outcome, Report) else (None, outcome)
            attempt = _Attempt(report=report, failure=failure, commit=event.commit, refused=event.refused)
            payload, pack, last = _Event(attempt=attempt), event.pack, event.transcript
        case ChecksDone(runs=runs, logs=logs):
            checks = _Checks(runs=runs, tests=tuple(run.ran_tests for run in runs), setups=event.setups)
            payload, last = _Event(checks=checks, logs=_sizes(logs)), b"".join(logs.values())
        case NotDone(logs=logs):
            not_done = _NotDone(failure=event.failure, setup=event.setup)
            payload, last = _Event(not_done=not_done, logs=_sizes(logs)), b"".join(logs.values())
        case _:
            assert_never(event)
    return _events.dump_json(payload, exclude_defaults=True), pack, last


def _sizes(logs: Mapping[str, bytes]) -> dict[str, int]:
    return {name: len(text) for name, text in logs.items()}


def load_event(data: bytes, pack: bytes = b"", last: bytes = b"") -> NumberedEvent:
    """Raises `FrameError`."""
    event = _load(_events, data, LONGEST_EVENT, "an event")
    if event.attempt is not None:
        return _attempt(event.attempt, pack, last)
    if event.checks is not None:
        return _checks(event.checks, _logs(event.logs, last))
    if event.not_done is not None:
        return NotDone(event.not_done.failure, event.not_done.setup, _logs(event.logs, last))
    if event.began or event.worked:
        return Began() if event.began else Worked()
    raise FrameError("an event says nothing")


def _attempt(attempt: _Attempt, pack: bytes, transcript: bytes) -> AttemptDone:
    outcome = attempt.report or attempt.failure
    if len(transcript) > LONGEST_TRANSCRIPT:
        raise FrameError(f"a transcript of {len(transcript)} bytes; at most {LONGEST_TRANSCRIPT} are taken")
    if outcome is None or (attempt.commit is None) == (attempt.refused is None):
        raise FrameError("the report of an attempt says too little or contradicts itself")
    return AttemptDone(outcome, attempt.commit, attempt.refused, pack, transcript)


def _logs(sizes: Mapping[str, int], data: bytes) -> dict[str, bytes]:
    if len(data) > LONGEST_LOGS or sum(sizes.values()) != len(data):
        raise FrameError(f"logs of {len(data)} bytes; at most {LONGEST_LOGS} are taken, of the sizes that it names")
    ends = accumulate(sizes.values())
    return {name: data[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}


def _checks(checks: _Checks, logs: Mapping[str, bytes]) -> ChecksDone:
    if len(checks.runs) != len(checks.tests):
        raise FrameError("the report of checks has another number of tests than of checks")
    pairs = zip(checks.runs, checks.tests, strict=True)
    runs = tuple(run.model_copy(update={"ran_tests": tests}) for run, tests in pairs)
    return ChecksDone(runs, checks.setups, logs)


def _load(adapter: TypeAdapter[Payload], data: bytes, longest: int, what: str) -> Payload:
    if len(data) > longest:
        raise FrameError(f"{what} of {len(data)} bytes; at most {longest} are taken")
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise FrameError(f"{what}: {'.'.join(map(str, first['loc']))}: {first['msg']}"[:SHOWN]) from None
