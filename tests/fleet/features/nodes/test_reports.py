"""What a node may report of an order: what it was asked for, in order, and once."""

import pytest

from fleet.core.facts.facts import CheckRun, Failure
from fleet.features.nodes.messages import FrameError
from fleet.features.nodes.node_orders import NumberedEvent, OrderFailed
from fleet.features.nodes.reports import LONGEST_OUTPUT, MOST_CAUSES, Reports, error_of, kept
from fleet.ports.orders import NodeFailedError, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import SetupFailedError

KEY = "r/attempt/a/1"
REPORT = OrderFailed(Failure(kind="infrastructure", summary="no room"))


def followed(since: int = 0) -> Reports:
    reports = Reports()
    reports.expect(KEY, since)
    return reports


@pytest.mark.parametrize(
    ("since", "events"), [(0, [REPORT]), (1, [WorkerFinished(), REPORT]), (1, [REPORT]), (2, [REPORT])]
)
def test_what_was_followed_before_goes_on_where_it_was(since: int, events: list[NumberedEvent]) -> None:
    reports = followed(since)
    for number, event in enumerate(events, since):
        reports.take(KEY, number, event)


@pytest.mark.parametrize(
    "events",
    [
        [(0, WorktreeReady()), (1, WorktreeReady())],
        [(0, WorktreeReady()), (0, WorktreeReady())],
        [(0, WorkerFinished()), (1, WorktreeReady())],
        [(0, WorktreeReady()), (2, WorkerFinished())],
        [(1, WorktreeReady())],
        [(0, REPORT), (1, REPORT)],
        [(0, REPORT), (1, WorkerFinished())],
    ],
)
def test_what_can_not_follow_breaks_the_protocol(events: list[tuple[int, NumberedEvent]]) -> None:
    reports = followed()
    for number, event in events[:-1]:
        reports.take(KEY, number, event)
    with pytest.raises(FrameError, match=r"out of order|already reported order"):
        reports.take(KEY, *events[-1])


def test_an_order_that_was_not_given_can_neither_be_reported_nor_be_unknown() -> None:
    with pytest.raises(FrameError, match="unknown"):
        followed().take("r/attempt/b/1", 0, WorktreeReady())
    with pytest.raises(FrameError, match="unknown"):
        followed().end("r/attempt/b/1")


def test_an_order_is_unknown_once() -> None:
    reports = followed()
    reports.end(KEY)
    with pytest.raises(FrameError, match="already reported"):
        reports.end(KEY)


async def test_of_a_result_nothing_is_believed_that_only_this_machine_knows_and_its_log_is_kept_here() -> None:
    claimed = CheckRun(
        criterion="it works", command="test", passed=False, output="x" * LONGEST_OUTPUT + "end", log="/etc/passwd"
    ).model_copy(update={"tree": "f" * 40, "flaky": True, "excused": "x", "causes": ("y",) * 2 * MOST_CAUSES})
    taken = list[bytes]()

    async def keep(text: bytes) -> str:
        taken.append(text)
        return "checks/1.log"

    run = await kept(claimed, "one", {}, keep)
    assert (run.log, run.tree, run.flaky, run.excused, run.node, run.passed) == ("", "", False, "", "one", False)
    assert (len(run.output), run.output[-3:], len(run.causes)) == (LONGEST_OUTPUT, "end", MOST_CAUSES)
    assert taken == []
    run = await kept(claimed, "one", {"/etc/passwd": b"$ test\n", "other": b"o"}, keep)
    assert (run.log, taken) == ("checks/1.log", [b"[on node one]\n$ test\n"])


def test_what_could_not_be_done_is_a_failure_of_the_machine_and_bounded() -> None:
    failure = Failure(kind="too_complex", summary="s" * 100_000, evidence="e" * 100_000)
    error = error_of(OrderFailed(failure), "one", None)
    assert isinstance(error, NodeFailedError)
    assert (error.failure.kind, error.failure.summary[:10]) == ("infrastructure", "node one: ")
    assert len(error.failure.summary + error.failure.evidence) < 70_000
    red = CheckRun(criterion="the set-up", command="make deps", passed=False)
    broken = error_of(OrderFailed(failure, red), "one", red)
    assert isinstance(broken, SetupFailedError)
    assert broken.check == red
