"""Attempts on nodes compared with the same attempts in process: wall time, the manager's processor time, traffic.

The node is `fleet node --stdio` behind a pipe on this machine, so that both use the same processors. The differences
are the protocol, the packs, and the manager's verification.
"""

import json
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from typing import Any

from anyio import create_task_group

from agents.factory import open_agents
from bench.side_by_side import (
    Cost,
    Extent,
    Project,
    Stopwatch,
    Variant,
    files_label,
    generated_project,
    interleave,
    path_of,
)
from fleet import __version__
from fleet.app.wiring import Wiring
from fleet.config.load import load_config
from fleet.core.base.ids import RunId, Sha
from fleet.core.plans.plan import Criterion, Subtask
from fleet.engine.this_machine import ThisMachine
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.kinds import Table, machine_of, transport_environment
from fleet.features.nodes.manager_side import connect
from fleet.features.nodes.messages import PROTOCOL, Open
from fleet.features.nodes.node_config import build_node_config
from fleet.features.nodes.node_process import LineMeter
from fleet.features.nodes.remote_node import RemoteNode, StoreObjects
from fleet.features.nodes.settings import NodeSettings
from fleet.ports.agents import WorkerBrief
from fleet.ports.orders import AttemptOrder, AttemptResult, Progress
from fleet.ports.worktrees import Change
from scripts.frame import Figure, progress
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.target.target import inspect

FILES, EDITED = 10_000, 3
WARM, ROUNDS_EACH = 3, 4
RUN, WORKER, NODE = RunId("r"), "step", "pipe"
HERE, THERE = "in process", "node"
WALL, PROCESSOR, BYTES = 1.5, 1.2, 16 * 1024
Attempt = Callable[[AttemptOrder], Any]


async def node_figures(extent: Extent) -> list[Figure]:
    progress("attempts on a node over a pipe and in process")
    with generated_project(FILES, extent.folder) as project:
        async with _opened(project) as pair:
            variants: dict[str, Variant] = {HERE: partial(pair.cost, HERE), THERE: partial(pair.cost, THERE)}
            await interleave(variants, WARM, warm=0)
            pair.own.clear()
            before, rounds = pair.traffic, ROUNDS_EACH * extent.rounds
            costs = await interleave(variants, rounds, warm=0)
            sent, received = (after - start for after, start in zip(pair.traffic, before, strict=True))
    return _figures(costs, pair.own, sent / rounds, received / rounds)


def _figures(costs: dict[str, list[Cost]], own: dict[str, list[float]], sent: float, received: float) -> list[Figure]:
    wall = {name: median(cost.wall for cost in each) for name, each in costs.items()}
    processor = {name: fmean(each) for name, each in own.items()}

    def ratio(what: str, values: dict[str, float], wanted: float) -> Figure:
        note = f"{values[THERE]:.1f} of {values[HERE]:.1f} ms"
        measure = f"an attempt on a node, warm: {what}"
        return Figure(measure, files_label(FILES), values[THERE] / values[HERE], wanted=wanted, note=note)

    where = f"{EDITED} files"
    return [
        ratio("wall", wall, WALL),
        ratio("the manager's processor", processor, PROCESSOR),
        Figure("bytes to a node for an attempt", where, sent, wanted=BYTES),
        Figure("bytes from a node for an attempt", where, received, wanted=BYTES),
    ]


