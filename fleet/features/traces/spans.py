"""The spans of a run, derived from facts alone: exporting a run twice, or in parts, produces the same span ids.

A run is an `invoke_workflow` span. It contains attempts and planner calls (`invoke_agent`), which contain model calls
(`chat`) and checks (`execute_tool`), as in OpenTelemetry's conventions for generative AI. Batches are `land` spans.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from dashboards.text.formats import duration
from dashboards.text.safe import safe
from fleet import __version__
from fleet.core.facts import facts as f
from fleet.errors import FleetError, UsageError

LONGEST = 200  # characters
Value = str | int | float | bool
Key = tuple[str | int | None, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """An operation that has ended."""

    trace: str
    id: str
    parent: str
    """Empty for a run."""
    name: str
    start: float
    end: float
    attributes: Mapping[str, Value]
    error: str = ""
    """Why the operation failed, or empty."""


@dataclass(frozen=True, slots=True)
class _Open:
    name: str
    start: float
    attributes: Mapping[str, Value]


@dataclass(slots=True)
class Spans:
    """Converts facts to spans. A span is returned by the fact that ends it, after the spans inside it."""

    _trace: str = ""
    _run: str = ""
    _lives: int = 0
    """How often the run was started or reopened."""
    _open: dict[Key, _Open] = field(default_factory=dict)

    def take(self, seq: int, fact: f.Fact) -> Sequence[Span]:
        """Return the spans that end with this fact."""
        return tuple(self._take(seq, fact))

    def _take(self, seq: int, fact: f.Fact) -> Iterator[Span]:
        match fact:
            case f.RunStarted() | f.RunReopened() | f.RunEnded():
                yield from self._of_run(fact)
            case (
                f.AttemptStarted() | f.WorkerStarted() | f.AttemptVerified() | f.AttemptUnchanged() | f.AttemptFailed()
            ):
                yield from self._of_attempt(seq, fact)
            case f.PlannerCalled() | f.PlanRevised() | f.PlannerFailed():
                yield from self._of_planner(fact)
            case f.BatchFormed() | f.BatchTested():
                yield from self._of_batch(seq, fact)
            case f.ModelCalled():
                yield self._chat(seq, fact)
            case _:
                pass

    def _of_run(self, fact: f.RunStarted | f.RunReopened | f.RunEnded) -> Iterator[Span]:
        match fact:
            case f.RunStarted():
                self._run = fact.run
                self._trace = _hashed(f"{fact.run} {fact.at!r} {fact.base}", 32)
                self._begin_run(fact.at, fact.goal)
            case f.RunReopened():
                self._begin_run(fact.at, "")
            case f.RunEnded(ending=ending, why=why):
                last: Key = ("run", self._lives)
                for key in [key for key in self._open if key != last]:
                    yield from self._end(key, fact.at, "interrupted")
                error = "" if ending == "landed" else f"{ending}: {why}"
                yield from self._end(last, fact.at, error, {"fleet.ending": ending})

    def _of_attempt(
        self,
        seq: int,
        fact: f.AttemptStarted | f.WorkerStarted | f.AttemptVerified | f.AttemptUnchanged | f.AttemptFailed,
    ) -> Iterator[Span]:
        key: Key = ("attempt", fact.subtask, fact.number)
        match fact:
            case f.AttemptStarted(subtask=subtask, number=number):
                about: dict[str, Value] = {"fleet.subtask": subtask, "fleet.attempt": number}
                if fact.model is not None:
                    about["gen_ai.request.model"] = fact.model
                self._begin(key, f"invoke_agent {subtask}", fact.at, {**_agent(fact.worker), **about})
            case f.WorkerStarted(before=before):
                yield from self._checks(seq, fact, key, before, expects_red=True)
            case f.AttemptVerified(checks=checks):
                yield from self._checks(seq, fact, key, checks)
                yield from self._end(key, fact.at)
            case f.AttemptUnchanged():
                yield from self._end(key, fact.at)
            case f.AttemptFailed(checks=checks, failure=failure):
                yield from self._checks(seq, fact, key, checks)
                error = f"{failure.kind}: {failure.summary}"
                yield from self._end(key, fact.at, error, {"error.type": failure.kind})

    def _of_planner(self, fact: f.PlannerCalled | f.PlanRevised | f.PlannerFailed) -> Iterator[Span]:
        key: Key = ("planner", fact.area, fact.call)
        match fact:
            case f.PlannerCalled(call=call, area=area, why=why):
                name = "invoke_agent planner" if area is None else f"invoke_agent planner of {area}"
                self._begin(key, name, fact.at, {**_agent("planner"), "fleet.call": call, "fleet.why": why})
            case f.PlanRevised():
                yield from self._end(key, fact.at)
            case f.PlannerFailed(failure=failure):
                yield from self._end(key, fact.at, failure.summary, {"error.type": failure.kind})

    def _of_batch(self, seq: int, fact: f.BatchFormed | f.BatchTested) -> Iterator[Span]:
        key: Key = ("batch", fact.number)
        if isinstance(fact, f.BatchFormed):
            self._begin(key, "land", fact.at, {"fleet.members": len(fact.members)})
            return
        yield from self._checks(seq, fact, key, fact.checks)
        found: dict[str, Value] = {"fleet.landed": len(fact.landed), "fleet.ejected": len(fact.ejected)}
        yield from self._end(key, fact.at, "red" if fact.red else "", found)

    def _begin(self, key: Key, name: str, at: float, attributes: Mapping[str, Value]) -> None:
        """Open a span. A span that is already open, from before a crash, continues."""
        self._open.setdefault(key, _Open(name, at, attributes))

    def _begin_run(self, at: float, goal: str) -> None:
        self._lives += 1
        about: dict[str, Value] = {"gen_ai.operation.name": "invoke_workflow", "fleet.run": self._run}
        if goal:
            about["fleet.goal"] = _short(goal)
        self._open["run", self._lives] = _Open(f"invoke_workflow {self._run}", at, about)

    def _end(self, key: Key, at: float, error: str = "", more: Mapping[str, Value] | None = None) -> Iterator[Span]:
        """Close an open span. A span that was already closed, because its result was recorded twice, is ignored."""
        begun = self._open.pop(key, None)
        if begun is not None:
            parent = "" if key[0] == "run" else self._id(("run", self._lives))
            attributes = {**begun.attributes, **(more or {})}
            yield Span(self._trace, self._id(key), parent, begun.name, begun.start, at, attributes, _short(error))

    def _chat(self, seq: int, fact: f.ModelCalled) -> Span:
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": fact.model,
            "gen_ai.usage.input_tokens": fact.usage.input + fact.usage.cache_read + fact.usage.cache_write,
            "gen_ai.usage.output_tokens": fact.usage.output,
            "fleet.turn": fact.turn,
        }
        if fact.dollars is not None:
            attributes["fleet.dollars"] = fact.dollars
        within: Key = ("attempt", fact.subtask, fact.attempt) if fact.subtask else ("planner", fact.area, fact.call)
        name, start = f"chat {fact.model}", fact.at - fact.seconds
        return Span(self._trace, self._id(("call", seq)), self._parent(within), name, start, fact.at, attributes)

    def _checks(
        self, seq: int, fact: f.Fact, within: Key, runs: Sequence[f.CheckRun], *, expects_red: bool = False
    ) -> Iterator[Span]:
        """Return spans of checks. They end with the fact that reports them, because only their duration is recorded.

        Before the work, a failing check is not an error.
        """
        for number, run in enumerate(runs):
            attributes: dict[str, Value] = {"gen_ai.operation.name": "execute_tool", "fleet.passed": run.passed}
            if run.node:
                attributes["fleet.node"] = run.node
            error = "" if run.fine or expects_red else "red"
            name, id_ = _short(f"execute_tool {run.criterion}"), self._id(("check", seq, number))
            start = fact.at - run.seconds
            yield Span(self._trace, id_, self._parent(within), name, start, fact.at, attributes, error)

    def _parent(self, key: Key) -> str:
        """Return the id of the parent span, or that of the run if the parent has ended. Answers may be late."""
        return self._id(key if key in self._open else ("run", self._lives))

    def _id(self, key: Key) -> str:
        return _hashed(f"{self._trace} {key!r}", 16)


def _agent(name: str) -> dict[str, Value]:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}


def _hashed(text: str, digits: int) -> str:
    return sha256(text.encode("utf-8", "replace")).hexdigest()[:digits]


def _short(text: str) -> str:
    return " ".join(text.split())[:LONGEST]


# ---- text ------------------------------------------------------------------------------------------------------------
# A trace on a terminal: the spans of a run in the order of their start.


LINE = 100


def trace_lines(spans: Sequence[Span]) -> Iterator[str]:
    """Yield a line for the run, each agent and each landing, with counts of the spans inside."""
    of = dict[str, list[Span]]()
    for span in spans:
        of.setdefault(span.parent, []).append(span)
    ids = {span.id for span in spans}
    for root in _in_order(span for span in spans if span.parent not in ids):
        yield from _lines(root, of, depth=0)


def _lines(span: Span, of: dict[str, list[Span]], *, depth: int) -> Iterator[str]:
    inside = of.get(span.id, [])
    kinds = Counter(each.name.partition(" ")[0] for each in inside) if depth else Counter[str]()
    counts = f"  ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})" if kinds else ""
    error = f"  ✘ {safe(span.error, limit=LINE)}" if span.error else ""
    yield f"{duration(span.end - span.start):>8}  {'  ' * depth}{safe(span.name, limit=LINE)}{counts}{error}"
    if depth == 0:
        for each in _in_order(inside):
            yield from _lines(each, of, depth=1)


def _in_order(spans: Iterable[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, span.end))


# ---- otlp ------------------------------------------------------------------------------------------------------------
# Spans in OTLP, as JSON over HTTP, which every collector accepts.


AT_ONCE = 500  # spans per request
SEND_S = 10.0
PATH = "/v1/traces"
SHOWN = 200


def collector_address(text: str) -> str:
    """Return the URL to send spans to. Raises `UsageError`."""
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise UsageError(
            f"--otlp {text}: not the URL of an OTLP collector", hint="pass a URL such as http://127.0.0.1:4318"
        )
    return text if parts.path.strip("/") else f"{text.rstrip('/')}{PATH}"


def as_document(spans: Sequence[Span], run: str) -> dict[str, Any]:
    """Return the body of an OTLP request."""
    about = _attributes({"service.name": "fleet", "service.version": __version__, "fleet.run": run})
    scope = {"scope": {"name": "fleet", "version": __version__}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": about}, "scopeSpans": [scope]}]}


async def send(url: str, spans: Sequence[Span], run: str) -> None:
    """Send spans. Raises `FleetError` if the collector does not accept them."""
    import aiohttp  # noqa: PLC0415 - slow to import

    timeout = aiohttp.ClientTimeout(total=SEND_S)
    headers = {"content-type": "application/json", "user-agent": "fleet"}
    try:
        async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as http:
            for first in range(0, len(spans), AT_ONCE):
                body = json.dumps(as_document(spans[first : first + AT_ONCE], run))
                async with http.post(url, data=body.encode(), headers=headers, allow_redirects=False) as answer:
                    if answer.status != 200:  # noqa: PLR2004 - the only success status of OTLP
                        said = safe((await answer.content.read(SHOWN)).decode("utf-8", "replace"), limit=SHOWN)
                        raise FleetError(
                            f"the OTLP collector rejected the traces: HTTP {answer.status} {said}".rstrip()
                        )
    except TimeoutError:
        raise FleetError(f"no response from the OTLP collector within {SEND_S:g} s: {url}") from None
    except (aiohttp.ClientError, OSError, UnicodeError) as error:
        raise FleetError(f"can't connect to the OTLP collector: {safe(str(error), limit=SHOWN)}") from None


def _span(span: Span) -> dict[str, Any]:
    status = {"status": {"code": 2, "message": span.error}} if span.error else {}
    return {
        "traceId": span.trace,
        "spanId": span.id,
        **({"parentSpanId": span.parent} if span.parent else {}),
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(round(span.start * 1e9)),
        "endTimeUnixNano": str(round(span.end * 1e9)),
        "attributes": _attributes(span.attributes),
        **status,
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case _:
            return {"stringValue": value}
