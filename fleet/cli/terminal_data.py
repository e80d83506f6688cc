"""The runs on disk, as feeds for the terminal UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import typer

from fleet.app.fleet import Fleet, withdraw_cancel
from fleet.app.input_files import dump_plan, load_plan
from fleet.cli.common import configuration_of, send_requests
from fleet.cli.engine import BackgroundRun
from fleet.config.environment import current
from fleet.core.base.ids import Sha, is_slug
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES, Feature
from fleet.runs.journal_feed import JournalFeed
from fleet.runs.run_folder import RunFolder, all_runs, find_run
from worktrees.leases.gc import stored_copy, stored_diff

MakeFleet = Callable[[RunFolder], Fleet]
"""Returns the `Fleet` that resumes a run. Raises `FleetError` if that is not possible."""


def read_only(folder: RunFolder) -> Fleet:
    """A `MakeFleet` for readers."""
    raise FleetError(f"{folder.run} is open read-only")


class FolderFeed(JournalFeed):
    """One run on disk, with its files and its inbox."""

    def __init__(
        self, state_dir: Path, folder: RunFolder, fleet: MakeFleet, background: BackgroundRun | None = None
    ) -> None:
        super().__init__(folder)
        self._state_dir, self._fleet = state_dir, fleet
        self._background = background or BackgroundRun(folder)

    @property
    def alive(self) -> bool:
        return self._folder.alive or self._background.at_work

    def ask(self, request: Request) -> None:
        send_requests(self._folder, request)  # through another connection: `changed` ignores changes by this one

    def last_stderr_line(self) -> str:
        return self._background.last_stderr_line()

    def transcript(self, name: str, number: int) -> Path:
        return self._folder.transcripts / (f"{name}.{number}.jsonl" if is_slug(name) else "none")

    def log(self, name: str) -> Path:
        path = (self._folder.path / name.replace("\0", "?")).resolve()  # no path holds a zero byte
        return path if path.is_relative_to(self._folder.checks.resolve()) else self._folder.checks / "none"

    async def diff(self, base: Sha, commit: Sha) -> str | None:
        try:
            return await stored_diff(self._state_dir, self.run, base, commit)
        except FleetError as error:
            return error.text

    async def copy(self, commit: Sha, into: Path) -> str | None:
        try:
            is_stored = await stored_copy(self._state_dir, self.run, commit, into)
        except FleetError as error:
            return error.text
        return None if is_stored else f"commit {commit[:12]} is no longer in the store"

    def resume(self) -> str | None:
        try:
            fleet = self._fleet(self._folder)
            fleet.require_models_for(self._folder.state())
            withdraw_cancel(self._folder)
            self._background.start(fleet)
        except FleetError as error:
            return error.text
        return None

    def read_plan(self, path: Path) -> Plan | str:
        try:
            plan = self._folder.state().plan
            return load_plan(path, self._fleet(self._folder).wiring.known.beside(plan))
        except FleetError as error:
            return error.text

    def write_plan(self, plan: Plan, path: Path) -> None:
        path.write_text(dump_plan(plan, toml=path.suffix == ".toml"), encoding="utf-8")


class FolderLibrary:
    """All runs of a state directory. `background` is the engine that this process started for `run`.

    Used as a block, which closes every opened run at its end.
    """

    def __init__(
        self, state_dir: Path, fleet: MakeFleet, *, background: BackgroundRun | None = None, run: str = ""
    ) -> None:
        self._state_dir, self._fleet = state_dir, fleet
        self._backgrounds = {run: background}
        self._opened: list[FolderFeed] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for feed in self._opened:
            feed.close()

    def names(self) -> Sequence[str]:
        return [folder.run for folder in reversed(all_runs(self._state_dir))]

    def open(self, run: str) -> FolderFeed:
        feed = FolderFeed(self._state_dir, find_run(self._state_dir, run), self._fleet, self._backgrounds.get(run))
        self._opened = [*(each for each in self._opened if not each.closed), feed]
        return feed


def library_of(state_dir: Path, *, background: BackgroundRun | None = None, run: str = "") -> FolderLibrary:
    """All runs. Each can be resumed with its original configuration."""
    return FolderLibrary(
        state_dir, lambda folder: Fleet(configuration_of(folder.state()), current()), background=background, run=run
    )


def start_pages(folder: RunFolder, features: Mapping[str, Feature] = FEATURES) -> None:
    """Serve the web UI for a running run, if the feature is installed."""
    places = [feature.shows for feature in features.values() if feature.shows]
    if places:
        load_part(places[0])(folder)
    else:
        typer.echo(f"{folder.run}: the web UI is not part of this installation", err=True)