@dataclass
class Pair:
    """The same work in process and on a node."""

    base: Sha
    files: int
    local: ThisMachine
    remote: RemoteNode
    own: dict[str, list[float]] = field(default_factory=dict)
    """The processor time of this process alone in each attempt, in milliseconds."""

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes to the node and from it."""
        if self.remote.connection is None:
            raise RuntimeError(f"the node is out: {self.remote.out}")
        return self.remote.connection.link.sent, self.remote.connection.link.received

    async def cost(self, name: str, number: int) -> Cost:
        paths = tuple(path_of((number * EDITED + part) * 7919 % self.files) for part in range(EDITED))
        order = self._order(f"{name[:2]}-{number}-{len(self.own.get(name, ()))}", paths)
        started = time.process_time()
        with Stopwatch() as watch:
            result = await self._attempt(name, order)
        self.own.setdefault(name, []).append((time.process_time() - started) * 1e3)
        if not isinstance(result.committed, Change) or len(result.committed.paths) != EDITED:
            raise RuntimeError(f"{name}: {result}")
        return watch.cost

    async def _attempt(self, name: str, order: AttemptOrder) -> AttemptResult:
        meter = LineMeter(CallChannel())
        if name == HERE:
            return await self.local.attempt(order, meter, _ignore)
        return await self.remote.attempt(f"{RUN}/attempt/{order.brief.subtask.id}/1", order, meter, _ignore)

    def _order(self, name: str, paths: tuple[str, ...]) -> AttemptOrder:
        subtask = Subtask(
            id=f"{name}-{os.urandom(3).hex()}",
            title="Change three files",
            goal=" ".join(paths),
            acceptance=(Criterion(criterion="it is changed", run="true"),),
            touches=paths,
        )
        return AttemptOrder(self.base, WORKER, WorkerBrief(run=RUN, subtask=subtask, attempt=1, model=None))


async def _ignore(_: Progress) -> None:
    """Ignore the steps of an attempt."""


@asynccontextmanager
async def _opened(project: Project) -> AsyncIterator[Pair]:
    """Yield worktrees of this process, and a node with a separate disk in the same memory."""
    node_file, run_file = project.folder / "node.toml", project.folder / "run.toml"
    node_file.write_text(f'[state]\ndir = "{project.folder}/node"\n', encoding="utf-8")
    command = shlex.join((sys.executable, "-B", "-m", "fleet", "node", "--stdio", "--config", str(node_file)))
    work = "sh -c 'for path in $1; do echo changed >\"$path\"; done' sh {goal}"
    run_file.write_text(
        f'[state]\ndir = "{project.folder}/state"\n[workers.{WORKER}]\nkind = "command"\ncommand = {json.dumps(work)}\n'
        f"[nodes.{NODE}]\ncommand = {json.dumps(command)}\nworkers = 2\nchecks = 1\n",
        encoding="utf-8",
    )
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.folder)}
    wiring = Wiring(load_config(environ=environ, config_file=run_file, user_file=None).config, environ)
    target = await inspect(project.repository)
    async with (
        open_worktrees(target, wiring.worktrees, RUN, target.base) as worktrees,
        open_agents(wiring.agents(project.folder / "transcripts")) as agents,
        _remote(project, wiring, worktrees, target.base) as remote,
    ):
        local = ThisMachine(worktrees.lease, agents.workers, wiring.command_workers)
        yield Pair(target.base, project.files, local, remote)


@asynccontextmanager
async def _remote(project: Project, wiring: Wiring, worktrees: RunWorktrees, base: Sha) -> AsyncIterator[RemoteNode]:
    opening = Open(
        protocol=PROTOCOL,
        version=__version__,
        run=RUN,
        repository=worktrees.store.home.name,
        object_format="sha1",
        base=base,
        lease_s=20.0,
    )
    table = Table(NODE, wiring.config.named(NodeSettings)[NODE], transport_environment(wiring), project.folder)
    machine = machine_of(table)
    node = RemoteNode(
        name=NODE,
        workers=2,
        checks=1,
        connect=partial(connect, machine, opening, build_node_config(wiring)),
        objects=StoreObjects(
            worktrees.store, wiring.worktrees, project.folder / "transcripts-of-nodes", project.folder / "logs-of-nodes"
        ),
        notice=lambda fact: progress(f"{fact.kind}"),
        calls=lambda *_: nullcontext(NoCalls()),
    )
    async with create_task_group() as tasks:
        tasks.start_soon(node.run)
        await node.wait_tried()
        yield node
        tasks.cancel_scope.cancel()


class NoCalls:
    """Satisfies `AttemptCalls` for a program, which makes none."""

    drained = False

    async def answer(self, request: bytes, reply: object) -> None:
        raise AssertionError(f"a program asked for a call: {request!r}, {reply}")

    def keep(self, transcript: bytes) -> None:
        del transcript

    def close(self) -> None:
        """There are no calls to interrupt."""
