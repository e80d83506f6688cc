"""A hundred coder attempts at once against the simulated model: how much of their prompts is read from the cache.

The conversations are real (coder, client, HTTP); what commands print is made up, of sizes as in everyday work. The
simulated model counts as the real one does: nothing below the least size, nothing before the first answer has begun,
nothing that is not the same to the last character. Beside it stands what it is when nobody waits for the first answer.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio

from agents.minds import patience_of
from agents.models.answer import Model
from agents.models.calls import Caller
from agents.models.claude import Line, open_claude
from agents.models.warming import Warmed
from agents.registry import Bench, make_workers
from agents.settings import MindSettings
from agents.simulated.script import parse_script
from agents.simulated.server import serve
from agents.transcripts import Transcripts
from fleet.core.facts import Report
from fleet.core.plan import Criterion, Subtask
from fleet.core.usage import Usage
from fleet.notes import layout
from fleet.ports import NO_EXTRAS, CommandResult, Extras, ModelUse, Worker, WorkerBrief
from tests.benchmarks.meters import Open
from tests.benchmarks.side_by_side import HEAD, Figure, name_of, room, say

ATTEMPTS = 100
PRINTED = (6_000, 4_500, 3_000, 800, 300, 2_500, 300, 2_500, 1_200, 300, 2_000, 600)  # characters, command by command
FILES = (10, 2_000)  # in a small repository and in a large one
HAIKU, SONNET = "claude-haiku-5-5", "claude-sonnet-5-5"
WANTED = 0.85


@dataclass
class Paper:
    """A desk on which nothing happens: a command prints so many characters."""

    subtask: str
    printed: int = 0

    @property
    def root(self) -> str:
        return "/work"

    async def run(self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS) -> CommandResult:
        del timeout_s, extras
        length = PRINTED[self.printed % len(PRINTED)]
        self.printed += 1
        line = f"{self.subtask}: {command} said this\n"
        return CommandResult(0, (line * (length // len(line) + 1))[:length])

    async def read(self, path: str) -> bytes:
        raise NotImplementedError(path)

    async def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError(path)

    async def list(self, path: str) -> Sequence[str]:
        raise NotImplementedError(path)


@dataclass
class Count(Open):
    """A meter that adds up, over all attempts."""

    usage: Usage = Usage()
    calls: Counter[str] = field(default_factory=Counter)

    async def used(self, use: ModelUse) -> None:
        self.usage += use.usage
        self.calls["all"] += 1
        self.calls["nothing read"] += use.turn == 1 and not use.usage.cache_read and bool(use.usage.cache_write)

    @property
    def share(self) -> float:
        usage = self.usage
        return usage.cache_read / (usage.input + usage.cache_read + usage.cache_write)


@asynccontextmanager
async def simulated() -> AsyncIterator[str]:
    commands = [f"command {number}" for number in range(len(PRINTED))]
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


async def attempts(folder: Path, model: str, files: str, *, waiting: bool) -> Count:
    """So many attempts at once, of a fleet that has asked nothing yet."""
    count = Count()
    async with simulated() as url:
        settings = MindSettings(base_url=url, api_key="none", transcripts=folder / "transcripts", worker_model=model)
        line = Line(connect_s=30, silence_s=120, call_s=600)
        async with open_claude(url, "none", line) as claude:
            asked: Model = Warmed(claude) if waiting else claude
            caller = Caller(asked, patience_of(settings), {}, chance=Random(1))  # noqa: S311 - jitter is no secret
            worker = make_workers(Bench(settings, caller, Transcripts(settings.transcripts, secret="")))["coder"]
            async with anyio.create_task_group() as fleet:
                for number in range(ATTEMPTS):
                    fleet.start_soon(_attempt, worker, number, files, count)
    return count


async def _attempt(worker: Worker, number: int, files: str, count: Count) -> None:
    check = Criterion(criterion="It holds.", run=f"pytest -q tests/test_part{number}.py")
    goal = f"Part {number} parses dates as ISO 8601 and refuses what is none, with the line in its message. " * 4
    subtask = Subtask(id=f"part-{number}", title=f"Part {number}", goal=goal, acceptance=(check,))
    brief = WorkerBrief(run="bench", subtask=subtask, attempt=1, model=None, layout=files)
    outcome = await worker.run(brief, Paper(subtask.id), count)
    if not isinstance(outcome, Report):
        raise TypeError(f"an attempt failed: {outcome}")


async def caching_figures(at: Path | None = None) -> list[Figure]:
    """With the models that workers have, in a small repository and in a large one."""
    small, large = (layout(map(name_of, range(files))) for files in FILES)
    cases = ((HAIKU, "small", small, True), (HAIKU, "large", large, True), (HAIKU, "large", large, False))
    figures = []
    with room(at) as folder:
        for model, where, files, waiting in (*cases, (SONNET, "small", small, True)):
            count = await attempts(folder, model, files, waiting=waiting)
            how = "" if waiting else ", nobody waits"
            note = f"{count.calls['all']} calls, {count.calls['nothing read']} of them wrote what all share"
            figures.append(
                Figure(
                    f"prompts read from cache, {model.split('-')[1]}{how}",
                    f"{where} tree",
                    count.share,
                    wanted=WANTED if waiting else None,
                    at_least=True,
                    note=note,
                )
            )
    return figures


async def main() -> None:
    say(HEAD, *await caching_figures())


if __name__ == "__main__":
    anyio.run(main)
