"""Counters, histograms and recent events over all runs, counted from their facts.

Counting starts with the first fact of each run, so that counters survive a resume or a restart of the exporter. Before
`fleet clean` deletes a run, its counts are added to a file (`dump`, `loaded`), so that counters never decrease.
"""

import fcntl
import json
import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, product
from pathlib import Path
from typing import Any, Self

from dashboards.metrics.catalog import CALL_REASONS, LABELS, METRICS, MOST_NAMES, OTHER, OUTCOMES, WINDOWS, Metric
from fleet.core.base.ids import RunId
from fleet.core.base.output import parse_json
from fleet.core.facts import facts as f
from fleet.core.history.evolve import Follower
from fleet.errors import FleetError
from fleet.read.follow import EndedAttempt, Step
from fleet.read.incident_view import IncidentRow, tried_strategies
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

Labels = tuple[str, ...]
RENAMED: Mapping[str, str] = {
    "fleet_gate_runs": "fleet_batches_tested",
    "fleet_node_attempts_begun": "fleet_node_attempts_started",
    "fleet_rehearsals_begun": "fleet_rehearsals_started",
    "fleet_runs_begun": "fleet_runs_started",
}
"""Counters in files of early versions, with their names today."""
_RESULTS = {"green": "passed", "red": "failed"}
RENAMED_VALUES: Mapping[str, Mapping[str, str]] = {
    "fleet_batches_tested": _RESULTS,
    "fleet_checks": _RESULTS,
    "fleet_review_findings": {"mended": "fixed"},
    "fleet_reviews": {"nothing": "passed", "faults": "failed"},
}
"""By counter, the values of its last label in files of early versions, with their names today."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,63}")


@dataclass(slots=True)
class Histogram:
    """The number of values in each bucket."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> Iterator[tuple[str, int]]:
        return zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True)


def name_of(text: str) -> str:
    """An untrusted name as a label value. `other` if it is not a valid name."""
    return text if _NAME.fullmatch(text) is not None else OTHER


@dataclass(slots=True)
class Names:
    """Limits the number of label values that come from models and configurations."""

    names: set[str] = field(default_factory=set)

    def of(self, name: str) -> str:
        if name in self.names:
            return name
        if len(self.names) >= MOST_NAMES or name_of(name) != name:
            return OTHER
        self.names.add(name)
        return name


@dataclass(slots=True)
class Recent:
    """The times of events within the longest window."""

    times: list[float] = field(default_factory=list)

    def add(self, at: float) -> None:
        self.times.append(at)

    def latest(self) -> list[float]:
        """The times that are still within the longest window."""
        self.times.sort()
        return self.times[bisect_left(self.times, self.times[-1] - max(WINDOWS.values())) :] if self.times else []

    def within(self, seconds: float, now: float) -> int:
        self.times.sort()  # nearly sorted, except that journals are read one after another
        oldest = bisect_left(self.times, now - max(WINDOWS.values()))
        del self.times[:oldest]
        return bisect_left(self.times, now + 1e-9) - bisect_left(self.times, now - seconds)


