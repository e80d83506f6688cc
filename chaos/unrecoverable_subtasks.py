"""Faults of a subtask that no one can remedy: each must end with a question to a human, and within the run's limits.

None of them may be reported as done or continue without end.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

from chaos.faults import EVER, NOTHING, Episode, Fault, Json, files_of, solve, subtask, wrong
from chaos.play import Outcome, Played, play
from fleet.core.policy.remedies import LADDER
from fleet.core.state.state import RunState

COMPLEX, CONTRADICTION, CONFLICT = "too complex at any size", "a contradiction", "a conflict every time"


@dataclass(frozen=True)
class Unrecoverable:
    """A row of the table in docs/internals/reliability.md that ends with a question."""

    row: int
    attempts: Callable[[str], list[Json]]
    """Actions of a subtask's workers, by its name."""


UNRECOVERABLE: dict[str, Unrecoverable] = {
    "a check that cannot pass": Unrecoverable(45, lambda name: [wrong(name)]),
    "always refused": Unrecoverable(
        25, lambda _: [{"do": "mute", "stop_reason": "refusal", "times": EVER, "text": "No."}]
    ),
    "a human who never answers": Unrecoverable(46, lambda _: [{"do": "ask", "needs": ["Which encoding?"]}]),
    "always claims done, nothing done": Unrecoverable(29, lambda _: [{"do": "claim"}]),
    "always out of bounds": Unrecoverable(
        30, lambda name: [{"do": "stray", "files": files_of(name), "outside": {"README.md": "mine\n"}}]
    ),
    COMPLEX: Unrecoverable(44, lambda _: [{"do": "too_complex"}]),
    "never a tool call": Unrecoverable(26, lambda _: [{"do": "mute", "times": EVER}]),
    "never a valid tool input": Unrecoverable(17, lambda _: [{"do": "malformed", "times": EVER}]),
    "every stream ends early": Unrecoverable(14, lambda _: [{"do": "break_stream", "how": "end", "times": EVER}]),
    CONTRADICTION: Unrecoverable(45, lambda name: [solve(name)]),
}
CONTRADICTORY_CHECKS: list[Json] = [
    {"criterion": "it exists", "run": "test -f NAME/a.txt"},
    {"criterion": "it does not exist", "run": "! test -f NAME/a.txt", "fails_before": False},
]
PART_SUFFIXES = tuple(
    "".join(f"-{part}" for part in path) for depth in (1, 2, 3) for path in product("ab", repeat=depth)
)
"""The parts of a subtask that is split again and again."""


# ---- verdicts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """Result of an unrecoverable fault."""

    kind: str
    asked: bool
    """Whether fleet asked a human, or ended immediately with a message."""
    landed: bool
    endless: bool
    within_limits: bool = True
    reason: str = ""
    """The reason that the run gave at its end."""

    @property
    def honest(self) -> bool:
        return self.asked and not self.landed and not self.endless and self.within_limits


def keeps_limits(state: RunState) -> bool:
    """Whether attempts, retries, splits and planner calls stayed within the run's policy."""
    policy, subtasks = state.policy, state.subtasks.values()
    failures = [[attempt.failure.kind for attempt in task.attempts if attempt.failure] for task in subtasks]
    counted = [[LADDER[kind].counts for kind in kinds] for kinds in failures]
    return (
        all(sum(counts) <= policy.max_attempts for counts in counted)
        and all(len(counts) - sum(counts) <= policy.max_retries + 1 for counts in counted)
        and all(task.depth <= policy.max_depth for task in subtasks)
        and all(added <= policy.max_subtasks for added in _added_by_planners(state))
        and state.planning.calls <= policy.max_planner_calls
    )


def _added_by_planners(state: RunState) -> list[int]:
    """The number of subtasks that each revision of a planner added."""
    sizes = [(version.by, len(version.plan.subtasks)) for version in state.versions]
    return [size - before for (_, before), (by, size) in pairwise([("", 0), *sizes]) if by == "planner"]


def _verdicts(run: Played, outcomes: Collection[Outcome]) -> list[Verdict]:
    within_limits = keeps_limits(run.state)
    return [
        Verdict(
            outcome.episode.fault.name,
            outcome.asked,
            outcome.landed,
            outcome.ended == "endless" or run.done.code != 1,
            within_limits,
            run.state.ending_why,
        )
        for outcome in outcomes
    ]


# ---- runs ------------------------------------------------------------------------------------------------------------


def play_unrecoverable(
    folder: Path, number: int, seed: int, kinds: Collection[str] = tuple(UNRECOVERABLE)
) -> list[Verdict]:
    """Play a number of each kind in one run, together with a subtask without a fault."""
    episodes = [Episode(NOTHING, (subtask("fine"),), {"fine": [solve("fine")]})]
    for index, kind in enumerate(kinds):
        fault = Fault(UNRECOVERABLE[kind].row, 0, kind, _not_by_chance)
        for count in range(number):
            name = f"h{index}-{count}"
            parts = [f"{name}{suffix}" for suffix in PART_SUFFIXES] if kind == COMPLEX else []
            task = subtask(name)
            if kind == CONTRADICTION:
                task["acceptance"] = [
                    {**check, "run": check["run"].replace("NAME", name)} for check in CONTRADICTORY_CHECKS
                ]
            workers = {id_: UNRECOVERABLE[kind].attempts(id_) for id_ in (name, *parts)}
            episodes.append(Episode(fault, (task,), workers))
    run = play(folder / f"unrecoverable-{len(kinds)}", episodes, seed=seed)
    fine, *unrecoverable = run.outcomes
    assert fine.landed, "the subtask without a fault did not land"
    return _verdicts(run, unrecoverable)


def _not_by_chance(fault: Fault, name: str, _: object) -> Episode:
    raise NotImplementedError(f"{fault.name} of {name} is not chosen by chance")


CONFLICTED = Fault(37, 0, CONFLICT, _not_by_chance)
ROUNDS, SLOW_S, QUICK_S = 24, 4.0, 1.0


def play_conflicts(folder: Path, number: int, seed: int) -> list[Verdict]:
    """Work that always conflicts: during each attempt another subtask lands a change of the same line.

    Those other subtasks change the lines of all of them, one after another, and each is quicker than any attempt.
    """
    files = {f"clash/{count}.txt": "words\n" for count in range(number)}
    rounds = [f"round-{turn}" for turn in range(ROUNDS)]
    episodes: list[Episode] = []
    for turn, name in enumerate(rounds):
        before = rounds[max(0, turn - 1) : turn]
        task = subtask(name, depends_on=before, touches=list(files), acceptance=_is_named_in(name, files))
        work: Json = {"do": "shell", "commands": [f"sed -i 's/$/ {name}/' clash/*.txt"]}
        episodes.append(Episode(NOTHING, (task,), {name: [work]}, files, pace_s=QUICK_S))
    for count, path in enumerate(files):
        name = f"never-{count}"
        task = subtask(name, touches=[path], acceptance=_is_named_in(name, [path]))
        work = {"do": "shell", "commands": [f"sed -i 's/^/{name} /' {path}"], "turns": 1}
        episodes.append(Episode(CONFLICTED, (task,), {name: [work]}, pace_s=SLOW_S))
    run = play(folder / "conflicts", episodes, seed=seed)
    return _verdicts(run, [outcome for outcome in run.outcomes[ROUNDS:] if outcome.classes == {"conflict"}])


def _is_named_in(name: str, paths: Collection[str]) -> list[Json]:
    return [{"criterion": f"{name} is named", "run": f"! grep -Lw {name} {' '.join(paths)} | grep ."}]
