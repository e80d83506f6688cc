"""What past runs of a repository say about rungs, and what their landed subtasks cost and took."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agents.models.client import is_simulated
from fleet.config.schema import Config
from fleet.core.facts import facts as f
from fleet.core.state.state import RungKey, RunState
from fleet.errors import FleetError
from fleet.read.costs import estimates_of, landed_subtasks
from fleet.runs.journal import Journal
from fleet.runs.run_folder import git_folder, runs_by_start

MOST_RUNS = 20
MOST_FACTS = 15_000  # of all journals that are replayed for this: that takes a second


async def read_evidence(config: Config, repository: Path) -> f.EvidenceRead:
    """What past runs of a repository say for the next one with this configuration."""
    simulated = await is_simulated(config.models.base_url)
    return past_evidence(Path(config.state.dir), repository, simulated=simulated)


def past_evidence(
    state_dir: Path, repository: Path, *, simulated: bool, most_runs: int = MOST_RUNS, most_facts: int = MOST_FACTS
) -> f.EvidenceRead:
    """What the latest runs of the same kind say, added up."""
    past = _past_runs(state_dir, repository, simulated=simulated, most_runs=most_runs, most_facts=most_facts)
    runs = [(run.tallies.values(), landed) for run in past if (landed := tuple(landed_subtasks(run))) or run.tallies]
    tallies: dict[RungKey, f.RungTally] = {}
    for tally in (tally for run, _ in runs for tally in run):
        key = (tally.worker, tally.model, tally.effort, tally.size)
        tallies[key] = _sum(tallies[key], tally) if key in tallies else tally
    estimates = estimates_of(each for _, landed in runs for each in landed)
    return f.EvidenceRead(at=time.time(), runs=len(runs), tallies=tuple(tallies.values()), estimates=estimates)


def _past_runs(
    state_dir: Path, repository: Path, *, simulated: bool, most_runs: int, most_facts: int
) -> Iterator[RunState]:
    """The last one first, as many as may be read. A broken journal says nothing."""
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
                left -= journal.length
            if left < 0:
                return
            yield run.folder.state()


def _sum(one: f.RungTally, other: f.RungTally) -> f.RungTally:
    failed = {kind: one.failed.get(kind, 0) + other.failed.get(kind, 0) for kind in {**one.failed, **other.failed}}
    added = {
        "landed": one.landed + other.landed,
        "failed": failed,
        "priced": one.priced + other.priced,
        "dollars": one.dollars + other.dollars,
    }
    return one.model_copy(update=added)
