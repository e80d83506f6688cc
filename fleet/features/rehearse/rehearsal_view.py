"""The views of `fleet rehearse`: whether the tree matches history, results of the gate, and recommended settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.facts import facts as f
from fleet.core.facts.facts import RehearsalNote
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import SubtaskState
from fleet.features.rehearse.replay_plan import commit_of

MIB = 1024**2
HOUR_S = 3600.0
SUBTASK_S = 300.0
"""The assumed time of an agent per subtask."""
OWN_CHECKS = 3
"""The assumed number of gate runs by the agent per subtask."""
MOST_WORKERS = 1000
SPARE = 0.8  # the fraction of memory and disk for workers
TIMEOUT_PARTS = 10  # the timeout of the gate, as a multiple of its duration
LEAST_TIMEOUT_S = 60.0
SLOW_GATE_S = 60.0
LEAST_PEAK_MIB = 64  # the assumed minimum of memory for a gate run
LEAST_DISK_MIB = 16  # the assumed minimum of disk space for a worktree


@dataclass(frozen=True, slots=True)
class MachineView:
    """The resources of the machine."""

    cores: int
    memory_bytes: int
    free_disk_bytes: int


@dataclass(frozen=True, slots=True)
class RehearsalOutcome:
    """The result of the run compared with history."""

    head: Sha
    """The last commit to replay."""
    differing: tuple[str, ...]
    """The paths that differ between the trees."""
    clean: bool
    """Whether the run left no branch in the user's repository, except with `--branch`."""


@dataclass(frozen=True, slots=True)
class PastCommitNote:
    """A note about a past commit."""

    subtask: SubtaskId | None
    """The subtask that replays it, or null for the base commit of the rehearsal."""
    commit: Sha
    """The commit ID."""
    title: str
    """The first line of its message."""
    text: str
    """The text of the note."""


@dataclass(frozen=True, slots=True)
class GateView:
    """Measurements of the gate in the sandbox."""

    command: str
    """The command."""
    tries: int
    """The number of times it ran on the newest commit."""
    green: int
    """The number of times it passed."""
    flaky: bool
    """Whether its results differed on the same tree, on the newest commit or elsewhere in the run."""
    seconds: float
    """The median duration."""
    processor_s: float
    """The maximum CPU time in seconds."""
    peak_mib: int
    """The maximum memory usage."""
    disk_mib: int
    """The disk space that it uses in a worktree."""
    setup_s: float
    """The duration of the setup command without a cache."""
    output: str
    """The end of the output of a failed run."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A recommended setting."""

    key: str
    """The configuration key."""
    value: str | float | bool
    """The value."""
    reason: str
    """The measurement it is based on."""


@dataclass(frozen=True, slots=True)
class RehearsalView:
    """The result of a rehearsal."""

    run: RunId
    """Name of the run."""
    rehearsal: bool
    """Always true: these figures are not from a real run."""
    repository: str
    """Path of the repository."""
    base: Sha
    """The commit that the rehearsal starts from."""
    head: Sha
    """The last replayed commit."""
    tip: Sha
    """The final commit of the integration branch."""
    commits: int
    """The number of commits to replay."""
    landed: int
    """The number of commits that landed."""
    tree_equal: bool
    """Whether the resulting tree matches the tree of `head`."""
    differing: tuple[str, ...]
    """The paths that differ between the trees."""
    by_hand: tuple[PastCommitNote, ...]
    """Commits that workers are not allowed to make, or that came out different. The rehearsal made them itself."""
    red_in_history: tuple[PastCommitNote, ...]
    """Commits on which the gate also fails in history."""
    flaky: tuple[PastCommitNote, ...]
    """Commits on which the gate failed and then passed."""
    attempts: int
    """The number of attempts."""
    engines: int
    """The number of engine starts. It is more than one after a resume."""
    seconds: float
    """Duration of the rehearsal."""
    processor_s: float | None
    """The CPU time of fleet and its sandboxes, or null after a resume, because other processes used some of it."""
    landed_an_hour: float
    """The number of commits per hour."""
    gate: GateView | None
    """The measurements of the gate, or null without a gate."""
    workers: int
    """The number of workers that this machine can run."""
    limited_by: str
    """The limiting resource: processor, memory, disk, the merge queue, or the limit of `run.workers`."""
    settings: tuple[Setting, ...] = field(default=())
    """The recommended settings."""
    clean: bool = True
    """Whether the rehearsal left no branch in the repository, except with `--branch`."""

    @property
    def succeeded(self) -> bool:
        return self.tree_equal and self.landed == self.commits and self.clean


