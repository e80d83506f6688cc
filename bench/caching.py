"""A hundred concurrent coder attempts against the simulated model: how much of their prompts the cache serves.

The conversations are real (coder, client, HTTP). The output of their commands is generated, in typical sizes. The
simulated model counts like the real one: a prompt is cached above the minimum size, after the first response has
started, and only if it is identical. One row shows the share without cache warm-up.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import anyio

from agents.models.answer import Model
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import Caller
from agents.models.client import open_client
from agents.models.transcripts import Transcripts
from agents.simulated.script import parse_script
from agents.simulated.server import serve
from agents.workers.registry import WorkerContext, make_workers
from agents.workers.relay import Relay
from bench.meters import UnlimitedMeter, product_agents, with_worker
from bench.service import pause_figures
from bench.side_by_side import Extent, path_of
from fleet.core.base.ids import RunId
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Report
from fleet.core.plans.plan import Criterion, Subtask
from fleet.engine.briefs import layout
from fleet.ports.agents import NO_EXTRAS, CommandResult, Dialogue, Extras, ModelUse, Worker, WorkerBrief
from scripts.frame import Figure, temporary_folder

ATTEMPTS = 100
OUTPUT_SIZES = (6_000, 4_500, 3_000, 800, 300, 2_500, 300, 2_500, 1_200, 300, 2_000, 600)  # characters, by command
TREES = {"small": 10, "large": 2_000}  # files
HAIKU, SONNET = "claude-haiku-5-5", "claude-sonnet-5-5"
WANTED = {"small": 0.90, "large": 0.94}


async def caching_figures(extent: Extent) -> list[Figure]:
    """The models that workers use, in a small repository and in a large one."""
    layouts = {tree: layout(map(path_of, range(files))) for tree, files in TREES.items()}
    figures = []
    with temporary_folder(extent.folder) as folder:
        for model, tree, warm_up in (
            (HAIKU, "small", True),
            (HAIKU, "large", True),
            (HAIKU, "large", False),
            (SONNET, "small", True),
        ):
            usage = await measure(folder, model, layouts[tree], warm_up=warm_up)
            figures.append(
                Figure(
                    f"prompts read from cache, {model.split('-')[1]}{'' if warm_up else ', no warm-up'}",
                    f"{tree} tree",
                    usage.cached_share,
                    wanted=WANTED[tree] if warm_up else None,
                    at_least=True,
                    note=f"{usage.possible_share:.1%} is not new; {usage.calls['all']} calls, "
                    f"{usage.calls['shared prefix written']} wrote the shared prefix",
                )
            )
    return [*figures, *await pause_figures(extent.folder)]


@dataclass
class CannedWorkspace:
    """A workspace that prints a fixed number of characters for each command, without running it."""

    subtask: str
    commands: int = 0

    @property
    def root(self) -> str:
        return "/work"

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        del timeout_s, extras, dialogue
        size = OUTPUT_SIZES[self.commands % len(OUTPUT_SIZES)]
        self.commands += 1
        line = f"{self.subtask}: {command} printed this\n"
        return CommandResult(0, (line * (size // len(line) + 1))[:size])

    async def read(self, path: str) -> bytes:
        raise NotImplementedError(path)

    async def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError(path)

    async def list(self, path: str) -> Sequence[str]:
        raise NotImplementedError(path)


@dataclass
class UsageMeter(UnlimitedMeter):
    """A meter that adds up the usage of all attempts."""

    usage: Usage = Usage()
    calls: Counter[str] = field(default_factory=Counter)
    prompts: Counter[int] = field(default_factory=Counter)
    """Tokens of all prompts, by turn."""
    prefix: int = 0
    """Tokens that a first prompt could read because others had written them."""

    async def used(self, use: ModelUse) -> None:
        self.usage += use.usage
        self.calls["all"] += 1
        self.prompts[use.turn] += use.usage.prompt
        if use.turn == 1:
            self.prefix = max(self.prefix, use.usage.cache_read)
        wrote_prefix = use.turn == 1 and not use.usage.cache_read and bool(use.usage.cache_write)
        self.calls["shared prefix written"] += wrote_prefix

    @property
    def cached_share(self) -> float:
        usage = self.usage
        return usage.cache_read / (usage.input + usage.cache_read + usage.cache_write)

    @property
    def possible_share(self) -> float:
        """Return the highest possible share: all tokens except new ones, which each attempt's last prompt contains
        once."""
        new = self.prompts[max(self.prompts)] - (ATTEMPTS - 1) * self.prefix
        return 1 - new / self.usage.prompt


async def measure(folder: Path, model: str, files: str, *, warm_up: bool) -> UsageMeter:
    """The usage of all attempts, started at once by a fleet that has not made a call before."""
    meter = UsageMeter()
    async with simulated_model() as url:
        settings = with_worker(product_agents(url, folder / "transcripts"), model)
        async with open_client(settings.access, settings.timeouts) as client:
            model_client: Model = CacheWarmup(client) if warm_up else client
            caller = Caller(model_client, settings.retry, {}, chance=Random(1))  # noqa: S311 - jitter is no secret
            transcripts = Transcripts(settings.transcripts, secrets=())
            open_relay = partial(Relay, settings, caller, client)
            context = WorkerContext(settings, caller, transcripts, open_relay)
            worker = make_workers(context)["coder"]
            async with anyio.create_task_group() as fleet:
                for number in range(ATTEMPTS):
                    fleet.start_soon(_attempt, worker, number, files, meter)
    return meter


async def _attempt(worker: Worker, number: int, files: str, meter: UsageMeter) -> None:
    check = Criterion(criterion="It holds.", run=f"pytest -q tests/test_part{number}.py")
    goal = f"Part {number} parses dates as ISO 8601 and rejects all others, with the line in its message. " * 4
    subtask = Subtask(id=f"part-{number}", title=f"Part {number}", goal=goal, acceptance=(check,))
    brief = WorkerBrief(run=RunId("bench"), subtask=subtask, attempt=1, model=None, layout=files)
    outcome = await worker.run(brief, CannedWorkspace(subtask.id), meter)
    if not isinstance(outcome, Report):
        raise TypeError(f"an attempt failed: {outcome}")


@asynccontextmanager
async def simulated_model() -> AsyncIterator[str]:
    commands = [f"command {number}" for number in range(len(OUTPUT_SIZES))]
    script = {"pace": {"think_s": 0.05}, "workers": {"*": {"attempts": [{"do": "shell", "commands": commands}]}}}
    urls: list[str] = []
    ready = anyio.Event()

    def listening(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(parse_script(script), on_ready=listening))
        await ready.wait()
        yield urls[0]
        tasks.cancel_scope.cancel()
