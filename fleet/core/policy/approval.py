"""Which subtasks may start: those that a person approved, or that the rules of `[review]` approve. Queries only.

A subtask is approved as it is: after any change it waits again.
"""

from collections.abc import Iterator

from fleet.core.base.ids import SubtaskId
from fleet.core.base.paths import matches
from fleet.core.plans.limits import Policy, ReviewRules
from fleet.core.plans.plan import Risk, Subtask
from fleet.core.policy.rollback import is_rollback_step
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Set, is_same

RISKS: tuple[Risk, ...] = ("low", "medium", "high")
_WILDCARDS = "*?["


def is_approved(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask may start as it is now."""
    match state.policy.reviewing:
        case None:  # a run from before there were rules: its first plan waited, or nothing did
            return not state.policy.review or state.approved is not None
        case "none":
            return True
        case _:
            return is_same(state.cleared.get(id_), state.spec(id_))


def waiting_for_approval(state: RunState) -> tuple[SubtaskId, ...]:
    """The subtasks that must not start before they are approved, in plan order."""
    return tuple(state.subtasks.in_plan_order(unapproved(state)))


def unapproved(state: RunState) -> Set:
    """The same as a set."""
    undecided = state.subtasks.undecided
    match state.policy.reviewing:
        case None:
            return undecided if state.policy.review and state.approved is None else 0
        case "none":
            return 0
        case _:
            return undecided & ~state.subtasks.approved


def open_for_approval(state: RunState) -> tuple[SubtaskId, ...]:
    """The same, while an approval still has an effect. After a partial end, it takes effect when the run continues."""
    return waiting_for_approval(state) if state.ending in {None, "partial"} else ()


def awaits_approval(state: RunState) -> bool:
    return bool(unapproved(state))


def is_unreviewed(state: RunState) -> bool:
    """Whether the plan waits and nothing of it was approved yet."""
    return awaits_approval(state) and state.approved is None and not state.cleared


def is_being_revised(state: RunState) -> bool:
    """Whether the planner is about to change what was rejected, so that no one needs to be asked now."""
    planning, last = state.planning, state.reviews[-1] if state.reviews else None
    if last is None or not last.rejected or last.version != state.plan.version:
        return False
    return planning.open is not None or (bool(planning.unread.answers) and not planning.failures)


def approved_by_rules(state: RunState) -> tuple[SubtaskId, ...]:
    """The waiting subtasks that the rules approve. A subtask that a person left out or rejected waits for a person."""
    mode = state.policy.reviewing
    if mode != "auto" and not (mode == "human" and state.approved is not None):
        return ()
    undecided = (id_ for id_ in waiting_for_approval(state) if not is_same(state.shelved.get(id_), state.spec(id_)))
    return tuple(id_ for id_ in undecided if not objections(state, id_))


def objections(state: RunState, id_: SubtaskId) -> tuple[str, ...]:
    """Why the rules do not approve a subtask of a run; empty if they do.

    The steps of a rollback plan need no approval: they were reviewed with the plan, and must not wait in an emergency.
    """
    if is_rollback_step(state, id_):
        return ()
    return rule_objections(state.spec(id_), state.policy, plan_risk=state.plan.risk_level)


def rule_objections(subtask: Subtask, policy: Policy, *, plan_risk: Risk = "low") -> tuple[str, ...]:
    """Why the rules do not approve a subtask of a plan with this risk; empty if they do."""
    return tuple(_rule_objections(subtask, policy.rules, policy, plan_risk))


def _rule_objections(subtask: Subtask, rules: ReviewRules, policy: Policy, plan_risk: Risk) -> Iterator[str]:
    if RISKS.index(subtask.risk) > RISKS.index(rules.max_risk):
        yield f"its risk is {subtask.risk}"
    elif RISKS.index(plan_risk) > RISKS.index(rules.max_risk):
        yield f"the risk_level of its plan is {plan_risk}"
    if rules.paths and not subtask.touches:
        yield "it lists no paths, so it may change any file"
    for pattern in rules.paths:
        if any(may_overlap(pattern, touched) for touched in subtask.touches):
            yield f"it may change {pattern}"
    if subtask.worker in rules.workers:
        yield f"its worker is {subtask.worker}"
    if rules.max_dollars is not None:
        dollars = subtask.estimate.dollars if subtask.estimate.dollars is not None else policy.subtask_dollars
        if dollars is None:
            yield "its cost is not estimated"
        elif dollars > rules.max_dollars:
            yield f"it may cost ${dollars:.2f}"


def rules_text(rules: ReviewRules) -> tuple[str, ...]:
    """The rules that have a value, as in the configuration."""
    lines = [f"max_risk = {rules.max_risk}"]
    lines += [f"paths = {', '.join(rules.paths)}"] if rules.paths else []
    lines += [f"workers = {', '.join(rules.workers)}"] if rules.workers else []
    lines += [f"max_dollars = {rules.max_dollars:g}"] if rules.max_dollars is not None else []
    return tuple(lines)


def may_overlap(one: str, other: str) -> bool:
    """Whether two patterns may match the same file. In doubt they do, so that a person reviews it."""
    if matches(one, (other,)) or matches(other, (one,)):
        return True
    first, second = _before_wildcards(one), _before_wildcards(other)
    if first == one and second == other:
        return False
    if first == one or second == other:  # a file or a folder beside a pattern that does not match it
        name, start = (one, second) if first == one else (other, first)
        return start.startswith(f"{name.rstrip('/')}/")
    return first.startswith(second) or second.startswith(first)


def _before_wildcards(pattern: str) -> str:
    ends = [at for wildcard in _WILDCARDS if (at := pattern.find(wildcard)) >= 0]
    return pattern[: min(ends)] if ends else pattern
