"""Applies facts about the run: its engine, base, budget, model service and end."""

from typing import assert_never

from fleet.core.base.usage import Cost, Spend
from fleet.core.facts import facts as f
from fleet.core.history import planner_history, subtask_sets
from fleet.core.history.attempt_history import stop_attempts
from fleet.core.history.plan_history import add_version, drop_open, settle_questions
from fleet.core.history.replace import replace
from fleet.core.history.subtask_sets import change_attempt, give_up
from fleet.core.state.state import NOT_CONNECTED, NodeState, Outage, RunState
from fleet.core.state.status import planning_of
from fleet.core.state.subtasks import Attempt


def start(fact: f.RunStarted) -> RunState:
    """The first state of a run."""
    state = RunState(
        run=fact.run,
        goal=fact.goal,
        repository=fact.repository,
        base=fact.base,
        base_name=fact.base_name,
        result_branch=fact.result_branch,
        policy=fact.policy,
        started_at=fact.at,
        last_at=fact.at,
        sandbox=fact.sandbox,
        simulated=fact.simulated,
        choices=fact.choices,
        gate_command=fact.gate,
        tip=fact.base,
        rehearsal=fact.rehearsal,
        relanding=fact.relanding,
        issue=fact.issue,
    )
    if fact.plan is None:
        return state
    state = replace(state, given=True, rollback=fact.rollback, values=fact.values)
    return add_version(state, fact.plan, at=fact.at, by="operator", why="the plan given to the run")


def after(state: RunState, fact: f.RunFact) -> RunState:  # noqa: C901, PLR0912 - one case a fact
    match fact:
        case f.RunStarted():
            return start(fact)
        case f.EngineStarted():
            return _engine_started(state, fact)
        case f.EngineStopped():
            return replace(state, active_s=state.seconds(fact.at), engine_since=None, held=Cost())
        case f.BaseChecked():
            red = tuple(check for check in fact.checks if not check.fine)
            gate = {check.command: check.seconds for check in fact.checks}
            checked = replace(state, base_checked=True, base_checks=fact.checks, base_failure=fact.failure)
            return replace(checked, red_base=red, gate=gate)
        case f.SetupRan():
            is_of_base = fact.setup.commit == state.base and not fact.setup.check.node
            return replace(state, setup=fact.setup) if is_of_base else state
        case f.WarningNoted():
            return replace(state, warnings=(*state.warnings, fact.text))
        case f.EvidenceRead():
            return replace(state, past=fact.tallies, past_estimates=fact.estimates)
        case f.ModelCalled():
            return _model_called(state, fact)
        case f.CallsHeld():
            return replace(state, held=fact.cost)
        case f.CallLost():
            return replace(state, doubt=state.doubt + fact.cost)
        case f.CallRefused():
            return replace(state, refused=fact.why)
        case f.BudgetRanLow():
            return replace(state, low=fact.why)
        case f.ServiceChanged():
            return _service_changed(state, fact)
        case f.GateTried():
            return replace(state, gate_tried=fact)
        case f.RehearsalNoted():
            return replace(state, rehearsed=(*state.rehearsed, fact))
        case f.ResultScored():
            return replace(state, scored={**state.scored, fact.subtask: fact})
        case f.RollbackStarted():
            return _rollback_started(state, fact)
        case f.RunEnded():
            return _ended(state, fact)
        case f.RunReopened():
            return _reopened(state)
        case _:
            assert_never(fact)


NOTHING = Spend()


def _engine_started(state: RunState, fact: f.EngineStarted) -> RunState:
    """Running work was interrupted. Unless the last engine stopped in good order, the cost of its calls is in doubt.

    Another engine may have another key or model, so it finds out again whether the model service answers.
    """
    active_s = state.seconds(state.last_at)
    for subtask, _ in list(state.underway()):
        state = change_attempt(state, subtask.id, lambda attempt: replace(attempt, working=False))
    state = replace(
        forget_connections(state) if state.nodes else state,
        epoch=fact.epoch,
        draining=False,
        sandbox=fact.sandbox or state.sandbox,
        base_url=fact.base_url,
        choices=fact.choices or state.choices,
        has_planner=fact.planner,
        doubt=state.doubt + state.held,
        held=Cost(),
        active_s=active_s,
        engine_since=fact.at,
        service={},
    )
    held_up = [question.id for question in state.open_questions() if question.holds_all]
    return settle_questions(state, held_up, answer="the run was resumed", by="fleet")


def _service_changed(state: RunState, fact: f.ServiceChanged) -> RunState:
    if fact.condition == "up":
        service = {scope: outage for scope, outage in state.service.items() if scope != fact.scope}
        ids = [question.id for question in state.open_questions() if question.service == fact.scope]
        return settle_questions(replace(state, service=service), ids, answer="the service responds again", by="fleet")
    before = state.service.get(fact.scope)
    since = before.since if before is not None and before.condition == fact.condition else fact.at
    outage = Outage(condition=fact.condition, why=fact.why, since=since)
    return replace(state, service={**state.service, fact.scope: outage})


