"""The scenarios of killed runs: three small epics, with agents that respond immediately without a model.

An agent decides by its brief alone, so it responds identically in every engine of a run. The final files do not depend
on the order of events, which makes final trees comparable.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.conversation.settings import AgentSettings
from agents.factory import Agents
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.plans.revision import Problem, Retry, Revision, Split
from fleet.ports.agents import (
    CallGauges,
    Meter,
    ModelUse,
    PlannerBrief,
    PlannerRepository,
    WorkerBrief,
    Workspace,
    WorkspaceError,
)
from fleet.runs.crash_points import reached

MODEL = "simulated"
CALL_AT_MOST = Cost(calls=1, tokens=20, dollars=0.02)
CALL = ModelUse(model=MODEL, usage=Usage(input=10, output=1), dollars=0.01, seconds=0.1, turn=1, doing="bash")
CLOSED = {"merged", "dropped", "split"}
Files = Mapping[str, str]
"""One line to add to each file. Existing lines are kept, and all lines are sorted."""


@dataclass(frozen=True)
class AttemptScript:
    """The actions of one attempt: write files, fail, or report a blocker."""

    files: Files = field(default_factory=dict)
    failure: f.Failure | None = None
    reported: Any = None
    """The error kind of a report, such as `too_complex`."""


@dataclass(frozen=True)
class Scenario:
    """An epic, and the actions of its workers."""

    name: str
    plan: tuple[Subtask, ...]
    attempts: Mapping[str, tuple[AttemptScript, ...]]
    """By subtask, one script per attempt. The last one repeats."""
    gate: str = ""
    splits: Mapping[str, tuple[Subtask, ...]] = field(default_factory=dict)
    files: Files = field(default_factory=lambda: {"README.md": "hello\n"})

    @property
    def touches(self) -> dict[str, tuple[str, ...]]:
        subtasks = (*self.plan, *(part for parts in self.splits.values() for part in parts))
        return {subtask.id: subtask.touches for subtask in subtasks}

    def revise(self, state: Mapping[str, Any]) -> Revision:
        """The planner's answer to a shared state."""
        subtasks = state["subtasks"]
        if not subtasks:
            return Revision(assessment="this is to be done", add=self.plan)
        failed = [subtask["id"] for subtask in subtasks if subtask["status"] == "failed"]
        if failed:
            split = [Split(id=id_, why="too much", into=self.splits[id_]) for id_ in failed if id_ in self.splits]
            retry = [Retry(id=id_, guidance="otherwise") for id_ in failed if id_ not in self.splits]
            return Revision(assessment="otherwise", split=tuple(split), retry=tuple(retry))
        if all(subtask["status"] in CLOSED for subtask in subtasks):
            return Revision(assessment="done", finished=True, synthesis="all of it")
        return Revision(assessment="continue")

    async def prepare(self, workspace: Workspace) -> None:
        """Perform the first action of every worker."""

    def script_for(self, brief: WorkerBrief) -> AttemptScript:
        default = AttemptScript({f"{brief.subtask.id}.txt": brief.subtask.id})
        scripts = self.attempts.get(brief.subtask.id) or (default,)
        return scripts[min(brief.attempt, len(scripts)) - 1]


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
        "wrong": (AttemptScript({"wrong.txt": "something else"}), AttemptScript({"wrong.txt": "wrong"})),
        "whole": (AttemptScript(reported="too_complex"),),
        "busy": (
            AttemptScript(failure=f.Failure(kind="transient", summary="overloaded")),
            AttemptScript({"busy.txt": "busy"}),
        ),
    },
    splits={"whole": (subtask("half"), subtask("other", "half"))},
)

P_AND_Q_NEED_BOTH = "{ ! test -e p.txt || ! test -e q.txt || test -e both.txt; } 2>/dev/null"
CLASH = Scenario(
    "clash",
    (
        subtask("x", run="grep -qx x shared.txt", touches=("shared.txt",)),
        subtask("y", run="grep -qx y shared.txt", touches=("shared.txt",)),
        subtask("p", touches=("p.txt", "both.txt")),
        subtask("q", touches=("q.txt", "both.txt")),
    ),
    {
        "x": (AttemptScript({"shared.txt": "x"}),),
        "y": (AttemptScript({"shared.txt": "y"}),),
        "p": (AttemptScript({"p.txt": "p"}), AttemptScript({"p.txt": "p", "both.txt": "both"})),
        "q": (AttemptScript({"q.txt": "q"}), AttemptScript({"q.txt": "q", "both.txt": "both"})),
    },
    gate=P_AND_Q_NEED_BOTH,
    files={"README.md": "hello\n", "shared.txt": "m\n"},
)

SCENARIOS = {scenario.name: scenario for scenario in (PLAIN, TROUBLE, CLASH)}


# ---- agents ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallLog:
    """A file with one line per model call, written while the call is made: it survives the process that made it."""

    path: Path
    engine: int

    def record(self, caller: str, number: int) -> None:
        line = f"{self.engine} {caller} {number}\n".encode()
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(fd, line)
        finally:
            os.close(fd)


@dataclass(frozen=True)
class ScriptedPlanner:
    scenario: Scenario
    calls: CallLog

    async def plan(
        self,
        brief: PlannerBrief,
        repository: PlannerRepository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> f.Failure | None:
        del repository
        refused = await make_call(meter, self.calls, "planner", brief.call)
        if refused is not None:
            return refused
        problems = await submit(self.scenario.revise(brief.state))
        return f.Failure(kind="protocol", summary=f"{problems}") if problems else None


@dataclass(frozen=True)
class ScriptedWorker:
    scenario: Scenario
    calls: CallLog
    model: str | None = MODEL

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> f.Report | f.Failure:
        refused = await make_call(meter, self.calls, brief.subtask.id, brief.attempt)
        if refused is not None:
            return refused
        await self.scenario.prepare(workspace)
        script = self.scenario.script_for(brief)
        if script.reported is not None:
            return f.Report(status="failed", summary="too much", error_kind=script.reported, error_message="too much")
        if script.failure is not None:
            return script.failure
        for path, line in script.files.items():
            lines = sorted({line, *await existing_lines(workspace, path)})
            await workspace.write(path, "".join(f"{each}\n" for each in lines).encode())
        return f.Report(status="done", summary="written")


async def make_call(meter: Meter, calls: CallLog, caller: str, number: int) -> f.Failure | None:
    """One call to a model, metered as the product's agents do it."""
    refused = await meter.reserve(MODEL, CALL_AT_MOST)
    if refused is not None:
        return refused
    reached("a model is about to be asked")
    calls.record(caller, number)
    reached("a model has answered")
    await meter.used(CALL)
    return None


async def existing_lines(workspace: Workspace, path: str) -> list[str]:
    if path != "shared.txt":  # the only file that several subtasks write
        return []
    try:
        return (await workspace.read(path)).decode().splitlines()
    except WorkspaceError:
        return []


def scripted_agents(scenario: Scenario, calls: CallLog) -> Callable[[AgentSettings], Any]:
    """Return a replacement of `agents.factory.open_agents`."""

    @asynccontextmanager
    async def open_scripted(settings: AgentSettings) -> AsyncIterator[Agents]:
        del settings
        planner, worker = ScriptedPlanner(scenario, calls), ScriptedWorker(scenario, calls)
        yield Agents(planner, {"coder": worker}, {"coder": "writes"}, CallGauges)

    return open_scripted