def rehearsal_view(
    state: RunState,
    outcome: RehearsalOutcome,
    machine: MachineView,
    *,
    now: float,
    processor_s: float | None,
) -> RehearsalView:
    """Build the result, with recommended settings."""
    landed = sum(subtask.landed is not None for subtask in state.subtasks.values())
    seconds = max(state.seconds(now), 0.001)
    gate = _gate(state)
    an_hour = round(landed / seconds * HOUR_S)
    workers, limit = fed_workers(
        machine, gate, an_hour=an_hour, processor_s=processor_s / landed if processor_s and landed else 0.0
    )
    return RehearsalView(
        run=state.run,
        rehearsal=True,
        repository=state.repository,
        base=state.base,
        head=outcome.head,
        tip=state.tip,
        commits=len(state.subtasks),
        landed=landed,
        tree_equal=not outcome.differing,
        differing=outcome.differing,
        by_hand=_notes(state, "by_hand"),
        red_in_history=_notes(state, "red"),
        flaky=_notes(state, "flaky"),
        attempts=state.attempts,
        engines=state.epoch,
        seconds=round(seconds, 1),
        processor_s=round(processor_s, 1) if processor_s is not None else None,
        landed_an_hour=an_hour,
        gate=gate,
        workers=workers,
        limited_by=limit,
        settings=_settings(gate, workers, limit),
        clean=outcome.clean,
    )


def _notes(state: RunState, what: RehearsalNote) -> tuple[PastCommitNote, ...]:
    """Return the notes of a kind in the order of history."""
    place = {id_: number for number, id_ in enumerate(state.plan.ids)}
    notes = sorted(
        (note for note in state.rehearsed if note.what == what),
        key=lambda note: place.get(note.subtask, -1) if note.subtask is not None else -1,
    )
    return tuple(_note(state, note.subtask, note.text) for note in notes)


def _note(state: RunState, id_: SubtaskId | None, text: str) -> PastCommitNote:
    if id_ is None:
        return PastCommitNote(None, state.base, "the base commit of the rehearsal", text)
    spec = state.spec(id_)
    return PastCommitNote(id_, commit_of(spec) or Sha(""), spec.title, text)


