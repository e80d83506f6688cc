"""What a person asks a node of the configuration outside of a run: what it holds, and to delete what no run uses."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from anyio import create_task_group, current_time, fail_after

from fleet.app.nodes.clusters import with_machines
from fleet.app.nodes.findings import RUN_IT, problem_of
from fleet.app.nodes.manager_side import GREET_S, command_line, explained, transport_environment
from fleet.app.wiring import Wiring
from fleet.core.views.nodes_view import NodeView
from fleet.errors import FleetError
from fleet.nodes.connection import NodeRefusedError
from fleet.nodes.frames import Frame, FrameError
from fleet.nodes.messages import Beat, Clean, Cleaned, Greeting, Inspect, Inspected, Message, Refused, from_node
from fleet.nodes.streams import Link, LinkLostError
from fleet.nodes.transport import open_command

CARE_S = 600.0  # how long a node may take to look through its disk, or to delete what is there
UNREACHED = (LinkLostError, NodeRefusedError, TimeoutError, OSError)
Answer = TypeVar("Answer", bound=Message)


@dataclass(slots=True)
class Caretaker:
    """A node that was greeted and not opened for a run. Its methods raise as `attend` does."""

    greeting: Greeting
    link: Link
    frames: AsyncIterator[Frame]

    async def round_trip_s(self) -> float:
        asked = current_time()
        await self._ask(Beat(number=0), Beat)
        return current_time() - asked

    async def inspect(self) -> Inspected:
        return await self._ask(Inspect(), Inspected)

    async def clean(self, repository: str = "") -> Cleaned:
        return await self._ask(Clean(repository=repository), Cleaned)

    async def _ask(self, question: Message, wanted: type[Answer]) -> Answer:
        with fail_after(CARE_S):
            await self.link.send(question)
            return await _next(self.frames, wanted)


@asynccontextmanager
async def attend(wiring: Wiring, name: str) -> AsyncIterator[Caretaker]:
    """A node of the configuration. Raises `LinkLostError`, `NodeRefusedError`, `TimeoutError` or `OSError`."""
    argv = command_line(name, wiring.config.nodes[name])
    async with open_command(argv, transport_environment(wiring)) as stream:
        link = Link(stream)
        frames = link.frames()
        try:
            with fail_after(GREET_S):
                greeting = await _next(frames, Greeting)
        except LinkLostError as error:
            raise LinkLostError(await explained(stream, str(error))) from error
        yield Caretaker(greeting, link, frames)


async def look_at_nodes(wiring: Wiring) -> list[NodeView]:
    """Every node of the configuration, each asked at the same time."""
    found: dict[str, NodeView] = {}

    async def look(machines: Wiring, name: str) -> None:
        found[name] = await look_at(machines, name)

    async with with_machines(wiring, transport_environment(wiring)) as machines, create_task_group() as tasks:
        for name in machines.config.nodes:
            tasks.start_soon(look, machines, name)
    return [found[name] for name in sorted(found)]


async def look_at(wiring: Wiring, name: str) -> NodeView:
    """A node of the configuration, with what keeps it from working."""
    settings = wiring.config.nodes[name]
    view = NodeView(
        name=name,
        ok=False,
        problem="",
        fix="",
        in_run=None,
        labels=settings.labels or (),
        lands=bool(settings.lands),
        workers=settings.workers,
        checks=settings.checks,
    )
    try:
        async with attend(wiring, name) as node:
            view = _greeted(view, node.greeting)
            problem = problem_of(node.greeting)
            if problem is not None:
                return replace(view, problem=problem[0], fix=problem[1])
            round_trip_s, held = await node.round_trip_s(), await node.inspect()
    except UNREACHED as error:
        return replace(view, problem=str(error) or "it did not answer in time", fix=RUN_IT.format(name=name))
    return replace(
        view,
        ok=True,
        round_trip_s=round(round_trip_s, 4),
        attempts_running=held.attempts,
        checks_running=held.checks,
        reports=held.reports,
        repositories=held.repositories,
        commits=held.commits,
        cache_bytes=held.bytes,
    )


async def clean_node(wiring: Wiring, name: str, repository: str = "") -> Cleaned:
    """Delete what no run uses on a node. Raises `FleetError`."""
    try:
        async with attend(wiring, name) as node:
            if (problem := problem_of(node.greeting)) is not None and not node.greeting.problems:
                raise FleetError(f"node {name}: {problem[0]}", hint=problem[1])
            return await node.clean(repository)
    except UNREACHED as error:
        why = str(error) or "it did not answer in time"
        raise FleetError(f"node {name}: {why}", hint=RUN_IT.format(name=name)) from error


def _greeted(view: NodeView, greeting: Greeting) -> NodeView:
    return replace(
        view,
        workers=greeting.processors if view.workers is None else view.workers,
        checks=greeting.processors if view.checks is None else view.checks,
        host=greeting.host,
        version=greeting.version,
        protocol=greeting.protocol,
        processors=greeting.processors,
        memory_bytes=greeting.memory_bytes,
        skew_s=round(greeting.time - time.time(), 3),
    )


async def _next(frames: AsyncIterator[Frame], wanted: type[Answer]) -> Answer:
    try:
        frame = await anext(frames, None)
        if frame is None:
            raise LinkLostError("the stream ended before the node had answered")
        message = from_node(frame)
    except FrameError as error:
        raise LinkLostError(f"what answers is not `fleet node --stdio`: {error}") from error
    if isinstance(message, Refused):
        raise NodeRefusedError(message.why)
    if not isinstance(message, wanted):
        raise NodeRefusedError(f"it sent `{message.type}` where `{wanted.__name__.lower()}` was expected")
    return message
