"""What nobody can do: each must end with a human asked; never as done, never without an end, and within its limits."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from fleet.core.remedies import LADDER
from fleet.core.state import RunState
from tests.chaos.faults import EVER, NOTHING, Episode, Fault, Json, files_of, solve, subtask, wrong
from tests.chaos.play import Outcome, Played, play

COMPLEX, CONTRADICTION, CONFLICT = "too complex at any size", "a contradiction", "a conflict for ever"


def _nobody(fault: Fault, name: str, _: object) -> Episode:  # the table's shape; never asked for by chance
    return Episode(fault, (subtask(name),), {name: HOPELESS[fault.name].play(name)})


@dataclass(frozen=True)
class Hopeless:
    """A row of the table in docs/reliability.md that ends with a question."""

    row: int
    play: Callable[[str], list[Json]]


HOPELESS: dict[str, Hopeless] = {
    "a check nobody can pass": Hopeless(45, lambda name: [wrong(name)]),
    "refused for ever": Hopeless(
        25, lambda _: [{"do": "mute", "stop_reason": "refusal", "times": EVER, "text": "No."}]
    ),
    "a human who never answers": Hopeless(46, lambda _: [{"do": "ask", "needs": ["Which encoding?"]}]),
    "claimed for ever, nothing done": Hopeless(29, lambda _: [{"do": "claim"}]),
    "out of bounds for ever": Hopeless(
        30, lambda name: [{"do": "stray", "files": files_of(name), "outside": {"README.md": "mine\n"}}]
    ),
    COMPLEX: Hopeless(44, lambda _: [{"do": "too_complex"}]),
    "no tool call, ever": Hopeless(26, lambda _: [{"do": "mute", "times": EVER}]),
    "tool inputs that fit no tool, ever": Hopeless(17, lambda _: [{"do": "malformed", "times": EVER}]),
    "streams that never end well": Hopeless(14, lambda _: [{"do": "break_stream", "how": "end", "times": EVER}]),
    CONTRADICTION: Hopeless(45, lambda name: [solve(name)]),
}
CONTRADICTED: list[Json] = [
    {"criterion": "it is there", "run": "test -f NAME/a.txt"},
    {"criterion": "it is not there", "run": "! test -f NAME/a.txt", "fails_before": False},
]


@dataclass(frozen=True)
class Verdict:
    """How one of them ended."""

    kind: str
    asked: bool
    landed: bool
    endless: bool
    within: bool = True
    """Whether every limit was kept."""
    said: str = ""
    """What it ended with."""

    @property
    def honest(self) -> bool:
        return self.asked and not self.landed and not self.endless and self.within


def within_limits(state: RunState) -> bool:
    """Whether attempts, retries, splits and calls of the planner stayed within what the policy says."""
    policy, subtasks = state.policy, state.subtasks.values()
    failures = ([one.failure.kind for one in subtask_.attempts if one.failure] for subtask_ in subtasks)
    counted = [[LADDER[kind].counts for kind in kinds] for kinds in failures]
    return (
        all(sum(counts) <= policy.max_attempts for counts in counted)
        and all(len(counts) - sum(counts) <= policy.max_retries + 1 for counts in counted)
        and all(one.depth <= policy.max_depth for one in subtasks)
        and len(subtasks) <= policy.max_subtasks
        and state.planning.calls <= policy.max_planner_calls
    )


def _verdicts(run: Played, outcomes: Collection[Outcome]) -> list[Verdict]:
    within = within_limits(run.state)
    return [
        Verdict(
            one.episode.fault.name,
            one.asked,
            one.landed,
            one.ended == "endless" or run.done.code != 1,
            within,
            run.state.ending_why,
        )
        for one in outcomes
    ]


def hopeless(folder: Path, number: int, seed: int, kinds: Collection[str] = tuple(HOPELESS)) -> list[Verdict]:
    """So many of each kind in one run, beside work that is fine."""
    played = [Episode(NOTHING, (subtask("fine"),), {"fine": [solve("fine")]})]
    for index, kind in enumerate(kinds):
        fault = Fault(HOPELESS[kind].row, 0, kind, _nobody)
        for count in range(number):
            name = f"h{index}-{count}"
            parts = [f"{name}{suffix}" for suffix in SUFFIXES] if kind == COMPLEX else []
            task = subtask(name)
            if kind == CONTRADICTION:
                task["acceptance"] = [{**one, "run": one["run"].replace("NAME", name)} for one in CONTRADICTED]
            work = {id_: HOPELESS[kind].play(id_) for id_ in (name, *parts)}
            played.append(Episode(fault, (task,), work))
    run = play(folder / f"hopeless-{len(kinds)}", played, seed=seed)
    good, *bad = run.outcomes
    assert good.landed, "what could be done was not"
    return _verdicts(run, bad)


CONFLICTED = Fault(37, 0, CONFLICT, _nobody)
ROUNDS, SLOW_S, QUICK_S = 24, 4.0, 1.0


def conflicts(folder: Path, number: int, seed: int) -> list[Verdict]:
    """Work that never fits: while it is under way, somebody else always lands a change of the very same line.

    Those change the lines of all of them, one after another, and each is quicker than any attempt at the hopeless ones.
    """
    files = {f"clash/{count}.txt": "words\n" for count in range(number)}
    rounds = [f"round-{turn}" for turn in range(ROUNDS)]
    played = [
        Episode(
            NOTHING,
            (
                subtask(
                    name,
                    depends_on=rounds[max(0, turn - 1) : turn],
                    touches=list(files),
                    acceptance=_named(name, files),
                ),
            ),
            {name: [{"do": "shell", "commands": [f"sed -i 's/$/ {name}/' clash/*.txt"]}]},
            files,
            pace_s=QUICK_S,
        )
        for turn, name in enumerate(rounds)
    ]
    for count, path in enumerate(files):
        name = f"never-{count}"
        work = {"do": "shell", "commands": [f"sed -i 's/^/{name} /' {path}"], "turns": 1}
        task = subtask(name, touches=[path], acceptance=_named(name, [path]))
        played.append(Episode(CONFLICTED, (task,), {name: [work]}, pace_s=SLOW_S))
    run = play(folder / "conflicts", played, seed=seed)
    return _verdicts(run, [one for one in run.outcomes[ROUNDS:] if one.classes == {"conflict"}])


def _named(name: str, paths: Collection[str]) -> list[Json]:
    return [{"criterion": f"{name} is named", "run": f"! grep -Lw {name} {' '.join(paths)} | grep ."}]


SUFFIXES = tuple("".join(f"-{part}" for part in path) for depth in (1, 2, 3) for path in product("ab", repeat=depth))
