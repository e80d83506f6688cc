"""What nobody can do: each must end with a human asked; never as done, and never without an end."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests.chaos.faults import Episode, Fault, Json, files_of, solve, subtask, wrong
from tests.chaos.play import play

EVER = 1_000_000


def _nobody(fault: Fault, name: str, _: object) -> Episode:  # the table's shape; never asked for by chance
    return Episode(fault, (subtask(name),), {name: HOPELESS[fault.name](name)})


HOPELESS: dict[str, Callable[[str], list[Json]]] = {
    "a check nobody can pass": lambda name: [wrong(name)],
    "refused for ever": lambda _: [{"do": "mute", "stop_reason": "refusal", "times": EVER, "text": "No."}],
    "a human who never answers": lambda _: [{"do": "ask", "needs": ["Which encoding?"]}],
    "claimed for ever, nothing done": lambda _: [{"do": "claim"}],
    "out of bounds for ever": lambda name: [
        {"do": "stray", "files": files_of(name), "outside": {"README.md": "mine\n"}}
    ],
    "too complex at any size": lambda _: [{"do": "too_complex"}],
    "no tool call, ever": lambda _: [{"do": "mute", "times": EVER}],
    "tool inputs that fit no tool, ever": lambda _: [{"do": "malformed", "times": EVER}],
    "a contradiction": lambda name: [solve(name)],
}
CONTRADICTION: list[Json] = [
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

    @property
    def honest(self) -> bool:
        return self.asked and not self.landed and not self.endless


def hopeless(folder: Path, number: int, seed: int, kinds: Collection[str] = tuple(HOPELESS)) -> list[Verdict]:
    """So many of each kind in one run, beside work that is fine."""
    fine = Fault(0, 0, "nothing", _nobody)
    played = [Episode(fine, (subtask("fine"),), {"fine": [solve("fine")]})]
    for index, kind in enumerate(kinds):
        fault = Fault(0, 0, kind, _nobody)
        for count in range(number):
            name = f"h{index}-{count}"
            parts = [f"{name}{suffix}" for suffix in SUFFIXES] if kind.startswith("too complex") else []
            task = subtask(name)
            if kind == "a contradiction":
                task["acceptance"] = [{**one, "run": one["run"].replace("NAME", name)} for one in CONTRADICTION]
            played.append(Episode(fault, (task,), {id_: HOPELESS[kind](id_) for id_ in (name, *parts)}))
    run = play(folder / "hopeless", played, seed=seed)
    good, *bad = run.outcomes
    assert good.landed, "what could be done was not"
    return [
        Verdict(one.episode.fault.name, one.asked, one.landed, one.ended == "endless" or run.done.code != 1)
        for one in bad
    ]


def revoked(folder: Path, seed: int) -> Verdict:
    """The key is taken back in the middle: everything waits, a human is asked about the run."""
    kind = "the key is revoked"
    trouble = {"do": "http", "status": 401, "message": "invalid x-api-key", "times": EVER, "turn": 1}
    fault = Fault(10, 0, kind, _nobody)
    names = ("one", "two")
    played = [Episode(fault, (subtask(name),), {name: [{**trouble, "then": solve(name)}]}) for name in names]
    run = play(folder / "revoked", played, seed=seed)
    asked = any(question.about is None for question in run.state.questions.values())
    landed = any(one.landed for one in run.outcomes)
    return Verdict(kind, asked, landed, not run.state.ended)


SUFFIXES = tuple("".join(f"-{part}" for part in path) for depth in (1, 2, 3) for path in product("ab", repeat=depth))