def _model_called(state: RunState, fact: f.ModelCalled) -> RunState:
    spend = {**state.spend, fact.role: state.spend.get(fact.role, NOTHING).plus(fact.usage, fact.dollars)}
    if (id_ := fact.subtask) is None:
        planning = planning_of(state, fact.area)
        planning = replace(planning, turn=fact.turn, doing=fact.doing, said=fact.said or planning.said)
        state = planner_history.put_planning(state, fact.area, planning)
        if (id_ := fact.area) is None:
            return replace(state, spend=spend)
    subtask = state.subtasks[id_]
    number = fact.attempt if fact.subtask is not None else len(subtask.attempts)
    place = next((place for place, attempt in enumerate(subtask.attempts) if attempt.number == number), None)
    if place is None:
        return replace(state, spend=spend)
    attempt = _counted(subtask.attempts[place], fact)
    attempts = (*subtask.attempts[:place], attempt, *subtask.attempts[place + 1 :])
    subtasks = subtask_sets.put(state.subtasks, replace(subtask, attempts=attempts))
    state = replace(state, spend=spend, subtasks=subtasks)
    return planner_history.spend_in_areas(state, subtask, attempt, fact.dollars or 0.0)


def _counted(attempt: Attempt, fact: f.ModelCalled) -> Attempt:
    spend, said = attempt.spend.plus(fact.usage, fact.dollars), fact.said or attempt.said
    if fact.role == "reviewer":  # about the attempt, and not by its worker
        return replace(attempt, spend=spend)
    return replace(attempt, spend=spend, turn=fact.turn, doing=fact.doing, said=said, model=fact.model)


def _rollback_started(state: RunState, fact: f.RollbackStarted) -> RunState:
    """Replace all open subtasks by the rollback plan. Finished work stays."""
    undo = state.rollback
    if undo is None:
        return state
    state = stop_attempts(state, fact.at)
    state = drop_open(state, state.subtasks, fact.why, answer="the rollback plan started", by="fleet")
    state = give_up(state, None, "rolled back", fact.at)
    plan = state.plan.model_copy(
        update={"version": state.plan.version + 1, "subtasks": (*state.plan.subtasks, *undo.subtasks)}
    )
    state = add_version(state, plan, at=fact.at, by="fleet", why=f"rollback plan {undo.plan_id}: {fact.why}")
    return replace(state, undoing=fact.why)


def _ended(state: RunState, fact: f.RunEnded) -> RunState:
    active_s = state.seconds(fact.at)
    state = give_up(state, None, "ended", fact.at)
    state = replace(state, ending=fact.ending, ending_why=fact.why, ended_at=fact.at)
    return planner_history.close_calls(replace(state, active_s=active_s, engine_since=None, held=Cost()))


def _reopened(state: RunState) -> RunState:
    state = replace(state, ending=None, ending_why="", ended_at=None, cancelled=False)
    base_checked = state.base_checked and state.commits > 0
    state = replace(state, publish_failures=0, publish_not_before=0.0, publish_aside=None, base_checked=base_checked)
    return planner_history.renew_patience(state)


# ---- node history ----------------------------------------------------------------------------------------------------
# How each fact about a node changes the state.


def after_node(state: RunState, fact: f.NodeFact) -> RunState:
    node = state.nodes.get(fact.node, NodeState(fact.node))
    match fact:
        case f.NodeConnected():
            return _put(state, replace(node, out="", added=False, greeting=fact))
        case f.NodeLost():
            was_there = not node.out and node.greeting is not None
            lost = replace(node, out=fact.why, banned=fact.banned, added=False, losses=node.losses + was_there)
            warning = f"node {fact.node} is unavailable: {fact.why}"
            return replace(_put(state, lost), warnings=(*state.warnings, warning))
        case f.NodeAddRequested():
            return _put(state, replace(node, added=True, drained_by=""))
        case f.NodeDrained(by=by):
            return _put(state, replace(node, drained_by=by))
        case f.NodeUndrained():
            return _put(state, replace(node, drained_by=""))
        case _:
            assert_never(fact)


def forget_connections(state: RunState) -> RunState:
    """Reset the connections to nodes when another engine starts. It connects to all nodes again."""
    nodes = {node.name: replace(node, out=NOT_CONNECTED, banned=False) for node in state.nodes.values()}
    return replace(state, nodes=nodes)


def _put(state: RunState, node: NodeState) -> RunState:
    return replace(state, nodes={**state.nodes, node.name: node})
