"""Scores a run automatically, from its journal, its repository, and checks on the known solution."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from fleet.core.base.paths import matches
from fleet.core.plans.plan import Criterion, Subtask, ancestors, find_cycle
from fleet.core.state.state import RunState

WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Score:
    """One run in numbers. Counts, so that shares can be added up over runs."""

    solved: bool
    """Whether the held-out checks pass on the result."""
    planned: int
    """Subtasks, without those that were dropped or split."""
    landed: int
    criteria: int
    """Commands that have to fail before the work, as they were first planned."""
    proving: int
    """Of these: they fail on the base and pass on the known solution."""
    allowed: int
    """Files that first-planned `touches` allow, for the subtasks that landed."""
    needed: int
    """Of these: changed."""
    pairs: int
    """Pairs of subtasks that may run at the same time."""
    overlapping: int
    """Of these: both may change the same file."""
    attempts: int
    planner_calls: int
    dollars: float
    planner_dollars: float
    minutes: float
    ending: str
    rungs: Mapping[str, int] = field(default_factory=dict)
    """Attempts by worker, model and effort."""

    def document(self) -> dict[str, Any]:
        return asdict(self)


def score(
    state: RunState, *, solved: bool, fails: Collection[str], passes: Collection[str], files: Collection[str]
) -> Score:
    """Return the score of a run.

    `fails` are commands that fail on the base, `passes` those that pass on the known solution. `files` are the paths of
    base and result.
    """
    first = first_plan(state)
    commands = [criterion.run for subtask in first.values() for criterion in criteria_of(subtask)]
    allowed = {id_: allowed_files(subtask, files) for id_, subtask in first.items()}
    landed = {id_: frozenset(each.last.paths) for id_, each in state.subtasks.items() if each.landed and each.last}
    beside = _unordered(first.values())
    in_workers = sum(each.spend.priced_dollars for each in state.subtasks.values())
    return Score(
        solved=solved,
        planned=sum(not (each.parts or each.dropped) for each in state.subtasks.values()),
        landed=len(landed),
        criteria=len(commands),
        proving=sum(command in fails and command in passes for command in commands),
        allowed=sum(len(allowed.get(id_, ())) for id_ in landed),
        needed=sum(len(allowed.get(id_, frozenset()) & changed) for id_, changed in landed.items()),
        pairs=len(beside),
        overlapping=sum(bool(allowed[one] & allowed[other]) for one, other in beside),
        attempts=sum(len(each.attempts) for each in state.subtasks.values()),
        planner_calls=state.planning.calls,
        dollars=state.spent.priced_dollars,
        planner_dollars=max(0.0, state.spent.priced_dollars - in_workers),
        minutes=round((state.last_at - state.started_at) / 60, 2),
        ending=state.ending or "",
        rungs=dict(_rungs(state)),
    )


def first_plan(state: RunState) -> dict[str, Subtask]:
    """Return each subtask as it was first planned. Later repairs by the planner do not count."""
    found: dict[str, Subtask] = {}
    for version in state.versions:
        for subtask in version.changed:
            found.setdefault(subtask.id, subtask)
    return found


def criteria_of(subtask: Subtask) -> list[Criterion]:
    """The commands that have to fail before the work."""
    return [criterion for criterion in subtask.acceptance if criterion.run and criterion.fails_before]


def allowed_files(subtask: Subtask, files: Iterable[str]) -> frozenset[str]:
    """The files that `touches` allow: those that exist before or after, and exact paths that never do."""
    exact = {path for path in subtask.touches if not WILD & set(path) and not path.endswith("/")}
    matched = {path for path in files if matches(path, subtask.touches)}
    named = {path for path in exact if not any(matches(each, (path,)) for each in matched)}
    return frozenset(matched | named)


def _unordered(subtasks: Iterable[Subtask]) -> list[tuple[str, str]]:
    """Pairs of subtasks of which none has to land before the other."""
    listed = list(subtasks)
    known = {subtask.id for subtask in listed}
    needs = {subtask.id: tuple(need for need in subtask.depends_on if need in known) for subtask in listed}
    if find_cycle(needs):  # of first versions that never stood side by side
        return []
    before = ancestors(needs)
    return [(one, other) for one, other in combinations(needs, 2) if not (before(one, other) or before(other, one))]


def _rungs(state: RunState) -> Counter[str]:
    attempts = (attempt for each in state.subtasks.values() for attempt in each.attempts if attempt.model)
    return Counter(" ".join(filter(None, (each.worker, each.model, each.effort))) for each in attempts)
