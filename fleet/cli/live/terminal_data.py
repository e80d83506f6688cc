"""What the terminal UI stands on: journals and folders of runs, as its ports want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fleet.app import Fleet
from fleet.cli.background import Background
from fleet.core.facts import Fact
from fleet.core.ids import is_slug
from fleet.core.plan import Plan
from fleet.core.requests import Request
from fleet.core.state import RunState
from fleet.epic import dump_plan, load_plan
from fleet.folders import RunFolder, all_runs, find_run
from fleet.journal import Journal
from fleet.ports import FleetError
from worktrees.clean import stored_copy, stored_diff

MakeFleet = Callable[[RunState], Fleet]
"""How to work on a run, should somebody ask for that; raises `FleetError` where that can't be."""


class FolderFeed:
    """One run on disk."""

    def __init__(
        self, state_dir: Path, folder: RunFolder, fleet: MakeFleet, background: Background | None = None
    ) -> None:
        self._state_dir, self._folder, self._fleet = state_dir, folder, fleet
        self._background = background or Background(folder)
        self._journal = Journal(folder.journal)

    @property
    def run(self) -> str:
        return self._folder.run

    @property
    def alive(self) -> bool:
        return self._folder.alive or self._background.at_work

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        return self._journal.facts(after, limit)

    def changed(self) -> bool:
        return self._journal.changed()

    def ask(self, request: Request) -> None:
        with Journal(self._folder.journal) as journal:  # a connection of its own: `changed` is about others
            journal.ask(request)

    def last_words(self) -> str:
        return self._background.last_words()

    def transcript(self, name: str, number: int) -> Path:
        return self._folder.transcripts / (f"{name}.{number}.jsonl" if is_slug(name) else "none")

    def log(self, name: str) -> Path:
        path = (self._folder.path / name).resolve()
        return path if path.is_relative_to(self._folder.checks.resolve()) else self._folder.checks / "none"

    async def diff(self, base: str, commit: str) -> str | None:
        try:
            return await stored_diff(self._state_dir, self.run, base, commit)
        except FleetError as error:
            return str(error)

    async def copy(self, commit: str, into: Path) -> str | None:
        try:
            there = await stored_copy(self._state_dir, self.run, commit, into)
        except FleetError as error:
            return str(error)
        return None if there else f"commit {commit[:12]} is not in the store any more"

    def resume(self) -> str | None:
        try:
            fleet = self._fleet(self._folder.state())
            fleet.api_key()
            self._background.start(fleet)
        except FleetError as error:
            return str(error)
        return None

    def read_plan(self, path: Path) -> Plan | str:
        try:
            state = self._folder.state()
            return load_plan(path, self._fleet(state).known().beside(state.plan))
        except FleetError as error:
            return str(error)

    def write_plan(self, plan: Plan, path: Path) -> None:
        path.write_text(dump_plan(plan, toml=path.suffix == ".toml"), encoding="utf-8")


class FolderLibrary:
    """All runs below a state directory."""

    def __init__(self, state_dir: Path, fleet: MakeFleet, *, own: Background | None = None, run: str = "") -> None:
        self._state_dir, self._fleet = state_dir, fleet
        self._own = {run: own}

    def names(self) -> Sequence[str]:
        return [folder.run for folder in reversed(all_runs(self._state_dir))]

    def open(self, run: str) -> FolderFeed:
        return FolderFeed(self._state_dir, find_run(self._state_dir, run), self._fleet, self._own.get(run))