class Tally:
    """Counts the facts of many runs.

    The effect of a fact depends on the state before and after it, which a `Step` holds.
    """

    def __init__(self) -> None:
        self.counters: dict[str, Counter[Labels]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}
        for metric in METRICS.values():
            if metric.kind == "counter":
                self.counters[metric.name] = Counter(dict.fromkeys(known_labels(metric), 0))
            elif metric.kind == "histogram":
                self.histograms[metric.name] = {labels: Histogram(metric.buckets) for labels in known_labels(metric)}
        self.commits = Recent()
        self.incidents: Mapping[str, Recent] = {"recovered": Recent(), "unrecovered": Recent()}
        self._workers, self._models, self.nodes = Names(), Names(), Names()
        self._verified: dict[tuple[str, str], float] = {}

    # ---- on disk

    @classmethod
    def loaded(cls, document: Mapping[str, Any]) -> Self:
        """Restore a tally from `dump`. Counters of removed metrics and histograms with other bounds are dropped."""
        tally = cls()
        for old, labels, value in document["counters"]:
            name = RENAMED.get(old, old)
            if name in tally.counters and len(labels) == len(METRICS[name].labels):
                tally.counters[name][_current_labels(name, labels)] += value
        for name, labels, bounds, counts, total in document["histograms"]:
            if name in tally.histograms and tuple(bounds) == METRICS[name].buckets:
                tally.histograms[name][tuple(labels)] = Histogram(tuple(bounds), list(counts), total)
        tally.commits.times += document["commits"]
        for outcome, recent in tally.incidents.items():
            recent.times += document["incidents"][outcome]
        tally._workers.names |= set(document["workers"])
        tally._models.names |= set(document["models"])
        tally.nodes.names |= set(document.get("nodes", ()))
        return tally

    def dump(self) -> dict[str, Any]:
        """All counts from journals, as JSON."""
        return {
            "counters": [
                [name, labels, value]
                for name, series in self.counters.items()
                for labels, value in series.items()
                if not METRICS[name].live
            ],
            "histograms": [
                [name, labels, each.bounds, each.counts, each.sum]
                for name, series in self.histograms.items()
                for labels, each in series.items()
                if not METRICS[name].live
            ],
            "commits": self.commits.latest(),
            "incidents": {outcome: recent.latest() for outcome, recent in self.incidents.items()},
            "workers": sorted(self._workers.names),
            "models": sorted(self._models.names),
            "nodes": sorted(self.nodes.names),
        }

    # ---- facts

    def take(self, step: Step) -> None:
        """Count one fact."""
        if step.is_rehearsed:  # rehearsed work must not be counted as real work
            self._count_rehearsal(step)
            if isinstance(step.fact, f.ModelCalled):  # but its model calls cost real money
                self._count_call(step.fact)
            return
        self._count("fleet_journal_facts")
        if step.is_first:
            self._count("fleet_runs_started")
            return
        if step.was_done_before:
            return
        self._count_fact(step)
        self._count_reviews(step.fact)
        self._count_incidents(step)

    def _count_rehearsal(self, step: Step) -> None:
        if step.is_first:
            self._count("fleet_rehearsals_started")
        elif isinstance(step.fact, f.RunEnded):
            self._count("fleet_rehearsals_ended", step.fact.ending)

    def observe(self, name: str, value: float, *labels: str) -> None:
        series = self.histograms[name]
        if labels not in series:
            series[labels] = Histogram(METRICS[name].buckets)
        series[labels].add(max(0.0, value))

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        self.counters[name][labels] += by  # type: ignore[assignment] # dollars are not whole numbers

    def _count_fact(self, step: Step) -> None:  # noqa: C901, PLR0912 - one case a fact
        match fact := step.fact:
            case f.EngineStarted():
                self._count("fleet_engine_starts")
            case f.RunEnded():
                self._count("fleet_runs_ended", fact.ending)
            case f.BaseChecked():
                self._count_checks(fact.checks)
            case f.PlannerCalled():
                self._count("fleet_planner_calls", _reason(fact.why))
            case f.PlannerFailed():
                self._count("fleet_planner_failures", fact.failure.kind)
            case f.PlanRevised():
                if (why := step.replanned_for) is not None:
                    self._count("fleet_replans", _reason(why))
            case f.ModelCalled():
                self._count_call(fact)
            case f.CallLost():
                self._count("fleet_model_calls_lost", fact.role)
            case f.AttemptStarted():
                self._count("fleet_attempts_started", self._workers.of(fact.worker), fact.strategy)
            case f.WorkerStarted():
                if (waited := step.worker_waited_s) is not None:
                    self.observe("fleet_attempt_wait_seconds", waited)
                self._count_node(fact.node)
            case f.NodeConnected() | f.NodeLost():
                self._count("fleet_node_losses", self.nodes.of(fact.node), by=step.losses)
            case f.AttemptVerified():
                self._verified[step.run.run, fact.subtask] = fact.at
                self._count_checks(fact.checks)
            case f.AttemptFailed():
                self._count_checks(fact.checks)
            case f.BatchFormed():
                self.observe("fleet_batch_size", len(fact.members))
                if step.is_bisecting:
                    self._count("fleet_bisects")
            case f.BatchTested():
                self._count_batch(step.run.run, fact)
            case f.Published():
                self._count("fleet_publications")
            case f.PublishFailed():
                self._count("fleet_publish_failures")
            case _:
                pass
        for attempt in step.ended:
            self._end_attempt(step.run.run, attempt)

    def _count_node(self, node: str) -> None:
        if node:
            self._count("fleet_node_attempts_started", self.nodes.of(node))

    def _count_call(self, fact: f.ModelCalled) -> None:
        who = (fact.role, self._models.of(fact.model))
        self._count("fleet_model_calls", *who)
        for kind, tokens in fact.usage.model_dump(exclude={"cache_write_1h"}).items():  # included in `cache_write`
            self._count("fleet_model_tokens", *who, kind, by=tokens)
        self._count("fleet_model_unpriced_calls", *who, by=int(fact.dollars is None))
        self._count("fleet_model_cost_dollars", *who, by=fact.dollars or 0.0)
        self.observe("fleet_model_call_seconds", fact.seconds, fact.role)

    def _count_batch(self, run: RunId, fact: f.BatchTested) -> None:
        self._count_checks(fact.checks)
        if fact.checks or fact.landed or fact.red:
            self._count("fleet_batches_tested", "failed" if fact.red else "passed")
        for member in fact.landed:
            self._count("fleet_commits_landed")
            self.commits.add(fact.at)
            verified = self._verified.pop((run, member.subtask), None)
            if verified is not None:
                self.observe("fleet_landing_seconds", fact.at - verified)

    def _count_reviews(self, fact: f.Fact) -> None:
        for settled in fact.settled if isinstance(fact, f.FindingsSettled) else ():
            self._count("fleet_review_findings", settled.result)
        for vote in fact.votes if isinstance(fact, f.ReviewVoted) else ():
            self._count("fleet_reviews", self._models.of(vote.model), "failed" if vote.findings else "passed")
            self._count("fleet_review_findings_discarded", by=vote.discarded)

    def _count_checks(self, checks: tuple[f.CheckRun, ...]) -> None:
        for check in checks:
            if check.review:
                continue
            self._count("fleet_checks", "passed" if check.passed else "failed")
            self.observe("fleet_check_seconds", check.seconds)
            if check.flaky:
                self._count("fleet_flakes")

    def _end_attempt(self, run: RunId, attempt: EndedAttempt) -> None:
        self._verified.pop((run, attempt.subtask), None)
        worker = self._workers.of(attempt.worker)
        self._count("fleet_attempts", worker, attempt.outcome)
        self.observe("fleet_attempt_seconds", attempt.seconds, worker)
        if attempt.outcome == "conflict":
            self._count("fleet_conflicts")

    def _count_incidents(self, step: Step) -> None:
        for kind in step.opened:
            self._count("fleet_incidents_opened", kind)
        for incident in step.closed:
            if incident.closed_at is not None:
                self._close_incident(incident, incident.closed_at)

    def _close_incident(self, incident: IncidentRow, at: float) -> None:
        outcome = "recovered" if incident.recovered else "unrecovered"
        self._count("fleet_incidents_closed", incident.kind, outcome)
        self.incidents[outcome].add(at)
        for strategy, recovered in tried_strategies(incident).items():
            self._count("fleet_incidents_by_strategy", strategy, "recovered" if recovered else "unrecovered")
        if incident.recovered and incident.strategy is not None:
            self._count("fleet_recoveries", incident.strategy)
            self.observe("fleet_incident_seconds", at - incident.opened_at)


