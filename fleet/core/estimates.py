"""What a plan says of its own size: risk, minutes, dollars. Sums of what was estimated, and of how many that is."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.ids import SubtaskId
from fleet.core.plan import Plan, Risk


@dataclass(frozen=True, slots=True)
class Estimated:
    risks: Mapping[Risk, int]
    minutes: float
    longest: float
    """Minutes of the longest chain: what is left with as many workers as one likes."""
    timed: int
    """How many subtasks say how long they take."""
    dollars: float
    priced: int


def estimated(plan: Plan) -> Estimated:
    """The sums over a plan without circles."""
    minutes = {subtask.id: subtask.estimate.minutes for subtask in plan.subtasks}
    dollars = [one.estimate.dollars for one in plan.subtasks if one.estimate.dollars is not None]
    counted = Counter(subtask.risk for subtask in plan.subtasks)
    known = [value for value in minutes.values() if value is not None]
    return Estimated(
        risks={risk: counted[risk] for risk in ("low", "medium", "high") if counted[risk]},
        minutes=sum(known),
        longest=max(_ends(plan, minutes).values(), default=0.0),
        timed=len(known),
        dollars=sum(dollars),
        priced=len(dollars),
    )


def waves(plan: Plan) -> list[list[SubtaskId]]:
    """The subtasks by how many must land one after the other before them."""
    depths = _ends(plan, dict.fromkeys(plan.ids, 1.0))
    found: list[list[SubtaskId]] = [[] for _ in range(int(max(depths.values(), default=0)))]
    for id_ in plan.ids:
        found[int(depths[id_]) - 1].append(id_)
    return found


def _ends(plan: Plan, lengths: Mapping[SubtaskId, float | None]) -> dict[SubtaskId, float]:
    """When each ends if everything begins as soon as it may; in a loop, as a chain may be as long as the plan."""
    needs = {subtask.id: subtask.depends_on for subtask in plan.subtasks}
    ends: dict[SubtaskId, float] = {}
    for start in needs:
        trail = [start]
        while trail:
            id_ = trail[-1]
            if id_ in ends:
                trail.pop()
            elif left := [need for need in needs[id_] if need not in ends and need in needs]:
                trail += left
            else:
                ends[id_] = max((ends[need] for need in needs[id_] if need in ends), default=0.0) + (
                    lengths[id_] or 0.0
                )
    return ends
