"""Updates the sets of subtasks after a change of one subtask or of the plan, instead of computing them again."""

from collections.abc import Callable, Collection, Iterable, Mapping

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.base.vector import Vector
from fleet.core.facts.facts import Strategy
from fleet.core.history.replace import replace
from fleet.core.plans.plan import PLANNER, Subtask, longest_chains
from fleet.core.state.state import ChosenRemedy, Closing, Incident, RunState, Trouble
from fleet.core.state.subtasks import Attempt, Mark, PlannedSets, Set, Subtasks, SubtaskState, is_same, marks_of, union


def put(subtasks: Subtasks, subtask: SubtaskState) -> Subtasks:
    """Replace the state of one subtask. The cost does not depend on the length of the run."""
    plan, id_ = subtasks.plan, subtask.id
    place = plan.places[id_]
    before, after = marks_of(subtasks.rows.at(place)), marks_of(subtask)
    rows = subtasks.rows.put(place, subtask)
    if before == after:
        return replace(subtasks, rows=rows)
    bit = 1 << plan.bits[id_]
    marks = tuple(
        [held if was is is_now else held ^ bit for held, was, is_now in zip(subtasks.marks, before, after, strict=True)]
    )
    unmet, outside = subtasks.unmet, subtasks.outside
    if before[Mark.DONE] != after[Mark.DONE]:
        unmet = _unmet(plan, marks[Mark.DONE], plan.dependents.get(id_, ()), unmet)
    if members := subtasks.made_by.get(id_):
        outside = outside | members if _leaves_out(after) else outside & ~members
    return replace(subtasks, rows=rows, marks=marks, unmet=unmet, outside=outside)


def by_plan(
    subtasks: Subtasks,
    specs: Mapping[SubtaskId, Subtask],
    cleared: Mapping[SubtaskId, Subtask],
    new: Collection[SubtaskState] = (),
) -> Subtasks:
    """By another version of the plan, or with other approvals. New subtasks come last, as in the plan."""
    return _from_scratch(subtasks.rows.extend(new), _planned(specs, cleared, subtasks.plan))


def by_changed(
    subtasks: Subtasks,
    specs: Mapping[SubtaskId, Subtask],
    cleared: Mapping[SubtaskId, Subtask],
    changed: Iterable[Subtask],
) -> Subtasks:
    """By a version of the plan, or approvals, in which only these may differ, and none depends on anything else."""
    plan = subtasks.plan
    areas, approved, scheduled, labelled = plan.areas, plan.approved, plan.scheduled, plan.labelled
    for spec in changed:
        bit = 1 << plan.bits[spec.id]
        is_cleared = spec.id in cleared and is_same(spec, cleared[spec.id])
        areas = areas | bit if spec.worker == PLANNER else areas & ~bit
        approved = approved | bit if is_cleared else approved & ~bit
        scheduled = scheduled | bit if spec.not_before is not None else scheduled & ~bit
        labelled = labelled | bit if spec.labels else labelled & ~bit
    sets = replace(plan, specs=specs, areas=areas, approved=approved, scheduled=scheduled, labelled=labelled)
    return replace(subtasks, plan=sets)


def _from_scratch(rows: Vector[SubtaskState], plan: PlannedSets) -> Subtasks:
    alike: dict[tuple[bool, ...], list[SubtaskId]] = {}
    of_area: dict[SubtaskId | None, list[SubtaskId]] = {}
    for subtask in rows:
        alike.setdefault(marks_of(subtask), []).append(subtask.id)
        of_area.setdefault(subtask.area, []).append(subtask.id)
    marked = {marks: _set_of(plan.bits, ids) for marks, ids in alike.items()}
    marks = tuple(union(ids for marks, ids in marked.items() if marks[mark]) for mark in Mark)
    made_by = {area: _set_of(plan.bits, ids) for area, ids in of_area.items()}
    outside = (id_ for its_marks, ids in alike.items() if _leaves_out(its_marks) for id_ in ids)
    return Subtasks(
        rows,
        plan,
        marks,
        unmet=_unmet(plan, marks[Mark.DONE], [id_ for id_, spec in plan.specs.items() if spec.depends_on]),
        made_by=made_by,
        outside=union(made_by[area] for area in outside if area in made_by),
    )


