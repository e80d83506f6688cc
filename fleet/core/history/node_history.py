"""How each fact about a node changes the state."""

from typing import assert_never

from fleet.core.history.replace import replace
from fleet.core.state import facts as f
from fleet.core.state.nodes import NOT_CONNECTED, NodeState
from fleet.core.state.state import RunState


def after(state: RunState, fact: f.NodeFact) -> RunState:
    node = state.nodes.get(fact.node, NodeState(fact.node))
    match fact:
        case f.NodeConnected():
            return _put(state, replace(node, out="", added=False, greeting=fact))
        case f.NodeLost():
            was_there = not node.out and node.greeting is not None
            lost = replace(node, out=fact.why, banned=fact.banned, added=False, losses=node.losses + was_there)
            warning = f"node {fact.node} is out: {fact.why}"
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
    """What is known of nodes when another engine starts: it connects to all of them again."""
    nodes = {node.name: replace(node, out=NOT_CONNECTED, banned=False) for node in state.nodes.values()}
    return replace(state, nodes=nodes) if nodes else state


def _put(state: RunState, node: NodeState) -> RunState:
    return replace(state, nodes={**state.nodes, node.name: node})
