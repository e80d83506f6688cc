"""What earlier runs of a repository say about rungs and planners, and what whole runs cost and took.

What an ended run says is kept beside its journal, so that each journal is replayed for this once.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fleet.core.state import facts as f
from fleet.core.state.state import RungKey, RunState
from fleet.errors import FleetError
from fleet.runs.journal import Journal
from fleet.runs.repository import git_folder
from fleet.runs.run_folder import RunFolder, runs_by_start

MOST_RUNS = 20
MOST_FACTS = 30_000  # of all journals that are replayed at once: that takes some seconds
KEPT = "evidence.json"


class PastRun(BaseModel):
    """What one earlier run says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    facts: int
    """The length of its journal when this was read."""
    ended: bool
    commits: int
    """How many commits landed."""
    given: bool
    """Whether it started with a plan."""
    subtasks: int
    dollars: float | None
    minutes: float
    gate_s: float | None
    """What its gate took on its base; None if there was none."""
    tallies: tuple[f.RungTally, ...]
    calls: tuple[f.CallTally, ...]


def past_runs(state_dir: Path, repository: Path, *, simulated: bool) -> list[PastRun]:
    """The latest runs of the same kind, the last one first."""
    return list(_past_runs(state_dir, repository, simulated=simulated))


def past_evidence(
    state_dir: Path, repository: Path, *, simulated: bool, assumed: f.Assumed | None = None
) -> f.EvidenceRead:
    """What the latest runs of the same kind say, with what is assumed besides."""
    return evidence_of(past_runs(state_dir, repository, simulated=simulated), assumed)


def evidence_of(runs: Iterable[PastRun], assumed: f.Assumed | None = None) -> f.EvidenceRead:
    """What these runs say, added up."""
    telling = [run for run in runs if run.tallies or run.calls]
    tallies: dict[RungKey, f.RungTally] = {}
    for tally in (tally for run in telling for tally in run.tallies):
        key = (tally.worker, tally.model, tally.effort, tally.size)
        tallies[key] = _sum(tallies[key], tally) if key in tallies else tally
    calls = tuple(tally for run in telling for tally in run.calls)
    return f.EvidenceRead(
        at=time.time(), runs=len(telling), tallies=tuple(tallies.values()), calls=calls, assumed=assumed
    )


def past_run(state: RunState, facts: int) -> PastRun:
    """What a run says, whose journal has so many facts."""
    return PastRun(
        facts=facts,
        ended=state.ended,
        commits=state.commits,
        given=state.given,
        subtasks=len(state.plan.subtasks),
        dollars=state.spent.dollars,
        minutes=state.seconds(state.last_at) / 60,
        gate_s=sum(state.gate.values()) if state.gate else None,
        tallies=tuple(state.tallies.values()),
        calls=state.calls,
    )


def _past_runs(state_dir: Path, repository: Path, *, simulated: bool) -> Iterator[PastRun]:
    """As many as may be read. A broken journal says nothing."""
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
                facts = journal.length
            if (kept := _kept(run.folder, facts)) is not None:
                yield kept
                continue
            left -= facts
            if left < 0:
                return
            found = past_run(run.folder.state(), facts)
            if found.ended:
                _keep(run.folder, found)
            yield found


def _kept(folder: RunFolder, facts: int) -> PastRun | None:
    """What was kept of a run, if its journal has not grown since."""
    try:
        kept = PastRun.model_validate_json((folder.path / KEPT).read_bytes())
    except (OSError, ValidationError):
        return None
    return kept if kept.facts == facts else None


def _keep(folder: RunFolder, run: PastRun) -> None:
    with suppress(OSError):  # then it is read from the journal next time, too
        (folder.path / KEPT).write_text(run.model_dump_json(), encoding="utf-8")


def _sum(one: f.RungTally, other: f.RungTally) -> f.RungTally:
    failed = {kind: one.failed.get(kind, 0) + other.failed.get(kind, 0) for kind in {**one.failed, **other.failed}}
    added = {
        "landed": one.landed + other.landed,
        "failed": failed,
        "priced": one.priced + other.priced,
        "dollars": one.dollars + other.dollars,
        "timed": one.timed + other.timed,
        "seconds": one.seconds + other.seconds,
    }
    return one.model_copy(update=added)
