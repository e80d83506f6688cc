"""What a rehearsal shows: whether the tree is history's, how the gate does in the box, and what to set."""

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
"""How long an agent with a model is assumed to work on a subtask."""
OWN_CHECKS = 3
"""How often it is assumed to run the gate itself meanwhile."""
MOST_WORKERS = 1000
SPARE = 0.8  # of memory and disk, what workers may use
TIMEOUT_PARTS = 10  # the limit of the gate, in times of its longest run
LEAST_TIMEOUT_S = 60.0
SLOW_GATE_S = 60.0
LEAST_PEAK_MIB = 64  # of memory that a run of the gate is expected to need at least
LEAST_DISK_MIB = 16  # of disk that a worktree is expected to need at least


@dataclass(frozen=True, slots=True)
class Machine:
    """What the machine has."""

    cores: int
    memory_bytes: int
    free_disk_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the run made, compared with history."""

    head: Sha
    """The last commit that was to be replayed."""
    differing: tuple[str, ...]
    """The paths in which the trees differ."""
    clean: bool
    """Whether the user's repository has no branch but those that were asked for."""


@dataclass(frozen=True, slots=True)
class PastCommitNote:
    """Something about a commit of history."""

    subtask: SubtaskId | None
    """The subtask that replays it; null for the commit that the rehearsal starts from."""
    commit: Sha
    """Its id."""
    title: str
    """The first line of its message."""
    text: str
    """What was found out about it."""


@dataclass(frozen=True, slots=True)
class GateView:
    """The gate in the box."""

    command: str
    """The command."""
    tries: int
    """How often it was run on the newest commit."""
    green: int
    """How often it passed."""
    flaky: bool
    """Whether its answers differed on one tree, there or anywhere in the run."""
    seconds: float
    """The middle one."""
    processor_s: float
    """The most seconds of processor that one of them took."""
    peak_mib: int
    """The most memory that it was seen to use."""
    disk_mib: int
    """What it leaves in a worktree."""
    setup_s: float
    """What the set-up takes, where it has not been done before."""
    output: str
    """The end of its output where it failed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key to set, and why."""

    key: str
    """The key of the configuration."""
    value: str | float | bool
    """Its value."""
    reason: str
    """What was measured that speaks for it."""


@dataclass(frozen=True, slots=True)
class RehearsalView:
    """A rehearsal as a whole."""

    run: RunId
    rehearsal: bool
    """Always true: no figure of it is one of a real run."""
    repository: str
    base: Sha
    """The commit that it starts from."""
    head: Sha
    """The last commit that is replayed."""
    tip: Sha
    """Where the integration branch ended."""
    commits: int
    """Commits to be replayed."""
    landed: int
    """Commits that landed."""
    tree_equal: bool
    """Whether the tree is the one that history has after `head`."""
    differing: tuple[str, ...]
    """The paths in which the trees differ."""
    by_hand: tuple[PastCommitNote, ...]
    """Commits that no worker may make, or that come out different: the rehearsal made them itself."""
    red_in_history: tuple[PastCommitNote, ...]
    """Commits whose gate fails in any case."""
    flaky: tuple[PastCommitNote, ...]
    """Commits on which the gate failed and then passed."""
    attempts: int
    """Attempts that were started."""
    engines: int
    """Starts of an engine: more than one after a resume."""
    seconds: float
    processor_s: float | None
    """What fleet and its boxes used; null after a resume: other processes used some of it."""
    landed_an_hour: float
    """At the pace of this rehearsal."""
    gate: GateView | None
    """Null without a gate."""
    workers: int
    """How many workers this machine can run."""
    limited_by: str
    """What is scarce: processor, memory, disk, the merge queue, or the limit of `run.workers`."""
    settings: tuple[Setting, ...] = field(default=())
    """What to set, each with its reason."""
    clean: bool = True
    """Whether no branch was left in the repository but one that was asked for."""

    @property
    def succeeded(self) -> bool:
        return self.tree_equal and self.landed == self.commits and self.clean


def rehearsal_view(
    state: RunState,
    outcome: Outcome,
    machine: Machine,
    *,
    now: float,
    processor_s: float | None,
) -> RehearsalView:
    """The whole result, with advice."""
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
    """In the order of history."""
    place = {id_: number for number, id_ in enumerate(state.plan.ids)}
    notes = sorted(
        (note for note in state.rehearsed if note.what == what),
        key=lambda note: place.get(note.subtask, -1) if note.subtask is not None else -1,
    )
    return tuple(_note(state, note.subtask, note.text) for note in notes)


def _note(state: RunState, id_: SubtaskId | None, text: str) -> PastCommitNote:
    if id_ is None:
        return PastCommitNote(None, state.base, "the commit that the rehearsal starts from", text)
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


