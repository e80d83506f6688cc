"""What a node may report of the orders that are followed. Anything else breaks the protocol: it can't be honest."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.core.state.facts import CheckRun
from fleet.nodes.frames import FrameError
from fleet.ports.nodes import Began, ChecksOrder, NodeFailedError, NotDone, NumberedEvent, OrderReport, Worked
from fleet.ports.worktrees import EffectError, SetupFailedError

LONGEST_OUTPUT = 64 * 1024

STEPS = (Began, Worked)
"""What an order may say before its report, each once and in this order."""


@dataclass(slots=True)
class _Followed:
    number: int
    """Of the next event."""
    step: int
    """The last one of `STEPS` that was reported; -1 before the first."""


@dataclass(slots=True)
class Reports:
    """The orders that are followed over one connection, until each has its report."""

    _followed: dict[str, _Followed] = field(default_factory=dict)

    def expect(self, key: str, since: int) -> None:
        """An order is followed from this event on."""
        self._followed[key] = _Followed(since, since - 1)

    def take(self, key: str, number: int, event: NumberedEvent) -> None:
        """An event arrived. Raises `FrameError` where it can't be the next one of an order that was given."""
        followed = self._of(key)
        is_report = isinstance(event, OrderReport)
        step = len(STEPS) if is_report else STEPS.index(type(event))
        if number != followed.number or step <= followed.step:
            raise FrameError(f"event {number} of an order, `{type(event).__name__}`, can't follow what it sent before")
        followed.number, followed.step = number + 1, step
        if is_report:
            del self._followed[key]

    def end(self, key: str) -> None:
        """The node says that it holds no such order. Raises `FrameError` where it was not asked."""
        self._of(key)
        del self._followed[key]

    def _of(self, key: str) -> _Followed:
        if (followed := self._followed.get(key)) is None:
            raise FrameError("it reports an order that it was not given, or that it has reported")
        return followed


def answers(order: ChecksOrder, runs: Sequence[CheckRun]) -> bool:
    """Whether these are the results of the very checks, of a length that a journal can hold."""
    asked = [(criterion.criterion, criterion.run or "") for criterion in order.criteria]
    return [(run.criterion, run.command) for run in runs] == asked and all(
        len(run.output) + sum(map(len, run.causes)) <= LONGEST_OUTPUT for run in runs
    )


def error_of(event: NotDone, node: str) -> EffectError:
    """What `NotDone` means here, whatever kind of failure the node calls it: no attempt is used up by it."""
    summary = f"node {node}: {event.failure.summary}"
    failure = event.failure.model_copy(update={"kind": "infrastructure", "summary": summary})
    if event.setup is None:
        return NodeFailedError(failure)
    return SetupFailedError(failure, believable(event.setup, node))


def believable(run: CheckRun, node: str) -> CheckRun:
    """A result without what is not a node's to say: where its log is, on which tree it ran, what its failure means."""
    return run.model_copy(update={"log": "", "tree": "", "flaky": False, "excused": "", "node": node})
