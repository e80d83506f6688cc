"""What a rehearsal shows: whether the tree is history's, how the gate does in the box, and what to set."""

from dataclasses import dataclass, field
from math import ceil

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.replay import commit_of
from fleet.core.state.facts import RehearsalNote
from fleet.core.state.state import RunState

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
    return PastCommitNote(id_, commit_of(spec) or "", spec.title, text)


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
