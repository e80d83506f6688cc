"""What of a plan may begin: by a person's word, or because the rules of `[review]` let it pass.

A subtask is approved as it stands: whatever changes it makes it wait again. Queries only; `decide.py` applies the rules
and `evolve.py` remembers who said yes.
"""

from collections.abc import Iterator

from fleet.core.ids import SubtaskId
from fleet.core.paths import matches
from fleet.core.plan import Risk, Subtask
from fleet.core.policy import Policy, ReviewRules
from fleet.core.rollback import undoes
from fleet.core.state import RunState

RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_WILD = "*?["


def approved(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask may begin as it stands now."""
    match state.policy.reviewing:
        case None:  # a run from before there were rules: its first plan waited, or nothing did
            return not state.policy.review or state.approved is not None
        case "none":
            return True
        case _:
            return _same(state.cleared.get(id_), state.spec(id_))


def waiting(state: RunState) -> tuple[SubtaskId, ...]:
    """What must not begin before somebody approves it, in plan order."""
    if state.policy.reviewing == "none" or (state.policy.reviewing is None and not state.policy.review):
        return ()
    return tuple(id_ for id_ in state.plan.ids if _is_open(state, id_) and not approved(state, id_))


def awaited(state: RunState) -> tuple[SubtaskId, ...]:
    """The same, where a word can still let it begin: one that comes late is kept for when the run goes on."""
    return waiting(state) if state.ending in {None, "partial"} else ()


def awaits_approval(state: RunState) -> bool:
    return bool(waiting(state))


def untouched(state: RunState) -> bool:
    """Whether the plan waits as it was made: nothing of it was approved."""
    return awaits_approval(state) and state.approved is None and not state.cleared


def revising(state: RunState) -> bool:
    """Whether the planner is about to change what was rejected, so that nobody needs to be asked just now."""
    planning, last = state.planning, state.reviews[-1] if state.reviews else None
    if last is None or not last.rejected or last.version != state.plan.version:
        return False
    return planning.open is not None or (bool(planning.unread.answers) and not planning.failures)


def passing(state: RunState) -> tuple[SubtaskId, ...]:
    """What the rules let pass. Nobody's word is overruled: what a person left out or rejected waits for a person."""
    mode = state.policy.reviewing
    if mode != "auto" and not (mode == "human" and state.approved is not None):
        return ()
    return tuple(
        id_
        for id_ in waiting(state)
        if not _same(state.shelved.get(id_), state.spec(id_)) and not stopped_by(state, id_)
    )


def stopped_by(state: RunState, id_: SubtaskId) -> tuple[str, ...]:
    """Why the rules do not let a subtask of a run pass; empty where they do.

    What undoes a plan was there to be looked at with it, and an emergency is no time to look for somebody.
    """
    return () if undoes(state, id_) else concerns(state.spec(id_), state.policy, whole=state.plan.risk_level)


def concerns(subtask: Subtask, policy: Policy, *, whole: Risk = "low") -> tuple[str, ...]:
    """The same of any subtask, in a plan that is said to be so risky as a whole."""
    return tuple(_concerns(subtask, policy.rules, policy, whole))


def in_words(rules: ReviewRules) -> tuple[str, ...]:
    """The rules that say anything, as the configuration has them."""
    said = [f"max_risk = {rules.max_risk}"]
    said += [f"paths = {', '.join(rules.paths)}"] if rules.paths else []
    said += [f"workers = {', '.join(rules.workers)}"] if rules.workers else []
    said += [f"max_dollars = {rules.max_dollars:g}"] if rules.max_dollars is not None else []
    return tuple(said)


def _concerns(subtask: Subtask, rules: ReviewRules, policy: Policy, whole: Risk) -> Iterator[str]:
    if RISKS.index(subtask.risk) > RISKS.index(rules.max_risk):
        yield f"its risk is {subtask.risk}"
    elif RISKS.index(whole) > RISKS.index(rules.max_risk):
        yield f"the risk_level of its plan is {whole}"
    if rules.paths and not subtask.touches:
        yield "it names no paths, so it may change any"
    for pattern in rules.paths:
        if any(may_meet(pattern, touched) for touched in subtask.touches):
            yield f"it may change {pattern}"
    if subtask.worker in rules.workers:
        yield f"its worker is {subtask.worker}"
    if rules.max_dollars is not None:
        dollars = subtask.estimate.dollars if subtask.estimate.dollars is not None else policy.subtask_dollars
        if dollars is None:
            yield "nobody estimated what it costs"
        elif dollars > rules.max_dollars:
            yield f"it may cost ${dollars:.2f}"


def may_meet(one: str, other: str) -> bool:
    """Whether two patterns may name the same file. In doubt they do: then a person looks."""
    if matches(one, (other,)) or matches(other, (one,)):
        return True
    first, second = _fixed(one), _fixed(other)
    if first == one and second == other:
        return False
    if first == one or second == other:  # a file or a folder beside a pattern that does not name it
        name, start = (one, second) if first == one else (other, first)
        return start.startswith(f"{name.rstrip('/')}/")
    return first.startswith(second) or second.startswith(first)


def _fixed(pattern: str) -> str:
    """What a pattern says before its first wildcard."""
    ends = [at for wild in _WILD if (at := pattern.find(wild)) >= 0]
    return pattern[: min(ends)] if ends else pattern


def _is_open(state: RunState, id_: SubtaskId) -> bool:
    subtask = state.subtasks[id_]
    return not subtask.closed and subtask.current is None


def _same(one: Subtask | None, other: Subtask) -> bool:
    return one is other or one == other
