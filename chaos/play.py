"""Plays many faults in one run: the real program, git and sandboxes, and a simulated model in a separate process.

The model's server reports the faults that struck, and the journal shows how the run handled them.
"""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from chaos.faults import FAULTS, GATE, PARTS, Episode, Fault, check, subtask
from fleet.core.base.ids import SubtaskId
from fleet.core.state.state import RunState
from scripts.frame import progress
from scripts.simulated import asked
from tests.e2e.stage import Done, Going, Stage, wait_for
from tests.worktrees.conftest import make_repository

Json = dict[str, Any]
RUN_TIMEOUT_S = 900.0
HURRY = {
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
"""Short waits and low limits: decisions that take an hour take seconds here, by the same rules."""
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
            "assessment": "It has to be smaller.",
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
"""The planner's whole script: it splits what is too much into two parts. It retries everything else with the evidence,
as it does without a script."""


@dataclass(frozen=True)
class Outcome:
    """The result of one episode."""

    episode: Episode
    struck: bool
    """Whether the fault happened. Otherwise there was no recovery."""
    landed: bool
    asked: bool
    """Whether fleet asked a human."""
    attempts: int
    classes: frozenset[str]
    """The kinds of incidents that it opened."""
    spared: bool
    """Whether the subtasks that it must not affect had no incident."""
    ended: str

    @property
    def recovered(self) -> bool:
        return self.landed and not self.asked

    @property
    def as_expected(self) -> bool:
        """Whether it opened only the incidents that its row allows."""
        allowed = self.episode.fault.classes
        return self.spared and ("any" in allowed or self.classes <= allowed)


def episodes(level: int, number: int, seed: int, faults: Sequence[Fault] = FAULTS) -> list[Episode]:
    """Return episodes of a level, each fault in proportion to its share, in a seeded order."""
    chance = Random(f"{seed}/{level}")  # noqa: S311 - not a secret
    pool = [fault for fault in faults if fault.level == level for _ in range(fault.share)]
    chosen = [pool[index % len(pool)] for index in range(number)]
    chance.shuffle(chosen)
    return [fault.episode(f"s{index:03}", chance) for index, fault in enumerate(chosen)]


def script_of(played: Sequence[Episode], seed: int, planner_faults: Sequence[Json]) -> Json:
    subtasks = [subtask_ for episode in played for subtask_ in episode.subtasks]
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
    """Start a model that plays the script, in a separate process."""
    path = stage.room / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    with stage.going("simulate", str(path), "--port", "0") as going:
        yield wait_for(lambda: _address(going.output), going)


def _address(output: str) -> str | None:
    match = re.search(r"listening on (http://\S+)", output)
    return match[1] if match else None


def struck(url: str) -> dict[str, int]:
    """Return how often a fault struck, by subtask. Raises if a request broke a rule of the service."""
    so_far = asked(url)
    progress(so_far.line)
    if so_far.complaint:
        raise AssertionError(so_far.complaint)
    counts: dict[str, int] = {}
    for entry in so_far.struck:
        counts[entry["subtask"]] = counts.get(entry["subtask"], 0) + entry["times"]
    return counts


@dataclass(frozen=True)
class Played:
    """A run that has ended."""

    outcomes: tuple[Outcome, ...]
    final: RunState | None
    """Last state. None if the run could not start."""
    done: Done
    stage: Stage

    @property
    def state(self) -> RunState:
        assert self.final is not None, self.done.output
        return self.final


def play(
    folder: Path,
    played: Sequence[Episode],
    *,
    seed: int = 0,
    planner_faults: Sequence[Json] = (),
    more: Mapping[str, str] | None = None,
    planner: Json | None = None,
    meanwhile: Callable[[Stage, Going], None] | None = None,
    timeout_s: float = RUN_TIMEOUT_S,
) -> Played:
    """Run the episodes to their end. `planner` extends the planner's script, and `meanwhile` runs during the run."""
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(folder, more={**HURRY, **(more or {})})
    files = {"README.md": "hello\n", "gate.sh": GATE}
    for episode in played:
        files |= episode.files
    repository = make_repository(folder / "work", files)
    config = folder / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    script = script_of(played, seed, planner_faults)
    script["planner"] |= planner or {}
    with simulated(stage, script) as url:
        arguments = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
        with stage.going(*arguments, "--config", str(config)) as going:
            if meanwhile is not None:
                meanwhile(stage, going)
            try:
                code = going.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                going.kill()
                code = -signal.SIGKILL
            done = Done(going.command, code, going.output, "")
        strikes = struck(url)
    state = stage.look("r")
    outcomes = [outcome(episode, state, strikes) for episode in played] if state is not None else []
    return Played(tuple(outcomes), state, done, stage)


def outcome(episode: Episode, state: RunState, strikes: Mapping[str, int]) -> Outcome:
    ids = _with_parts(state, episode.ids)
    incidents = [incident for incident in state.incidents if incident.subtask in ids]
    behaviours = [behaviour for attempts in episode.workers.values() for behaviour in attempts]
    counts_as_struck = not episode.fault.classes and not any(_is_call_fault(behaviour) for behaviour in behaviours)
    return Outcome(
        episode,
        struck=counts_as_struck or bool(incidents) or any(id_ in strikes for id_ in ids),
        landed=all(_landed(state, id_) for id_ in ids),
        asked=any(question.about in ids for question in state.questions.values()),
        attempts=sum(len(state.subtasks[id_].attempts) for id_ in ids if id_ in state.subtasks),
        classes=frozenset(trouble.kind for incident in incidents for trouble in incident.troubles),
        spared=not any(incident.subtask in episode.innocent for incident in incidents),
        ended=state.ending or "endless",
    )


def _with_parts(state: RunState, ids: Sequence[SubtaskId]) -> list[SubtaskId]:
    """These subtasks, and the parts that they were split into."""
    found: list[SubtaskId] = []
    for id_ in ids:
        parts = state.subtasks[id_].parts if id_ in state.subtasks else ()
        found += [id_, *_with_parts(state, parts)]
    return found


def _landed(state: RunState, id_: SubtaskId) -> bool:
    """Return whether a subtask landed. For a split one, its parts count instead."""
    subtask_ = state.subtasks.get(id_)
    return subtask_ is not None and (bool(subtask_.parts) or subtask_.landed is not None)


def _is_call_fault(behaviour: Json) -> bool:
    return behaviour["do"] in {"http", "break_stream", "hang", "malformed", "mute"}