def _set_of(bits: Mapping[SubtaskId, int], ids: Collection[SubtaskId]) -> Set:
    """The set of very many subtasks, in one piece."""
    packed = bytearray(len(bits) // 8 + 1)
    for id_ in ids:
        packed[bits[id_] >> 3] |= 1 << (bits[id_] & 7)
    return int.from_bytes(packed, "little")


def _planned(
    specs: Mapping[SubtaskId, Subtask], cleared: Mapping[SubtaskId, Subtask], before: PlannedSets
) -> PlannedSets:
    if _needs_are_the_same(specs, before.specs):
        by_bit, bits, dependents = before.by_bit, before.bits, before.dependents
    else:
        behind: dict[SubtaskId, list[SubtaskId]] = {}
        for id_, spec in specs.items():
            for need in spec.depends_on:
                behind.setdefault(need, []).append(id_)
        chains = longest_chains(behind)  # those without dependants and dependencies are not among them
        by_bit = tuple(sorted(specs, key=lambda id_: -chains.get(id_, 1.0)))
        bits = {id_: bit for bit, id_ in enumerate(by_bit)}
        dependents = {id_: tuple(ids) for id_, ids in behind.items()}
    return PlannedSets(
        specs=specs,
        places={id_: place for place, id_ in enumerate(specs)},
        bits=bits,
        by_bit=by_bit,
        dependents=dependents,
        areas=_set_of(bits, [id_ for id_, spec in specs.items() if spec.worker == PLANNER]),
        approved=_set_of(bits, [id_ for id_, spec in cleared.items() if id_ in specs and is_same(spec, specs[id_])]),
        scheduled=_set_of(bits, [id_ for id_, spec in specs.items() if spec.not_before is not None]),
        labelled=_set_of(bits, [id_ for id_, spec in specs.items() if spec.labels]),
    )


def _needs_are_the_same(specs: Mapping[SubtaskId, Subtask], before: Mapping[SubtaskId, Subtask]) -> bool:
    if len(specs) != len(before):
        return False
    pairs = ((spec, before.get(id_)) for id_, spec in specs.items())
    return all(old is spec or (old is not None and old.depends_on == spec.depends_on) for spec, old in pairs)


def _unmet(plan: PlannedSets, done: Set, ids: Collection[SubtaskId], unmet: Set = 0) -> Set:
    """Return the subtasks that wait for an unfinished dependency, after checking the given ones again."""
    for id_ in ids:
        needs = (plan.bits.get(need) for need in plan.specs[id_].depends_on)
        is_met = all(bit is not None and done >> bit & 1 for bit in needs)
        bit = 1 << plan.bits[id_]
        unmet = unmet & ~bit if is_met else unmet | bit
    return unmet


def _leaves_out(marks_of_area: tuple[bool, ...]) -> bool:
    """Whether an area's subtasks may not start, because no planner would be in charge of them."""
    return not marks_of_area[Mark.PLANNING] and not marks_of_area[Mark.CLOSED]


# ---- subtask history -------------------------------------------------------------------------------------------------
# The small changes of a subtask, its current attempt and its incident, of which larger changes are made.


def put_subtask(state: RunState, subtask: SubtaskState) -> RunState:
    return replace(state, subtasks=put(state.subtasks, subtask))


def change_attempt(
    state: RunState, id_: SubtaskId, change: Callable[[Attempt], Attempt], *, only: int | None = None
) -> RunState:
    """Change the running attempt. With `only`, ignore facts about other attempts, which came too late."""
    subtask = state.subtasks[id_]
    current = subtask.current
    if current is None or (only is not None and only != current.number):
        return state
    return put_subtask(state, replace(subtask, attempts=(*subtask.attempts[:-1], change(current))))


# ---- incidents ------------------------------------------------------------------------------------------------------


def add_failure(state: RunState, trouble: Trouble, at: float) -> RunState:
    """Add a failure to the open incident of its subtask, or open one."""
    if (index := state.troubled.get(trouble.subtask)) is not None:
        incident = state.incidents[index]
        longer = replace(incident, troubles=(*incident.troubles, trouble))
        return replace(state, incidents=state.incidents.put(index, longer))
    index = len(state.incidents)
    new = Incident(number=index + 1, subtask=trouble.subtask, kind=trouble.kind, opened_at=at, troubles=(trouble,))
    troubled = {**state.troubled, trouble.subtask: index}
    return replace(state, incidents=state.incidents.append(new), troubled=troubled)


def add_remedy(state: RunState, id_: SubtaskId, chosen: ChosenRemedy) -> RunState:
    """Add a remedy to the open incident of a subtask, if there is one."""
    return _change_open(state, id_, lambda incident: replace(incident, remedies=(*incident.remedies, chosen)))


def recover(state: RunState, id_: SubtaskId, strategy: Strategy, at: float, *, parts: bool) -> RunState:
    """Close the incident of a subtask that landed, itself or as its parts. With a human's help it is not a recovery."""
    if strategy == "human":
        return give_up(state, id_, "helped", at)
    closing: Closing = "parts landed" if parts else "landed"

    def recovered(incident: Incident) -> Incident:
        return replace(incident, closed_at=at, recovered=True, strategy=strategy, closing=closing)

    return _change_open(state, id_, recovered)


def give_up(
    state: RunState, id_: SubtaskId | None, closing: Closing, at: float, *, question: QuestionId | None = None
) -> RunState:
    """Close the incident of a subtask, or all open ones, without a recovery."""
    strategy: Strategy | None = "human" if closing in {"asked", "helped"} else None

    def given_up(incident: Incident) -> Incident:
        return replace(incident, closed_at=at, recovered=False, strategy=strategy, closing=closing, question=question)

    return _change_open(state, id_, given_up)


def was_helped(state: RunState, ids: Collection[SubtaskId]) -> bool:
    """Whether a human had to help with any of these subtasks."""
    return any(incident.subtask in ids and incident.closing in {"asked", "helped"} for incident in state.incidents)


def _change_open(state: RunState, id_: SubtaskId | None, change: Callable[[Incident], Incident]) -> RunState:
    """Change the open incident of a subtask, or all open ones."""
    if not state.troubled or (id_ is not None and id_ not in state.troubled):
        return state
    incidents, still = state.incidents, dict(state.troubled)
    for subtask in (id_,) if id_ is not None else tuple(state.troubled):
        if (index := state.troubled.get(subtask)) is not None:
            changed = change(incidents[index])
            incidents = incidents.put(index, changed)
            if changed.closed_at is not None:
                del still[subtask]
    return state if incidents is state.incidents else replace(state, incidents=incidents, troubled=still)
