"""Many faults in one run: the real program, real git, real boxes, and a simulated model in a process of its own.

What went wrong is asked of the model's server, what came of it of the journal.
"""

import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fleet.core.state import RunState
from tests.chaos.faults import FAULTS, GATE, PARTS, Episode, Fault, check, subtask
from tests.e2e.stage import Done, Going, Stage, wait_for
from tests.worktrees.conftest import make_repository

Json = dict[str, Any]
LONGEST_RUN_S = 900.0
PROBE_S = 30.0
HURRIED = {
    "FLEET_PLANNER_SETTLE_S": "0.2",
    "FLEET_LIMITS_BACKOFF_FIRST_S": "0.05",
    "FLEET_LIMITS_BACKOFF_CAP_S": "0.3",
    "FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.02",
    "FLEET_MODELS_RETRY_AFTER_CAP_S": "0.5",
    "FLEET_MODELS_SILENCE_S": "4",
    "FLEET_BOX_MEMORY_MB": "512",
    "FLEET_BOX_DISK_MB": "256",
    "FLEET_CHECKS_GATE": "sh gate.sh",
    "FLEET_RUN_WORKERS": "24",
}
"""Waits are short and limits low: what is decided in an hour is decided in seconds here, by the same rules."""
CONFIG = """\
[workers.coder]
turns = 14
models = ["claude-haiku-5-5", "claude-sonnet-5-5"]

[models]
fallbacks = { "claude-haiku-5-5" = "claude-sonnet-5-5" }
"""
SPLIT: tuple[Json, ...] = tuple(
    {
        "when": {"failed": "*", "kind": kind},
        "revision": {
            "assessment": "It wants to be smaller.",
            "split": [
                {
                    "id": "{id}",
                    "why": "One file each.",
                    "into": [
                        subtask(f"{{id}}-{part}", touches=[f"{{id}}/{part}.txt"], acceptance=[check("{id}", part)])
                        for part in PARTS
                    ],
                }
            ],
        },
    }
    for kind in ("too_complex", "budget")
)
"""All that the planner is told: what is too much becomes two parts, whatever it is. The rest it tries again, with the
evidence, as it does without a script."""


@dataclass(frozen=True)
class Outcome:
    """What became of one episode."""

    episode: Episode
    struck: bool
    """Whether the fault happened. Where it did not, nothing was recovered."""
    landed: bool
    asked: bool
    """Whether a human was asked about it."""
    attempts: int
    classes: frozenset[str]
    """Of the incidents it opened."""
    spared: bool
    """Whether it cost nothing where it must not."""
    ended: str

    @property
    def recovered(self) -> bool:
        return self.landed and not self.asked

    @property
    def as_expected(self) -> bool:
        """Whether it opened no other incident than its row allows."""
        allowed = self.episode.fault.classes
        return self.spared and ("any" in allowed or self.classes <= allowed)


def episodes(level: int, number: int, seed: int, faults: Sequence[Fault] = FAULTS) -> list[Episode]:
    """So many of a level, each fault as often as the others, but for its share; in an order that the seed gives."""
    chance = Random(f"{seed}/{level}")  # noqa: S311 - it is no secret
    pool = [fault for fault in faults if fault.level == level for _ in range(fault.share)]
    chosen = [pool[index % len(pool)] for index in range(number)]
    chance.shuffle(chosen)
    return [fault.episode(f"s{index:03}", chance) for index, fault in enumerate(chosen)]


def script_of(played: Sequence[Episode], seed: int, planner_faults: Sequence[Json]) -> Json:
    subtasks = [one for episode in played for one in episode.subtasks]
    start = {"when": {"start": True}, "revision": {"assessment": "All of it, side by side.", "add": subtasks}}
    workers: dict[str, Json] = {}
    for episode in played:
        for name, attempts in episode.workers.items():
            workers[name] = {"attempts": list(attempts), "pace": {"think_s": episode.pace_s}}
    return {
        "label": "faults",
        "seed": seed,
        "planner": {"steps": [start, *SPLIT], "faults": list(planner_faults)},
        "workers": workers,
    }


