"""What earlier runs of a repository say about the rungs of workers."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fleet.core.state import facts as f
from fleet.core.state.state import RungKey, RunState
from fleet.errors import FleetError
from fleet.runs.journal import Journal
from fleet.runs.repository import git_folder
from fleet.runs.run_folder import runs_by_start

MOST_RUNS = 20
MOST_FACTS = 30_000  # of all journals together: to read them takes some seconds


def past_evidence(state_dir: Path, repository: Path, *, simulated: bool) -> f.EvidenceRead:
    """The tallies of the latest runs that are of the same kind, added up."""
    tallies: dict[RungKey, f.RungTally] = {}
    runs = 0
    for state in _states(state_dir, repository, simulated=simulated):
        runs += bool(state.tallies)
        for key, tally in state.tallies.items():
            tallies[key] = _sum(tallies[key], tally) if key in tallies else tally
    return f.EvidenceRead(at=time.time(), runs=runs, tallies=tuple(tallies.values()))


def _states(state_dir: Path, repository: Path, *, simulated: bool) -> Iterator[RunState]:
    """The states of the latest runs, the last one first, as many as may be read. A broken journal says nothing."""
    here, left = git_folder(repository), MOST_FACTS
    alike = [
        run
        for run in runs_by_start(state_dir)
        if run.state is not None
        and run.state.simulated == simulated
        and run.state.rehearsal is None
        and run.state.relanding is None
    ]
    mine = (run for run in reversed(alike) if run.is_of(here))
    for run, _ in zip(mine, range(MOST_RUNS), strict=False):
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
