"""What the runs that are killed are about: three small epics, with minds that answer in no time and cost no call.

A mind decides by what it is told and nothing else, so it says the same in every life of a run. Whatever the order of
things, the files at the end are the same: that is what makes one tree comparable with another.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.minds import Minds
from agents.settings import MindSettings
from fleet.core import facts as f
from fleet.core.plan import Criterion, Subtask
from fleet.core.revision import Retry, Revision, Split
from fleet.core.usage import Cost, Usage
from fleet.core.validate import Problem
from fleet.points import reached
from fleet.ports import CallGauges, Desk, DeskError, Meter, ModelUse, PlannerBrief, Repository, WorkerBrief

MODEL = "simulated"
MOST = Cost(calls=1, tokens=20, dollars=0.02)
USE = ModelUse(model=MODEL, usage=Usage(input=10, output=1), dollars=0.01, seconds=0.1, turn=1, doing="bash")
OVER = {"merged", "dropped", "split"}
Files = Mapping[str, str]
"""Lines by file; a file that is there keeps the lines it has, and all of them are sorted."""


@dataclass(frozen=True)
class Doing:
    """What one attempt does: it writes files, or says why it can't."""

    files: Files = field(default_factory=dict)
    error: f.Failure | None = None
    kind: Any = None
    """Too large a task is reported, not failed at."""


@dataclass(frozen=True)
class Scenario:
    """An epic, and how its workers get on."""

    name: str
    plan: tuple[Subtask, ...]
    work: Mapping[str, tuple[Doing, ...]]
    """By subtask, one an attempt; the last one repeats."""
    gate: str = ""
    splits: Mapping[str, tuple[Subtask, ...]] = field(default_factory=dict)
    files: Files = field(default_factory=lambda: {"README.md": "hello\n"})

    @property
    def touches(self) -> dict[str, tuple[str, ...]]:
        every = (*self.plan, *(part for parts in self.splits.values() for part in parts))
        return {subtask.id: subtask.touches for subtask in every}

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        return {subtask.id: subtask.depends_on for subtask in self.plan}

    def revise(self, state: Mapping[str, Any]) -> Revision:
        """What the planner says to a shared state."""
        known = state["subtasks"]
        if not known:
            return Revision(assessment="this is to be done", add=self.plan)
        failed = [one for one in known if one["status"] == "failed"]
        if failed:
            split = [
                Split(id=one["id"], why="too much", into=self.splits[one["id"]]) for one in failed if self._big(one)
            ]
            again = [Retry(id=one["id"], guidance="otherwise") for one in failed if not self._big(one)]
            return Revision(assessment="otherwise", split=tuple(split), retry=tuple(again))
        if all(one["status"] in OVER for one in known):
            return Revision(assessment="done", finished=True, synthesis="all of it")
        return Revision(assessment="go on")

    async def before(self, desk: Desk) -> None:
        """What every worker does first."""

    def _big(self, one: Mapping[str, Any]) -> bool:
        return one["id"] in self.splits

    def doing(self, brief: WorkerBrief) -> Doing:
        attempts = self.work.get(brief.subtask.id) or (Doing({f"{brief.subtask.id}.txt": brief.subtask.id}),)
        return attempts[min(brief.attempt, len(attempts)) - 1]


def subtask(id_: str, *needs: str, run: str | None = None, touches: tuple[str, ...] = ()) -> Subtask:
    check = Criterion(criterion=f"{id_} is written", run=run or f"grep -qx {id_} {id_}.txt")
    return Subtask(
        id=id_,
        title=f"Write {id_}",
        goal=f"Write {id_}.",
        acceptance=(check,),
        depends_on=needs,
        touches=touches or (f"{id_}.txt",),
    )


PLAIN = Scenario("plain", (subtask("a"), subtask("b"), subtask("c", "a"), subtask("d", "c")), {})

