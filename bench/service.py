"""The product on the simulated service with its rules on: pauses, long conversations, budgets, planners.

Time is simulated, so that pauses of minutes and runs of hours take seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio

from agents.conversation.settings import AgentSettings
from agents.models.answer import Answer, CallFault, Model, OnBegin, Request
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import Caller
from agents.models.client import Client, open_client
from agents.models.transcripts import Transcripts
from agents.planner import ClaudePlanner
from agents.workers.registry import WorkerContext, make_workers
from agents.workers.relay import Relay
from bench.direct_model import DirectModel, without_waiting
from bench.meters import UnlimitedMeter, product_agents, with_worker
from fleet.core.base.ids import RunId, SubtaskId
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.plans.revision import Problem, Revision
from fleet.core.policy.planner_view import planner_record, planner_state
from fleet.core.state.state import RunState
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.ports.agents import (
    NO_EXTRAS,
    CommandResult,
    Dialogue,
    Extras,
    Meter,
    ModelUse,
    PlannerBrief,
    Worker,
    WorkerBrief,
)
from scripts.frame import Figure, temporary_folder
from tests.fleet.core.story import Story
from tests.fleet.engine.test_budget import Noon, ledger
from tests.fleet.eyes import Files

HAIKU, OPUS = "claude-haiku-5-5", "claude-opus-5-5"
PAUSE_S = 360.0
ATTEMPTS = 100
MANY = 1_000
SUBTASKS = 120
COMMANDS = 20
LONG = 400
BUDGET = 0.50


@dataclass
class Workspace:
    """Prints a number of characters for each command. Some commands take six minutes."""

    name: str
    characters: int = 2_500
    pauses: int = 0
    """Interval between slow commands. 0: none are slow."""
    commands: int = 0
    root: str = "/work"

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        del timeout_s, extras, dialogue
        self.commands += 1
        if self.pauses and (self.commands + hash_of(self.name)) % self.pauses == 0:
            await anyio.sleep(PAUSE_S)
        line = f"{self.name}: {command} printed this\n"
        return CommandResult(0, (line * (self.characters // len(line) + 1))[: self.characters])

    async def read(self, path: str) -> bytes:
        raise NotImplementedError(path)

    async def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError(path)

    async def list(self, path: str) -> Sequence[str]:
        raise NotImplementedError(path)


def hash_of(name: str) -> int:
    return sum(name.encode())


@dataclass
class Sums(UnlimitedMeter):
    """Adds up what calls used."""

    usage: Usage = Usage()
    dollars: float = 0.0
    calls: int = 0

    async def used(self, use: ModelUse) -> None:
        self.usage += use.usage
        self.dollars += use.dollars or 0.0
        self.calls += 1

    @property
    def cached(self) -> float:
        return self.usage.cache_read / self.usage.prompt


def shell(commands: int) -> dict[str, Any]:
    """Return workers that run a number of commands and report."""
    return {"workers": {"*": {"attempts": [{"do": "shell", "commands": [f"command {n}" for n in range(commands)]}]}}}


@dataclass
class Bench:
    """The product's agents at the simulated service, in simulated time."""

    model: DirectModel
    folder: Path
    settings: AgentSettings
    client: Client
    caller: Caller = field(init=False)

    def __post_init__(self) -> None:
        self.caller = self.calls(self.model)

    def calls(self, model: Model) -> Caller:
        return Caller(CacheWarmup(model, {}), self.settings.retry, {}, chance=Random(1))  # noqa: S311 - jitter

    def coder(self, **changes: Any) -> Worker:
        workers = {"coder": self.settings.workers["coder"].model_copy(update=changes)}
        settings = replace(with_worker(self.settings, HAIKU), workers=workers)
        transcripts = Transcripts(self.folder / "transcripts", secrets=())
        open_relay = partial(Relay, settings, self.caller, self.client)
        context = WorkerContext(settings, self.caller, transcripts, open_relay)
        return make_workers(context)["coder"]


async def bench_of(script: dict[str, Any], folder: Path, **changes: Any) -> Bench:
    settings = product_agents("http://127.0.0.1:9", folder / "transcripts")
    async with open_client(settings.access, settings.timeouts) as client:
        return Bench(DirectModel(script, **changes), folder, settings, client)


