"""The small changes of a subtask, its current attempt and its incident, of which larger changes are made."""

from collections.abc import Callable, Collection

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.history import subtask_sets
from fleet.core.history.replace import replace
from fleet.core.state.facts import Strategy
from fleet.core.state.incidents import ChosenRemedy, Closing, Incident, Trouble
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt, SubtaskState


def put_subtask(state: RunState, subtask: SubtaskState) -> RunState:
    return replace(state, subtasks=subtask_sets.put(state.subtasks, subtask))


def change_attempt(
    state: RunState, id_: SubtaskId, change: Callable[[Attempt], Attempt], *, only: int | None = None
) -> RunState:
    """Change the attempt under way; with `only`, none but the attempt of that number: a late fact changes nothing."""
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
