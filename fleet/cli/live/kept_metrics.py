"""What metrics count of runs that were deleted: `fleet clean` adds a run to one file before its folder goes.

Counters then continue where they were, whatever is cleaned and however often the exporter is started again.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dashboards.metrics.tally import Tally
from fleet.core.base.output import parse_json
from fleet.core.history.evolve import Follower
from fleet.errors import FleetError
from fleet.read.metric_figures import Transition
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

FILE, LOCK, DAMAGED = "metrics.json", "metrics.lock", "metrics.damaged.json"
VERSION = 1


def keep_metrics(folder: RunFolder, state_dir: Path) -> None:
    """Count a run that is about to be deleted. Counted again after a crash, it still counts once."""
    with _locked(state_dir):
        tally, counted = _read(state_dir)
        mark = _mark(folder)
        if mark in counted:
            return
        try:
            with Journal(folder.journal) as journal:
                Follower(lambda before, fact, after: tally.take(Transition(before, fact, after))).catch_up(journal)
        except (FleetError, ValueError, KeyError):  # what can't be read was not counted before either
            return
        still = [each for each in counted if (state_dir / "runs" / each.partition("@")[0]).is_dir()]
        _write(state_dir, tally, [*still, mark])


def kept_metrics(state_dir: Path) -> tuple[Tally, frozenset[str]]:
    """What was counted of deleted runs, and the marks of those whose folder may still be there."""
    if not (state_dir / FILE).exists():
        return Tally(), frozenset()
    with _locked(state_dir):
        return _read(state_dir)


def was_counted(folder: RunFolder, counted: frozenset[str]) -> bool:
    """Whether a run was counted already, and only its folder is still there: a clean-up was killed."""
    return any(each.startswith(f"{folder.run}@") for each in counted) and _mark(folder) in counted


def _mark(folder: RunFolder) -> str:
    """A run, and which of the runs that ever had its name: the time of its first fact says so."""
    try:
        with Journal(folder.journal) as journal:
            first = journal.facts(0, 1)
    except (FleetError, ValueError, KeyError):
        return folder.run
    return f"{folder.run}@{first[0][1].at if first else 0!r}"


def _read(state_dir: Path) -> tuple[Tally, frozenset[str]]:
    path = state_dir / FILE
    try:
        document = parse_json(path.read_bytes())
        return Tally.loaded(document["tally"]), frozenset(document["counted"])
    except FileNotFoundError:
        return Tally(), frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        path.replace(state_dir / DAMAGED)
        return Tally(), frozenset()


def _write(state_dir: Path, tally: Tally, counted: list[str]) -> None:
    draft = state_dir / f"{FILE}.new"
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, "tally": tally.dump(), "counted": sorted(counted)}, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(state_dir / FILE)


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    with (state_dir / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
