"""A run as a trace: the same spans however often and in how many parts they are sent."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.errors import UsageError
from fleet.features.traces.sender import TraceExporter
from fleet.features.traces.spans import LONGEST, Span, Spans, collector_address
from tests.fleet.core.story import Story, plan_of


def played() -> Story:
    """A planned run with an attempt that fails and one that is good, and a call of a model."""
    story = Story()
    story.planner_plans("a", "b")
    story.model_is_called("a", 0.5)
    story.attempt_fails("a", "transient")
    story.time_passes_to_the_next_wake()
    story.landed("a", "b")
    story.planner_answers(finished=True, synthesis="all landed")
    assert story.state.ended
    return story


def spans_of(facts: Sequence[f.Fact]) -> list[Span]:
    made = Spans()
    return [span for seq, fact in enumerate(facts, 1) for span in made.take(seq, fact)]


def test_each_span_has_an_id_of_its_own_a_parent_that_is_there_and_lies_within_the_run() -> None:
    spans = spans_of(played().facts)
    ids = [span.id for span in spans]
    assert len(set(ids)) == len(ids)
    [run] = [span for span in spans if not span.parent]
    assert run.name.startswith("invoke_workflow")
    assert {span.parent for span in spans if span.parent} <= set(ids)
    assert {span.trace for span in spans} == {run.trace}
    assert len(run.trace) == 32
    names = {span.name for span in spans}
    assert {"invoke_agent planner", "invoke_agent a", "invoke_agent b", "land"} <= names
    chat = next(span for span in spans if span.name.startswith("chat "))
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    failed = next(span for span in spans if span.error and span.name == "invoke_agent a")
    assert (chat.parent, failed.attributes["error.type"]) == (failed.id, "transient")


def test_what_never_ended_ends_with_the_run_and_a_run_that_is_reopened_has_another_span() -> None:
    call = {"role": "worker", "model": "m", "usage": Usage(input=3), "dollars": None, "seconds": 1}
    facts = [
        *Story(plan=plan_of("a")).facts,
        f.RunEnded(at=9, ending="cancelled", why="a person"),
        f.RunReopened(at=10, by="ann"),
        f.ModelCalled.model_validate({"at": 11, "subtask": "a", "attempt": 1, **call}),
        f.RunEnded(at=12, ending="failed", why="x" * 1000),
    ]
    spans = spans_of(facts)
    roots = [span for span in spans if not span.parent]
    assert [root.attributes["fleet.ending"] for root in roots] == ["cancelled", "failed"]
    assert len(roots[1].error) == LONGEST
    interrupted = next(span for span in spans if span.name == "invoke_agent a")
    assert (interrupted.error, interrupted.end) == ("interrupted", 9)
    assert next(span for span in spans if span.name == "chat m").parent == roots[1].id


# ---- sending ---------------------------------------------------------------------------------------------------------


@dataclass
class Collector:
    """Decodes what it gets. Refuses the requests whose numbers it is given."""

    refuses: frozenset[int] = frozenset()
    url: str = ""
    asked: int = 0
    spans: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        assert request.path == "/v1/traces"
        assert request.content_type == "application/json"
        self.asked += 1
        if self.asked in self.refuses:
            return web.Response(status=503, text="full\x1b[2J")
        for resource in (await request.json())["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.spans += scope["spans"]
        return web.json_response({})


@asynccontextmanager
async def collecting(*refuses: int) -> AsyncIterator[Collector]:
    collector = Collector(frozenset(refuses))
    app = web.Application()
    app.router.add_post("/{path:.*}", collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    collector.url = collector_address(f"http://127.0.0.1:{port}")
    try:
        yield collector
    finally:
        await runner.cleanup()


@dataclass
class Recorded:
    """A journal that grows."""

    known: list[f.Fact] = field(default_factory=list)

    def facts(self, after: int, limit: int) -> list[tuple[int, f.Fact]]:
        return list(enumerate(self.known, 1))[after : after + limit]

    def changed(self) -> bool:
        return True


async def test_in_parts_with_a_crash_and_a_collector_that_is_down_the_trace_is_the_same(tmp_path: Path) -> None:
    facts = list(played().facts)
    source, complaints = Recorded(), list[str]()

    def exporter(url: str) -> TraceExporter:
        return TraceExporter(url, "r", source, tmp_path / "position", complaints.append)

    async with collecting(2) as collector:
        first = exporter(collector.url)
        for count in range(1, len(facts) // 2):
            source.known = facts[:count]
            await first.flush()
        second = exporter(collector.url)  # after a crash
        source.known = facts
        while not await second.flush():
            pass
        assert await second.flush()
    ids = [span["spanId"] for span in collector.spans]
    wanted = spans_of(facts)
    assert sorted(ids) == sorted(span.id for span in wanted)
    assert len(complaints) == 1
    assert "HTTP 503 full" in complaints[0]
    assert "\x1b" not in complaints[0]
    last = collector.spans[-1]
    assert (last["name"], "parentSpanId" in last) == (wanted[-1].name, False)
    assert int(last["endTimeUnixNano"]) == round(wanted[-1].end * 1e9)


async def test_a_lost_position_sends_the_same_spans_again(tmp_path: Path) -> None:
    source = Recorded(list(played().facts))
    async with collecting() as collector:
        for _ in range(2):
            (tmp_path / "position").write_text("broken")
            assert await TraceExporter(collector.url, "r", source, tmp_path / "position", print).flush()
    ids = [json.dumps(span, sort_keys=True) for span in collector.spans]
    assert len(ids) == 2 * len(set(ids))


@pytest.mark.parametrize("url", ["", "collector:4318", "ftp://x", "http://", "http://me:secret@x/", "http://x/?a=b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="not the URL of an OTLP collector"):
        collector_address(url)