def _gate(state: RunState) -> GateView | None:
    tried = state.gate_tried
    if tried is None or not tried.trials:
        return None
    trials = tried.trials
    green = sum(trial.passed for trial in trials)
    seconds = sorted(trial.seconds for trial in trials)
    return GateView(
        command=tried.command,
        tries=len(trials),
        green=green,
        flaky=0 < green < len(trials) or bool(_notes(state, "flaky")),
        seconds=round(seconds[len(seconds) // 2], 2),
        processor_s=round(max(trial.processor_s for trial in trials), 2),
        peak_mib=ceil(max(trial.peak_bytes for trial in trials) / MIB),
        disk_mib=ceil(max(trial.disk_bytes for trial in trials) / MIB),
        setup_s=round(tried.setup_s, 2),
        output=next((trial.output for trial in trials if not trial.passed), ""),
    )


def fed_workers(machine: MachineView, gate: GateView | None, *, an_hour: float, processor_s: float) -> tuple[int, str]:
    """Return how many workers the machine can run, and the limiting resource: processor, memory, disk or merge queue.

    The gate, the CPU time of fleet per subtask (`processor_s`) and the landings per hour are measured. The behavior of
    agents is assumed: they take `SUBTASK_S` per subtask and run the gate `OWN_CHECKS` times.
    """
    gate_s, gate_processor_s = (gate.seconds, gate.processor_s) if gate is not None else (0.0, 0.0)
    busy = processor_s + (OWN_CHECKS + 1) * gate_processor_s
    peak = max(gate.peak_mib if gate is not None else 0, LEAST_PEAK_MIB) * MIB
    left = max(gate.disk_mib if gate is not None else 0, LEAST_DISK_MIB) * MIB
    checking = min(1.0, OWN_CHECKS * gate_s / SUBTASK_S)
    limits = {
        "processor": machine.cores * SUBTASK_S / busy if busy else MOST_WORKERS,
        "memory": SPARE * machine.memory_bytes / (peak * checking) if checking else MOST_WORKERS,
        "disk": SPARE * machine.free_disk_bytes / left,
        "merge queue": an_hour * SUBTASK_S / HOUR_S,
    }
    limit = min(limits, key=lambda name: limits[name])
    if limits[limit] >= MOST_WORKERS:
        return MOST_WORKERS, "own limit of 1000"
    return max(1, int(limits[limit])), limit


def _settings(gate: GateView | None, workers: int, limit: str) -> tuple[Setting, ...]:
    """Return the recommended settings."""
    settings = [Setting("run.workers", workers, f"the capacity of this machine, limited by its {limit}")]
    if gate is None:
        return tuple(settings)
    if gate.flaky:
        settings.append(Setting("checks.reruns", 2, "the gate is flaky: its results differ on the same tree"))
    timeout = max(LEAST_TIMEOUT_S, ceil(gate.seconds * TIMEOUT_PARTS / 60) * 60.0)
    settings.append(
        Setting(
            "checks.gate_timeout_s",
            timeout,
            f"the gate takes {gate.seconds:g} s on this machine, and is stopped after this time if it hangs",
        )
    )
    if gate.seconds > SLOW_GATE_S:
        reason = "the gate is slow, so it only tests the final tree of each batch"
        settings.append(Setting("landing.every_commit_within_s", 0.0, reason))
    return tuple(settings)


# ---- past tasks view -------------------------------------------------------------------------------------------------
# The result of a rehearsal for real: the redone commits, the results of the original tests, and the cost.


@dataclass(frozen=True, slots=True)
class RedoneCommit:
    """A past commit that a worker redid from its message."""

    subtask: SubtaskId
    """The subtask."""
    commit: Sha
    """The ID of the original commit."""
    title: str
    """The first line of its message."""
    tests: int
    """The number of changed test files, if the gate fails on the parent with them, or 0 if only the gate judges it."""
    tried: bool
    """Whether a worker attempted it."""
    landed: bool
    """Whether a worker finished it and the gate passed on the result."""
    passed: bool | None
    """Whether the result passes the original tests, or null if it did not land or there are none."""
    attempts: int
    """The number of attempts."""
    worker: str | None
    """The worker of the last attempt, or null if it was not attempted."""
    model: str | None
    """The model, or null for a program."""
    dollars: float | None
    """The cost of its attempts, or null if the price of a model is unknown."""
    seconds: float
    """The duration of its attempts."""
    why: str
    """Why it did not land, or the failures of the original tests."""
    result: Sha | None
    """The worker's commit, on top of the original parent. To show it, run `fleet show SUBTASK`."""


@dataclass(frozen=True, slots=True)
class WorkerScore:
    """The results of one worker with one model."""

    worker: str
    """The worker."""
    model: str | None
    """The model, or null for a program."""
    commits: int
    """The number of commits that it attempted last."""
    landed: int
    """The number of these commits that landed."""
    with_tests: int
    """The number of these commits with their own tests."""
    passed: int
    """The number of these commits that pass their own tests."""
    attempts: int
    """The number of all attempts at these commits."""
    dollars: float | None
    """The cost of these attempts, or null if a price is unknown."""
    seconds: float
    """The duration of these attempts."""


@dataclass(frozen=True, slots=True)
class LeftOutCommit:
    """A past commit that is not suitable for judging a worker."""

    commit: Sha
    """The commit ID."""
    title: str
    """The first line of its message."""
    why: str
    """Why it was left out."""


@dataclass(frozen=True, slots=True)
class PastTasksView:
    """The result of a rehearsal for real."""

    run: RunId
    """Name of the run."""
    rehearsal: bool
    """Always true."""
    for_real: bool
    """Always true: planner and workers redid the commits from their messages."""
    simulated: bool
    """Whether the model was simulated. The results don't apply to real models."""
    repository: str
    """The repository."""
    base: Sha
    """The parent of the oldest redone commit."""
    head: Sha
    """The newest commit considered."""
    gate: str
    """The gate."""
    redone: tuple[RedoneCommit, ...]
    """The commits to redo, the oldest first."""
    left_out: tuple[LeftOutCommit, ...]
    """The commits that are not suitable for judging a worker."""
    tried: int
    """The number of commits that a worker attempted."""
    landed: int
    """The number of commits that landed."""
    with_tests: int
    """The number of attempted commits with their own tests."""
    passed: int
    """The number of these commits whose result passes the original tests."""
    by_gate: int
    """The number of attempted commits that only the gate judges."""
    by_gate_landed: int
    """The number of these commits that landed."""
    workers: tuple[WorkerScore, ...]
    """The results by worker and model of the last attempt."""
    attempts: int
    """The number of all attempts."""
    dollars: float | None
    """The total cost, or null if a price is unknown."""
    planner_dollars: float | None
    """The planner's part of the cost."""
    dollars_each: float | None
    """The cost per attempted commit, including the planner."""
    budget_dollars: float | None
    """The budget."""
    seconds: float
    """The duration of the run, without the checks before and after it."""
    ending: f.Ending | None
    """How the run ended."""
    ending_why: str
    """Why the run ended."""


def past_tasks_view(state: RunState, now: float) -> PastTasksView:
    """Build the result of a rehearsal for real."""
    rehearsal = state.rehearsal or f.Rehearsal(for_real=True)
    redone = tuple(_redone(state, task, now) for task in rehearsal.tasks)
    tried = [each for each in redone if each.tried]
    tested = [each for each in tried if each.tests]
    gated = [each for each in tried if not each.tests]
    dollars = state.spent.dollars
    planner = sum((state.spend.get(role, Spend()) for role in ("planner", "sub_planner")), Spend())
    return PastTasksView(
        run=state.run,
        rehearsal=True,
        for_real=True,
        simulated=state.simulated,
        repository=state.repository,
        base=state.base,
        head=rehearsal.head,
        gate=state.gate_command or "",
        redone=redone,
        left_out=tuple(LeftOutCommit(each.commit, each.title, each.why) for each in rehearsal.left_out),
        tried=len(tried),
        landed=_count(tried, lambda each: each.landed),
        with_tests=len(tested),
        passed=_count(tested, lambda each: bool(each.passed)),
        by_gate=len(gated),
        by_gate_landed=_count(gated, lambda each: each.landed),
        workers=_by_worker(tried),
        attempts=state.attempts,
        dollars=_rounded(dollars),
        planner_dollars=_rounded(planner.dollars),
        dollars_each=_rounded(dollars / len(tried)) if dollars is not None and tried else None,
        budget_dollars=state.policy.budget_dollars,
        seconds=round(state.seconds(now), 1),
        ending=state.ending,
        ending_why=state.ending_why,
    )


def _redone(state: RunState, task: f.PastTask, now: float) -> RedoneCommit:
    subtask, score = state.subtasks[task.subtask], state.scored.get(task.subtask)
    last = subtask.last
    landed = subtask.has_own_commit
    return RedoneCommit(
        subtask=task.subtask,
        commit=task.commit,
        title=state.spec(task.subtask).title,
        tests=len(task.tests),
        tried=last is not None,
        landed=landed,
        passed=score.passed if score is not None and score.failure is None else None,
        attempts=len(subtask.attempts),
        worker=last.worker if last is not None else None,
        model=last.model if last is not None else None,
        dollars=_rounded(subtask.spend.dollars),
        seconds=round(state.seconds_at(subtask, now), 1),
        why=_score_text(score) if landed else _failure_text(subtask),
        result=last.commit if last is not None and landed else None,
    )


def _failure_text(subtask: SubtaskState) -> str:
    if subtask.unchanged:
        return "the worker made no changes"
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
    return failures[-1].summary if failures else subtask.dropped or ""


def _score_text(score: f.ResultScored | None) -> str:
    """Return the relevant lines of a failed gate, or the missing tests."""
    if score is None or score.passed:
        return ""
    if score.failure is not None:
        return f"could not run the original tests: {score.failure.summary}"
    red = [run for run in score.checks if not run.fine]
    lines = [line for run in red for line in (run.causes or tuple(run.output.strip().splitlines()[-1:]))]
    return "\n".join(lines) or f"tests are missing: {', '.join(score.lost)}"


def _by_worker(tried: Sequence[RedoneCommit]) -> tuple[WorkerScore, ...]:
    kinds = sorted({(each.worker or "", each.model or "") for each in tried})
    return tuple(
        _of_worker(worker, model, [each for each in tried if (each.worker or "", each.model or "") == (worker, model)])
        for worker, model in kinds
    )


def _of_worker(worker: str, model: str, own: Sequence[RedoneCommit]) -> WorkerScore:
    prices = [each.dollars for each in own]
    known = [price for price in prices if price is not None]
    return WorkerScore(
        worker=worker,
        model=model or None,
        commits=len(own),
        landed=_count(own, lambda each: each.landed),
        with_tests=_count(own, lambda each: each.tests > 0),
        passed=_count(own, lambda each: bool(each.passed)),
        attempts=sum(each.attempts for each in own),
        dollars=_rounded(sum(known)) if len(known) == len(prices) else None,
        seconds=round(sum(each.seconds for each in own), 1),
    )


def _count(commits: Sequence[RedoneCommit], is_one: Callable[[RedoneCommit], bool]) -> int:
    return sum(map(is_one, commits))


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 6)
