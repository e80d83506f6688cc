"""Runs in memory for the terminal UI: a feed of given facts, which keeps the requests that it receives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.app.input_files import dump_plan, read_data
from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Fact
from fleet.core.plans.parameters import read_plan
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request
from fleet.errors import FleetError


@dataclass
class MemoryFeed:
    """A run that consists of these facts."""

    recorded: Sequence[Fact]
    run: str = "r"
    alive: bool = True
    folder: Path = Path("nowhere")
    patch: str | None = None
    output: str = ""
    requests: list[Request] = field(default_factory=list)
    resume_count: int = 0
    read_count: int = 0
    closed: bool = False

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        self.read_count = len(self.recorded)
        return list(enumerate(self.recorded, 1))[after:][: limit if limit >= 0 else None]

    def changed(self) -> bool:
        return self.read_count != len(self.recorded)

    def close(self) -> None:
        self.closed = True

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def last_stderr_line(self) -> str:
        return self.output

    def transcript(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.{number}.jsonl"

    def log(self, name: str) -> Path:
        return self.folder / name

    async def diff(self, base: Sha, commit: Sha) -> str | None:
        del base, commit
        return self.patch

    async def copy(self, commit: Sha, into: Path) -> str | None:
        (into / "commit").write_text(commit)
        return None

    def resume(self) -> str | None:
        self.resume_count += 1
        return None

    def read_plan(self, path: Path) -> Plan | str:
        try:
            read = read_plan(read_data(path))
        except FleetError as error:
            return str(error)
        return read if isinstance(read, Plan) else "\n".join(map(str, read))

    def write_plan(self, plan: Plan, path: Path) -> None:
        path.write_text(dump_plan(plan, toml=True))


@dataclass
class MemoryLibrary:
    """A library of such runs."""

    feeds: Sequence[MemoryFeed]

    def names(self) -> Sequence[str]:
        return [feed.run for feed in self.feeds]

    def open(self, run: str) -> MemoryFeed:
        return next(feed for feed in self.feeds if feed.run == run)
