"""Applies facts about landing: batches, the result branch, lost commits."""

from typing import assert_never

from fleet.core.facts import facts as f
from fleet.core.history import merge_queue, subtask_sets
from fleet.core.history.attempt_history import fail, land
from fleet.core.history.replace import replace
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt, SubtaskState


def after(state: RunState, fact: f.LandingFact) -> RunState:
    match fact:
        case f.BatchFormed():
            return replace(state, landing=merge_queue.form_batch(state.landing, fact))
        case f.BatchTested():
            return _batch_tested(state, fact)
        case f.Published():
            return replace(state, published=fact.tip, publish_failures=0, publish_problem="", publish_aside=None)
        case f.PublishFailed():
            return _publish_failed(state, fact)
        case f.WorkLost():
            return _work_lost(state, fact)
        case _:
            assert_never(fact)


def _batch_tested(state: RunState, fact: f.BatchTested) -> RunState:
    passed = {check.command for check in fact.checks if check.passed}
    took = {check.command: check.seconds for check in fact.checks if check.command in state.gate}
    state = replace(
        state,
        landing=merge_queue.close_batch(state.landing, fact),
        tip=fact.tip,
        commits=state.commits + len(fact.landed),
        red_base=tuple(check for check in state.red_base if check.command not in passed),
        gate={**state.gate, **took},
    )
    state = land(state, fact.landed, fact.at)
    for ejected in fact.ejected:
        state = fail(state, ejected.subtask, ejected.failure, fact.at)
    return merge_queue.put_in_order(state)


def _publish_failed(state: RunState, fact: f.PublishFailed) -> RunState:
    warning = f"the result branch could not be moved: {fact.why}"
    return replace(
        state,
        publish_not_before=fact.not_before,
        publish_failures=state.publish_failures + 1,
        publish_aside=fact.tip if fact.aside else state.publish_aside,
        publish_problem=fact.why,
        warnings=state.warnings if warning in state.warnings else (*state.warnings, warning),
    )


# ---- lost commits ---------------------------------------------------------------------------------------------------


def _work_lost(state: RunState, fact: f.WorkLost) -> RunState:
    """Handle commits that are missing in git: their subtasks land again or fail, which does not count as an attempt."""
    state = _without_lost_commits(state, fact)
    lost = f.Failure(kind="infrastructure", summary="its commit is lost, so the subtask is done again")
    for id_ in fact.redo:
        state = fail(state, id_, lost, fact.at)
    return merge_queue.put_in_order(state)


def _without_lost_commits(state: RunState, fact: f.WorkLost) -> RunState:
    """Reopen the attempts that must be repeated, so that they can land or fail."""
    lost = frozenset(fact.commits)
    reopened = {*fact.reland, *fact.redo}
    subtasks = state.subtasks
    for id_, subtask in state.subtasks.items():
        after = _without_commits(_reopen(subtask) if id_ in reopened else subtask, lost)
        subtasks = subtask_sets.put(subtasks, after)
    landed = sum(state.subtasks[id_].landed is not None for id_ in reopened)
    queue = merge_queue.restart(state.landing, without=fact.redo, again=fact.reland) if reopened else state.landing
    return replace(
        state,
        tip=fact.tip,
        commits=state.commits - landed,
        published=None if fact.unpublished or state.published in lost else state.published,
        subtasks=subtasks,
        landing=queue,
    )


def _reopen(subtask: SubtaskState) -> SubtaskState:
    last = replace(subtask.attempts[-1], landed=None, tested=False, ended_at=None)
    return replace(subtask, landed=None, attempts=(*subtask.attempts[:-1], last))


def _without_commits(subtask: SubtaskState, lost: frozenset[str]) -> SubtaskState:
    """Remove the lost commits of a subtask's attempts. The commit of an area is only a tip."""

    def without(attempt: Attempt) -> Attempt:
        if attempt.commit not in lost or attempt.worker == PLANNER:
            return attempt
        return replace(attempt, commit=None, kept=False)

    if not any(attempt.commit in lost for attempt in subtask.attempts):
        return subtask
    return replace(subtask, attempts=tuple(map(without, subtask.attempts)))