async def attempt(worker: Worker, name: str, workspace: Workspace, meter: Meter) -> f.Report | f.Failure:
    check = Criterion(criterion="It holds.", run=f"pytest -q tests/test_{name}.py")
    goal = f"{name} parses dates as ISO 8601 and rejects all others, with the line in its message. " * 4
    subtask = Subtask(id=name, title=name, goal=goal, acceptance=(check,))
    return await worker.run(WorkerBrief(run=RunId("bench"), subtask=subtask, attempt=1, model=None), workspace, meter)


# ---- caching ---------------------------------------------------------------------------------------------------------


async def pause_figures(folder: Path | None) -> list[Figure]:
    """A hundred coder attempts in which a tenth of the turns takes six minutes."""
    with temporary_folder(folder) as place:
        meter, refused = await without_waiting(lambda: _with_pauses(place))
    note = f"{meter.calls} calls, {refused} refused"
    return [
        Figure("prompts read from cache, haiku", "6-minute pauses", meter.cached, wanted=0.88, at_least=True, note=note)
    ]


async def _with_pauses(folder: Path) -> tuple[Sums, int]:
    bench, meter = await bench_of(shell(COMMANDS), folder), Sums()
    worker = bench.coder()
    async with anyio.create_task_group() as fleet:
        for number in range(ATTEMPTS):
            workspace = Workspace(f"part-{number}", pauses=10)
            fleet.start_soon(attempt, worker, workspace.name, workspace, meter)
    return meter, bench.model.refused


# ---- conversations ---------------------------------------------------------------------------------------------------


async def rule_figures(folder: Path | None) -> list[Figure]:
    """A very long conversation, and very many: how many of their requests break a rule of the service."""
    with temporary_folder(folder) as place:
        outcome, turns, compactions, long_refused = await without_waiting(lambda: _long(place))
        calls, many_refused = await without_waiting(lambda: _many(place))
    ended = isinstance(outcome, f.Report) and compactions >= 2 and not long_refused
    note = f"{compactions} compactions, {long_refused} requests refused"
    return [
        Figure(
            "a conversation ends, shortened twice", f"{turns} turns", float(ended), wanted=1, at_least=True, note=note
        ),
        Figure("requests that break a rule", f"{MANY:,} talks", many_refused, wanted=0, note=f"{calls} requests"),
    ]


async def _long(folder: Path) -> tuple[f.Report | f.Failure, int, int, int]:
    bench, meter = await bench_of(shell(LONG - 1), folder, answers_s=1.0), Sums()
    worker = bench.coder(turns=LONG + 10, time_s=1e6)
    outcome = await attempt(worker, "long", Workspace("long", characters=1_800), meter)
    transcript = (folder / "transcripts" / "long.1.jsonl").read_text()
    return outcome, meter.calls, transcript.count('"event": "compacted"'), bench.model.refused


async def _many(folder: Path) -> tuple[int, int]:
    bench, meter = await bench_of(shell(4), folder), Sums()
    worker = bench.coder()
    async with anyio.create_task_group() as fleet:
        for number in range(MANY):
            workspace = Workspace(f"part-{number}", characters=400)
            fleet.start_soon(attempt, worker, workspace.name, workspace, meter)
    return meter.calls, bench.model.refused


# ---- budget ----------------------------------------------------------------------------------------------------------


async def budget_figures(folder: Path | None) -> list[Figure]:
    """Run fifty concurrent coders until their budget is used up, and measure the excess and the unused rest."""
    with temporary_folder(folder) as place:
        spent, charged = await without_waiting(lambda: _until_spent(place))
    left, note = max(0.0, BUDGET - spent) / BUDGET, f"${spent:.4f} of ${BUDGET:g}; the service charged ${charged:.4f}"
    beyond = max(0.0, max(spent, charged) - BUDGET)
    return [
        Figure("dollars spent beyond a budget", "50 coders", beyond, wanted=0, note=note),
        Figure("share of a budget left unused", "50 coders", left, wanted=0.03, note=note),
    ]


async def _until_spent(folder: Path) -> tuple[float, float]:
    bench = await bench_of(shell(COMMANDS), folder)
    worker, book = bench.coder(), ledger(budget_dollars=BUDGET)
    budget = RunBudget(book, Noon())

    async def work(number: int) -> None:
        meter, name = CallMeter(budget, Purpose("worker", subtask=SubtaskId(f"s{number}"), attempt=1)), f"part-{number}"
        while isinstance(await attempt(worker, name, Workspace(name), meter), f.Report):
            pass

    async with anyio.create_task_group() as fleet:
        for number in range(50):
            fleet.start_soon(work, number)
    return book.state.spent.priced_dollars, bench.model.dollars


# ---- planner ---------------------------------------------------------------------------------------------------------