TROUBLE = Scenario(
    "trouble",
    (subtask("wrong"), subtask("whole"), subtask("busy"), subtask("after", "wrong")),
    {
        "wrong": (Doing({"wrong.txt": "something else"}), Doing({"wrong.txt": "wrong"})),
        "whole": (Doing(kind="too_complex"),),
        "busy": (Doing(error=f.Failure(kind="transient", summary="overloaded")), Doing({"busy.txt": "busy"})),
    },
    splits={"whole": (subtask("half"), subtask("other", "half"))},
)

BOTH = "{ ! test -e p.txt || ! test -e q.txt || test -e both.txt; } 2>/dev/null"
CLASH = Scenario(
    "clash",
    (
        subtask("x", run="grep -qx x shared.txt", touches=("shared.txt",)),
        subtask("y", run="grep -qx y shared.txt", touches=("shared.txt",)),
        subtask("p", touches=("p.txt", "both.txt")),
        subtask("q", touches=("q.txt", "both.txt")),
    ),
    {
        "x": (Doing({"shared.txt": "x"}),),
        "y": (Doing({"shared.txt": "y"}),),
        "p": (Doing({"p.txt": "p"}), Doing({"p.txt": "p", "both.txt": "both"})),
        "q": (Doing({"q.txt": "q"}), Doing({"q.txt": "q", "both.txt": "both"})),
    },
    gate=BOTH,
    files={"README.md": "hello\n", "shared.txt": "m\n"},
)

SCENARIOS = {scenario.name: scenario for scenario in (PLAIN, TROUBLE, CLASH)}


# ---- minds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """A file with one line a model call, written as it is made: it outlives whoever made the call."""

    path: Path
    life: int

    def made(self, who: str, number: int) -> None:
        line = f"{self.life} {who} {number}\n".encode()
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class ScriptedPlanner:
    scenario: Scenario
    calls: Calls

    async def plan(
        self,
        brief: PlannerBrief,
        repository: Repository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> f.Failure | None:
        del repository
        refused = await asked(meter, self.calls, "planner", brief.call)
        if refused is not None:
            return refused
        problems = await submit(self.scenario.revise(brief.state))
        return f.Failure(kind="protocol", summary=f"{problems}") if problems else None


@dataclass(frozen=True)
class ScriptedWorker:
    scenario: Scenario
    calls: Calls
    model: str | None = MODEL

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> f.Report | f.Failure:
        refused = await asked(meter, self.calls, brief.subtask.id, brief.attempt)
        if refused is not None:
            return refused
        await self.scenario.before(desk)
        doing = self.scenario.doing(brief)
        if doing.kind is not None:
            return f.Report(status="failed", summary="too much", error_kind=doing.kind, error_message="too much")
        if doing.error is not None:
            return doing.error
        for path, line in doing.files.items():
            await desk.write(path, "".join(f"{each}\n" for each in sorted({line, *await lines(desk, path)})).encode())
        return f.Report(status="done", summary="written")


async def asked(meter: Meter, calls: Calls, who: str, number: int) -> f.Failure | None:
    """One call to a model, as the minds of the product make it."""
    refused = await meter.reserve(MODEL, MOST)
    if refused is not None:
        return refused
    reached("a model is about to be asked")
    calls.made(who, number)
    reached("a model has answered")
    await meter.used(USE)
    return None


async def lines(desk: Desk, path: str) -> list[str]:
    if path != "shared.txt":  # the only one that others write, too
        return []
    try:
        return (await desk.read(path)).decode().splitlines()
    except DeskError:
        return []


def minds_of(scenario: Scenario, calls: Calls) -> Callable[[MindSettings], Any]:
    """What stands in for `agents.minds.open_minds`."""

    @asynccontextmanager
    async def opened(settings: MindSettings) -> AsyncIterator[Minds]:
        del settings
        yield Minds(
            ScriptedPlanner(scenario, calls),
            {"coder": ScriptedWorker(scenario, calls)},
            {"coder": "writes"},
            CallGauges,
        )

    return opened
