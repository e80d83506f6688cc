"""Which machine an order goes to, as a pure choice."""

import pytest

from fleet.features.nodes.placement import NodeMachine, choose_for_attempt, choose_for_checks

GPU = frozenset({"gpu"})


def machine(name: str = "", free: float = 1.0, **more: object) -> NodeMachine:
    return NodeMachine(name, free, **more)  # type: ignore[arg-type]


def name(chosen: NodeMachine | None) -> str | None:
    return chosen.name if chosen is not None else None


@pytest.mark.parametrize(
    ("here", "nodes", "wanted", "chosen"),
    [
        (machine(), [], (), ""),
        (machine(), [machine("one", 0.5), machine("two", 0.7)], (), "two"),
        (machine(), [machine("one", 0.5, has_base=True), machine("two", 0.7)], (), "one"),
        (machine(), [machine("one", 0.0)], (), ""),
        (machine(free=0.0), [machine("one", 0.0)], (), None),
        (machine(free=-1.0), [], (), ""),
        (machine(), [machine("one", labels=GPU), machine("two", 0.1)], (), "two"),
        (machine(), [machine("one", labels=GPU)], (), "one"),
        (machine(), [machine("one", 0.1, labels=GPU), machine("two")], GPU, "one"),
        (machine(labels=GPU), [machine("two")], GPU, ""),
        (machine(), [machine("two")], GPU, None),
        (machine(), [machine("one", 0.0, labels=GPU), machine("two")], GPU, None),
        (machine(), [machine("one", takes_work=False)], (), ""),
        (machine(), [machine("one", labels=GPU, takes_work=False)], GPU, None),
        (machine(), [machine("one", 0.0, holds=True, takes_work=False), machine("two")], (), "one"),
    ],
    ids=[
        "without nodes it is done here",
        "the freest node",
        "the one that has the base",
        "here when all slots are taken",
        "waits when all is taken, here too",
        "without nodes nothing waits",
        "plain machines before those with labels",
        "a labelled node rather than none",
        "what needs a label goes where it is",
        "this machine's own labels count",
        "no machine with the label",
        "the only one with the label is full",
        "a drained node gets nothing",
        "what needs a label waits for a drained node",
        "what a node holds is asked of it, drained or not",
    ],
)
def test_an_attempt_goes_where_there_is_room_and_what_it_needs(
    here: NodeMachine, nodes: list[NodeMachine], wanted: frozenset[str], chosen: str | None
) -> None:
    assert name(choose_for_attempt(here, nodes, wanted)) == chosen


@pytest.mark.parametrize(
    ("here", "nodes", "wanted", "chosen"),
    [
        (machine(free=0.5), [machine("one", 0.5)], (), "one"),
        (machine(free=0.6), [machine("one", 0.5)], (), ""),
        (machine(free=-2.0), [machine("one", -1.0)], (), "one"),
        (machine(), [machine("one", -1.0, labels=GPU)], GPU, "one"),
        (machine(), [machine("one")], GPU, None),
        (machine(free=-1.0), [machine("one", takes_work=False)], (), ""),
        (machine(), [machine("one", -1.0, holds=True)], (), "one"),
    ],
)
def test_checks_go_where_most_is_free_and_wait_only_for_a_label(
    here: NodeMachine, nodes: list[NodeMachine], wanted: frozenset[str], chosen: str | None
) -> None:
    assert name(choose_for_checks(here, nodes, wanted)) == chosen