def fed_workers(machine: Machine, gate: GateView | None, *, an_hour: float, processor_s: float) -> tuple[int, str]:
    """How many workers the machine can run, and what limits them: the least of processor, memory, disk and landing.

    Measured are the gate, what fleet itself used for a subtask (`processor_s`), and what landed in an hour. Assumed is
    what agents do: they take `SUBTASK_S` for a subtask and run the gate `OWN_CHECKS` times meanwhile.
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
    """What to set, each with what was measured."""
    settings = [Setting("run.workers", workers, f"what this machine can run, limited by its {limit}")]
    if gate is None:
        return tuple(settings)
    if gate.flaky:
        settings.append(Setting("checks.reruns", 2, "the gate is flaky: its results differ on the same tree"))
    timeout = max(LEAST_TIMEOUT_S, ceil(gate.seconds * TIMEOUT_PARTS / 60) * 60.0)
    settings.append(
        Setting(
            "checks.gate_timeout_s",
            timeout,
            f"the gate takes {gate.seconds:g} s here; if it hangs, it is stopped after this time",
        )
    )
    if gate.seconds > SLOW_GATE_S:
        reason = "the gate is slow: only the tree of what lands together is tested"
        settings.append(Setting("landing.every_commit_within_s", 0.0, reason))
    return tuple(settings)


# ---- past tasks view -------------------------------------------------------------------------------------------------
# What a rehearsal for real shows: the commits that workers did again, what history's tests say, and the cost.


@dataclass(frozen=True, slots=True)
class RedoneCommit:
    """A commit of history that a worker did again from its message."""

    subtask: SubtaskId
    """The subtask."""
    commit: Sha
    """Its id in history."""
    title: str
    """The first line of its message."""
    tests: int
    """How many test files it changed, if the gate is red on its parent with them; 0: only the gate judges it."""
    tried: bool
    """Whether a worker began with it."""
    landed: bool
    """Whether a worker finished it and the gate was green on the result."""
    passed: bool | None
    """Whether the result passes history's tests; null: it did not land, or there are none."""
    attempts: int
    """Attempts at it."""
    worker: str | None
    """The worker of the last attempt; null: it was not tried."""
    model: str | None
    """Its model; null for a program."""
    dollars: float | None
    """What its attempts cost; null where the price of a model is not known."""
    seconds: float
    """How long they took."""
    why: str
    """Why it did not land, or what history's tests said of it."""
    result: Sha | None
    """The worker's commit, on history's parent: `fleet show SUBTASK` shows it."""


@dataclass(frozen=True, slots=True)
class WorkerScore:
    """What one worker with one model did."""

    worker: str
    """The worker."""
    model: str | None
    """The model; null for a program."""
    commits: int
    """Commits whose last attempt was its."""
    landed: int
    """Those of them that landed."""
    with_tests: int
    """Those of them that have tests of their own."""
    passed: int
    """Those of these that pass them."""
    attempts: int
    """All attempts at these commits."""
    dollars: float | None
    """What they cost; null where a price is not known."""
    seconds: float
    """How long they took."""


@dataclass(frozen=True, slots=True)
class LeftOutCommit:
    """A commit of history that could judge no worker here."""

    commit: Sha
    """Its id."""
    title: str
    """The first line of its message."""
    why: str
    """Why it was left out."""


@dataclass(frozen=True, slots=True)
class PastTasksView:
    """A rehearsal for real as a whole."""

    run: RunId
    rehearsal: bool
    """Always true."""
    for_real: bool
    """Always true: planner and workers did the commits again from their messages."""
    simulated: bool
    """Whether the model was the simulated one, which says nothing about any other."""
    repository: str
    """The repository."""
    base: Sha
    """The parent of the oldest commit that was done again."""
    head: Sha
    """The newest commit that was looked at."""
    gate: str
    """The gate."""
    redone: tuple[RedoneCommit, ...]
    """The commits that were to be done again, the oldest first."""
    left_out: tuple[LeftOutCommit, ...]
    """Those that could judge no worker."""
    tried: int
    """Commits that a worker began with."""
    landed: int
    """Commits that landed."""
    with_tests: int
    """Commits with tests of their own that were tried."""
    passed: int
    """Those of them whose result passes history's tests."""
    by_gate: int
    """Tried commits that only the gate can judge."""
    by_gate_landed: int
    """Those of them that landed."""
    workers: tuple[WorkerScore, ...]
    """By the worker and the model of the last attempt."""
    attempts: int
    """All attempts."""
    dollars: float | None
    """What everything cost; null where a price is not known."""
    planner_dollars: float | None
    """What the planner cost of it."""
    dollars_each: float | None
    """Of a commit that was tried, the planner's share included."""
    budget_dollars: float | None
    """The budget."""
    seconds: float
    """How long the run took, without the checks before and after it."""
    ending: f.Ending | None
    """How the run ended."""
    ending_why: str
    """Why."""


def past_tasks_view(state: RunState, now: float) -> PastTasksView:
    """The whole result."""
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
        return "nothing was changed"
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
    return failures[-1].summary if failures else subtask.dropped or ""


def _score_text(score: f.ResultScored | None) -> str:
    """The lines that matter of a red gate, or what is missing."""
    if score is None or score.passed:
        return ""
    if score.failure is not None:
        return f"it could not be judged: {score.failure.summary}"
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
