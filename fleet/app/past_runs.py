"""The results of rungs in past runs of a repository, and the cost and duration of their landed subtasks.

The evidence of an ended run is stored next to its journal, so that each journal is replayed only once.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.models.client import is_simulated
from fleet.config.schema import Config
from fleet.core.facts import facts as f
from fleet.errors import FleetError
from fleet.read.costs import LandedCost, estimates_of, landed_subtasks
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, git_folder, runs_by_start

MOST_RUNS = 20
MOST_FACTS = 30_000  # in all journals replayed together, which takes some seconds
KEPT = "evidence.json"


class PastRun(BaseModel):
    """The evidence from one past run."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    version: Literal[2] = 2
    facts: int
    """The length of its journal when this was read."""
    tallies: tuple[f.RungTally, ...]
    landed: tuple[LandedCost, ...]


async def read_evidence(config: Config, repository: Path) -> f.EvidenceRead:
    """The evidence from past runs of a repository for the next run with this configuration."""
    simulated = await is_simulated(config.models.base_url)
    return past_evidence(Path(config.state.dir), repository, simulated=simulated)


def past_evidence(
    state_dir: Path, repository: Path, *, simulated: bool, most_runs: int = MOST_RUNS, most_facts: int = MOST_FACTS
) -> f.EvidenceRead:
    """The sum of the evidence from the latest runs of the same kind."""
    past = _past_runs(state_dir, repository, simulated=simulated, most_runs=most_runs, most_facts=most_facts)
    runs = [run for run in past if run.tallies or run.landed]
    tallies: dict[tuple[object, ...], f.RungTally] = {}
    for tally in (tally for run in runs for tally in run.tallies):
        key = (tally.worker, tally.model, tally.effort, tally.size)
        tallies[key] = _sum(tallies[key], tally) if key in tallies else tally
    estimates = estimates_of(each for run in runs for each in run.landed)
    return f.EvidenceRead(at=time.time(), runs=len(runs), tallies=tuple(tallies.values()), estimates=estimates)


def _past_runs(
    state_dir: Path, repository: Path, *, simulated: bool, most_runs: int, most_facts: int
) -> Iterator[PastRun]:
    """The evidence of each run within the limits, the latest first. Broken journals are skipped."""
    here, left = git_folder(repository), most_facts
    alike = [
        run
        for run in runs_by_start(state_dir)
        if run.state is not None
        and run.state.simulated == simulated
        and run.state.rehearsal is None
        and run.state.relanding is None
    ]
    mine = (run for run in reversed(alike) if run.is_of(here))
    for run, _ in zip(mine, range(most_runs), strict=False):
        with suppress(FleetError):
            with Journal(run.folder.journal) as journal:
                facts = journal.length
            if (kept := _kept(run.folder, facts)) is not None:
                yield kept
                continue
            left -= facts
            if left < 0:
                return
            state = run.folder.state()
            found = PastRun(facts=facts, tallies=tuple(state.tallies.values()), landed=tuple(landed_subtasks(state)))
            if state.ended:
                _keep(run.folder, found)
            yield found


def _kept(folder: RunFolder, facts: int) -> PastRun | None:
    """The stored evidence of a run, if its journal has not grown since."""
    try:
        kept = PastRun.model_validate_json((folder.path / KEPT).read_bytes())
    except (OSError, ValidationError):
        return None
    return kept if kept.facts == facts else None


def _keep(folder: RunFolder, run: PastRun) -> None:
    with suppress(OSError):  # the journal is read again next time
        (folder.path / KEPT).write_text(run.model_dump_json(), encoding="utf-8")


def _sum(one: f.RungTally, other: f.RungTally) -> f.RungTally:
    failed = {kind: one.failed.get(kind, 0) + other.failed.get(kind, 0) for kind in {**one.failed, **other.failed}}
    added = {
        "landed": one.landed + other.landed,
        "failed": failed,
        "priced": one.priced + other.priced,
        "dollars": one.dollars + other.dollars,
    }
    return one.model_copy(update=added)
