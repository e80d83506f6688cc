"""Runs in memory, as the terminal UI wants them: a feed that tells given facts, and remembers what was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.facts import Fact
from fleet.core.plan import Plan
from fleet.core.planfile import read_plan
from fleet.core.requests import Request
from fleet.epic import dump_plan, read_data
from fleet.ports import FleetError


@dataclass
class Told:
    """A run that consists of these facts."""

    facts: Sequence[Fact]
    run: str = "r"
    alive: bool = True
    folder: Path = Path("nowhere")
    patch: str | None = None
    words: str = ""
    asked: list[Request] = field(default_factory=list)
    resumed: int = 0
    told: int = 0

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        self.told = len(self.facts)
        return list(enumerate(self.facts, 1))[after:][: limit if limit >= 0 else None]

    def changed(self) -> bool:
        return self.told != len(self.facts)

    def ask(self, request: Request) -> None:
        self.asked.append(request)

    def last_words(self) -> str:
        return self.words

    def transcript(self, name: str, number: int) -> Path:
        return self.folder / f"{name}.{number}.jsonl"

    def log(self, name: str) -> Path:
        return self.folder / name

    async def diff(self, base: str, commit: str) -> str | None:
        del base, commit
        return self.patch

    async def copy(self, commit: str, into: Path) -> str | None:
        (into / "commit").write_text(commit)
        return None

    def resume(self) -> str | None:
        self.resumed += 1
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
class Shelf:
    """A library of such runs."""

    feeds: Sequence[Told]

    def names(self) -> Sequence[str]:
        return [feed.run for feed in self.feeds]

    def open(self, run: str) -> Told:
        return next(feed for feed in self.feeds if feed.run == run)