def known_labels(metric: Metric) -> Iterator[Labels]:
    """The series of a metric with known label values. They start at zero, so that the first increment is visible."""
    values = [
        OUTCOMES.get(metric.name, LABELS[label]) if label == "outcome" else LABELS[label] for label in metric.labels
    ]
    return product(*values) if not any(isinstance(each, str) for each in values) else iter(())


def _current_labels(name: str, labels: list[str]) -> Labels:
    """Translate the last label of a counter from a file of an early version."""
    renamed = RENAMED_VALUES.get(name, {})
    return (*labels[:-1], *(renamed.get(label, label) for label in labels[-1:]))


def _reason(why: str) -> str:
    return why if why in CALL_REASONS else OTHER


# ---- kept ------------------------------------------------------------------------------------------------------------
# The counts of deleted runs. `fleet clean` adds a run to a file before it deletes the folder, so that counters survive
# both cleaning and restarts of the exporter.


FILE, LOCK, DAMAGED = "metrics.json", "metrics.lock", "metrics.damaged.json"
VERSION = 1


def keep_metrics(folder: RunFolder, state_dir: Path) -> None:
    """Count a run before it is deleted. Safe to repeat after a crash."""
    with _lock(state_dir):
        tally, counted = _read(state_dir)
        mark = _mark(folder)
        if mark in counted:
            return
        try:
            with Journal(folder.journal) as journal:
                Follower(lambda before, fact, after: tally.take(Step(before, fact, after))).catch_up(journal)
        except (FleetError, ValueError, KeyError):  # unreadable runs were not counted before either
            return
        still = [each for each in counted if (state_dir / "runs" / each.partition("@")[0]).is_dir()]
        _write(state_dir, tally, [*still, mark])


def kept_metrics(state_dir: Path) -> tuple[Tally, frozenset[str]]:
    """The counts of deleted runs, and the marks of runs whose folder may still exist."""
    if not (state_dir / FILE).exists():
        return Tally(), frozenset()
    with _lock(state_dir):
        return _read(state_dir)


def was_counted(folder: RunFolder, counted: frozenset[str]) -> bool:
    """Whether a run was already counted, and a killed clean-up left its folder behind."""
    return any(each.startswith(f"{folder.run}@") for each in counted) and _mark(folder) in counted


def _mark(folder: RunFolder) -> str:
    """A key for a run: its name and the time of its first fact, because names can be reused."""
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
def _lock(state_dir: Path) -> Iterator[None]:
    with (state_dir / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