@contextmanager
def simulated(stage: Stage, script: Json) -> Iterator[str]:
    """A model that plays the script, in a process of its own."""
    path = stage.room / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    with stage.going("simulate", str(path), "--port", "0") as going:
        yield wait_for(lambda: _address(going.said), going)


def _address(said: str) -> str | None:
    found = re.search(r"listening on (http://\S+)", said)
    return found[1] if found else None


def struck(url: str) -> dict[str, int]:
    """How often a trouble struck, by subtask."""
    with urllib.request.urlopen(f"{url}/troubles", timeout=PROBE_S) as answer:  # noqa: S310 - on loopback
        found: dict[str, int] = {}
        for one in json.load(answer)["struck"]:
            found[one["subtask"]] = found.get(one["subtask"], 0) + one["times"]
        return found


@dataclass(frozen=True)
class Played:
    """A run that is over."""

    outcomes: tuple[Outcome, ...]
    left: RunState | None
    """What it came to; nothing is left of a run that could not even begin."""
    done: Done
    stage: Stage

    @property
    def state(self) -> RunState:
        assert self.left is not None, self.done.said
        return self.left


def play(
    room: Path,
    played: Sequence[Episode],
    *,
    seed: int = 0,
    planner_faults: Sequence[Json] = (),
    more: Mapping[str, str] | None = None,
    planner: Json | None = None,
    meanwhile: Callable[[Stage, Going], None] | None = None,
    longest_s: float = LONGEST_RUN_S,
) -> Played:
    """Run the episodes to their end, whichever it is. `planner` adds to its script; `meanwhile` is what others do."""
    room.mkdir(parents=True, exist_ok=True)
    stage = Stage(room, more={**HURRIED, **(more or {})})
    files = {"README.md": "hello\n", "gate.sh": GATE}
    repository = make_repository(room / "work", files | {k: v for one in played for k, v in one.files.items()})
    config = room / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    whole = script_of(played, seed, planner_faults)
    whole["planner"] |= planner or {}
    with simulated(stage, whole) as url:
        asked = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
        with stage.going(*asked, "--config", str(config)) as going:
            if meanwhile is not None:
                meanwhile(stage, going)
            try:
                going.process.wait(longest_s)
            except subprocess.TimeoutExpired:
                going.kill()
            done = Done(going.command, going.process.returncode, going.said, "")
        happened = struck(url)
    state = stage.look("r")
    outcomes = [outcome(one, state, happened) for one in played] if state is not None else []
    return Played(tuple(outcomes), state, done, stage)


@dataclass
class _Family:
    """The subtasks of an episode, with the parts they were split into."""

    ids: list[str] = field(default_factory=list)

    def add(self, state: RunState, id_: str) -> bool:
        """Whether it landed, itself or in parts."""
        self.ids.append(id_)
        found = state.subtasks.get(id_)
        if found is None:
            return False
        if found.parts:
            return all(tuple(self.add(state, part) for part in found.parts))  # every part, also after one that did not
        return found.landed is not None


def outcome(episode: Episode, state: RunState, happened: Mapping[str, int]) -> Outcome:
    family = _Family()
    landed = all(tuple(family.add(state, id_) for id_ in episode.ids))
    incidents = [one for one in state.incidents if one.subtask in family.ids]
    quiet = not any(_troubled(one) for attempts in episode.workers.values() for one in attempts)
    return Outcome(
        episode,
        struck=any(id_ in happened for id_ in family.ids) or bool(incidents) or (quiet and not episode.fault.classes),
        landed=landed,
        asked=any(question.about in family.ids for question in state.questions.values()),
        attempts=sum(len(state.subtasks[id_].attempts) for id_ in family.ids if id_ in state.subtasks),
        classes=frozenset(trouble.kind for one in incidents for trouble in one.troubles),
        spared=not any(one.subtask in episode.innocent for one in incidents),
        ended=state.ending or "endless",
    )


def _troubled(behaviour: Json) -> bool:
    return behaviour["do"] in {"http", "break_stream", "hang", "malformed", "mute"}