async def planner_cost_figures(folder: Path | None) -> list[Figure]:
    """The planner's calls of a run of 120 subtasks, as they are, and as when each call sent the whole state."""
    with temporary_folder(folder) as place:
        now = await without_waiting(lambda: _plan(place, as_before=False))
        before = await without_waiting(lambda: _plan(place, as_before=True))
    note = f"${now.dollars:.2f} against ${before.dollars:.2f}, {now.calls} calls; then {before.cached:.0%} from cache"
    where = f"{SUBTASKS} subtasks"
    return [
        Figure(
            "dollars of the planner, against whole states", where, now.dollars / before.dollars, wanted=0.5, note=note
        ),
        Figure("planner prompts read from cache", where, now.cached, wanted=0.80, at_least=True, note=note),
    ]


@dataclass
class AsBefore:
    """Requests without the optimizations: nothing is shared between calls or cached for longer."""

    model: Model

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        return await self.model.ask(replace(request, shared=0, recurs=False), on_begin)


async def _plan(folder: Path, *, as_before: bool) -> Sums:
    """Return planner calls after every few results, minutes apart. The first call explores."""
    script = {
        "planner": {"explore": [{"tool": "list_files", "input": {}}, {"tool": "search", "input": {"text": "Texts"}}]}
    }
    bench, meter = await bench_of(script, folder), Sums()
    caller = Caller(AsBefore(bench.model), bench.settings.retry, {}, chance=Random(1)) if as_before else bench.caller  # noqa: S311
    settings = replace(bench.settings, planner=bench.settings.planner.model_copy(update={"model": OPUS}))
    planner = ClaudePlanner(settings, caller, Transcripts(folder / "t", secrets=()))
    for call, state in enumerate(_states(), start=1):
        view: dict[str, Any] = {**planner_state(state, state.last_at)}
        if as_before:
            view["subtasks"] = [_whole(state, subtask) for subtask in view["subtasks"]]
        brief = PlannerBrief(
            run=RunId("bench"),
            call=call,
            epic="Write a toolkit for texts. " * 40,
            state=view,
            workers={"coder": "Writes and changes code and tests, runs commands, and fixes failing checks."},
            notes={"README.md": 3_000},
            record=[] if as_before else planner_record(state),
        )
        assert await planner.plan(brief, Files({"README.md": "Texts."}), _accept, meter) is None
        await anyio.sleep(150)
    return meter


async def _accept(revision: Revision) -> Sequence[Problem]:
    del revision
    return ()


def _states() -> list[RunState]:
    """A run of 120 subtasks as its planner sees it: empty, planned, and after every few landings."""
    story = Story(policy=Policy(workers=SUBTASKS))
    states = [story.state]
    subtasks = tuple(_subtask(number) for number in range(SUBTASKS))
    story.planner_answers(add=subtasks)
    for number in range(SUBTASKS):
        story.time_passes(20)
        _land(story, f"part-{number}")
        if number % 5 == 4:
            states.append(story.state)
            if story.state.planning.open is not None:
                story.planner_answers()
    return states


def _subtask(number: int) -> Subtask:
    goal = f"Part {number} parses dates as ISO 8601 and rejects all others, with the line in its message. " * 4
    check = Criterion(criterion="It parses dates.", run=f"python3 -m unittest tests.test_part{number}")
    path = (f"src/part{number}.py", f"tests/test_part{number}.py")
    return Subtask(
        id=f"part-{number}", title=f"Parse dates, part {number}", goal=goal, acceptance=(check,), touches=path
    )


def _land(story: Story, id_: str) -> None:
    number = story.current(id_).number
    report = f.Report(status="done", summary=f"{id_} parses dates and refuses what is none. " * 6)
    story.happens(
        f.AttemptCommitted(at=story.now, subtask=id_, number=number, commit=f"c-{id_}", paths=("x",), report=report),
        f.AttemptVerified(at=story.now, subtask=id_, number=number, checks=()),
    )
    while story.state.landing.open_batches:
        story.batch_lands()
    story.is_published()


def _whole(state: RunState, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of the state as it was: with its specification while it is open, and its whole report."""
    subtask, spec = state.subtasks[entry["id"]], state.specs[entry["id"]]
    report = subtask.last.report if subtask.last is not None else None
    whole = {**entry, "result": report.summary if report else ""}
    if not subtask.closed:
        whole |= {"goal": spec.goal[:1_000], "touches": list(spec.touches)}
        whole["acceptance"] = [criterion.run for criterion in spec.acceptance]
    return whole
