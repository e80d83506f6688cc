"""Chooses the rung of each attempt: first by dollars per landed subtask, then the next rung after certain failures.

The cost per landed subtask is observed in this run and in earlier runs of the repository. For a rung with fewer than
five attempts, the configured order decides. Pure: the same evidence gives the same choice, which is recorded with the
compared figures.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from fleet.core.facts.facts import FailureKind, RungChoice, RungOption, RungTally
from fleet.core.plans.limits import ENOUGH, Ladder, Rung, Size, size_of
from fleet.core.plans.plan import Effort, Subtask
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt, SubtaskState

ABILITY: frozenset[FailureKind] = frozenset({"check", "empty", "protocol", "too_complex", "refusal", "budget"})
"""Failures that a more able model, or more effort, may avoid. Wrong plans, broken machines and merges are not."""
JUDGED = ABILITY | {"bounds", "integration"}
"""Failures that count as evidence about a rung. A wrong plan or a conflict does not."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The model and the effort of an attempt, and why, if a ladder decided."""

    model: str | None
    effort: Effort | None
    choice: RungChoice | None = None


# ---- one attempt ----------------------------------------------------------------------------------------------------


def take_rung(state: RunState, spec: Subtask, subtask: SubtaskState) -> Taken:
    """The rung of the next attempt at a subtask. A model or an effort that the plan names is taken as it is."""
    ladder = state.policy.rungs.get(spec.worker)
    if ladder is None or spec.model is not None or spec.effort is not None:
        return Taken(spec.model, spec.effort)
    last = _last_choice(subtask, spec.worker)
    if last is not None:
        attempt, before = last
        index = min(before.rung, len(ladder.rungs) - 1)
        climbs = can_climb(ladder, attempt)
        choice = RungChoice(rung=index + climbs, why="climbed" if climbs else "again")
    elif ladder.first is not None:
        choice = RungChoice(rung=ladder.first, why="named")
    else:
        choice = _first_rung(state, spec, ladder)
    rung = ladder.rungs[choice.rung]
    return Taken(rung.model, rung.effort, choice)


def climbs_after(state: RunState, spec: Subtask, subtask: SubtaskState) -> bool:
    """Whether the next rung takes a subtask whose last attempt failed."""
    ladder, last = state.policy.rungs.get(spec.worker), subtask.last
    if ladder is None or last is None or spec.model is not None or spec.effort is not None:
        return False
    return last.worker == spec.worker and last.choice is not None and can_climb(ladder, last)


def can_climb(ladder: Ladder, attempt: Attempt) -> bool:
    """Return whether there is a next rung that may succeed where the attempt failed."""
    failed = attempt.worked and attempt.failure is not None and attempt.failure.kind in ABILITY
    return failed and attempt.choice is not None and attempt.choice.rung + 1 < len(ladder.rungs)


def _last_choice(subtask: SubtaskState, worker: str) -> tuple[Attempt, RungChoice] | None:
    for attempt in reversed(subtask.attempts):
        if attempt.worker == worker and attempt.choice is not None:
            return attempt, attempt.choice
    return None


def _first_rung(state: RunState, spec: Subtask, ladder: Ladder) -> RungChoice:
    options = rung_options(ladder, (*state.past, *state.tallies.values()), spec.worker, size_of(spec.estimate))
    if (best := cheapest(options)) is not None:
        return RungChoice(rung=best, why="evidence", options=options)
    return RungChoice(rung=in_order(options), why="order", options=options)


# ---- what was observed ----------------------------------------------------------------------------------------------


def rung_options(ladder: Ladder, tallies: Iterable[RungTally], worker: str, size: Size) -> tuple[RungOption, ...]:
    """Return each rung of a worker with the results of its attempts at subtasks of one size."""
    alike = [tally for tally in tallies if (tally.worker, tally.size) == (worker, size)]
    return tuple(_option(rung, [tally for tally in alike if _is_with(rung, tally)]) for rung in ladder.rungs)


def _is_with(rung: Rung, tally: RungTally) -> bool:
    return (tally.model, tally.effort) == (rung.model, rung.effort)


def _option(rung: Rung, tallies: Sequence[RungTally]) -> RungOption:
    landed, priced = sum(tally.landed for tally in tallies), sum(tally.priced for tally in tallies)
    tried = landed + sum(count for tally in tallies for kind, count in tally.failed.items() if kind in JUDGED)
    dollars = sum(tally.dollars for tally in tallies) / priced if priced else None
    return RungOption(
        model=rung.model,
        effort=rung.effort,
        tried=tried,
        landed=landed,
        dollars=_short(dollars),
        per_landed=_short(dollars * tried / landed) if dollars is not None and landed else None,
    )


def cheapest(options: Sequence[RungOption]) -> int | None:
    """The rung that landed subtasks for the fewest dollars, the lower one of equals, below the first unknown one."""
    known = takewhile(is_known, options)
    costs = [(option.per_landed, index) for index, option in enumerate(known) if option.per_landed is not None]
    return min(costs)[1] if costs else None


def in_order(options: Sequence[RungOption]) -> int:
    """Return the first rung with too few attempts.

    If all have enough and none landed any work, return the first rung.
    """
    return next((index for index, option in enumerate(options) if not is_known(option)), 0)


def is_known(option: RungOption) -> bool:
    """Whether enough was seen of a rung to compare it."""
    return option.tried >= ENOUGH and option.dollars is not None


def _short(number: float | None) -> float | None:
    """Few enough digits for a journal."""
    return None if number is None else float(f"{number:.6g}")
