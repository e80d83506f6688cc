"""What a node may report of the orders that are followed. Anything else breaks the protocol: it can't be honest."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.state.facts import CheckRun, Failure, NodeConnected
from fleet.nodes.frames import FrameError
from fleet.nodes.messages import Greeting
from fleet.ports.nodes import Began, ChecksOrder, NodeFailedError, NotDone, NumberedEvent, OrderReport, Worked
from fleet.ports.worktrees import EffectError, SetupFailedError

LONGEST_OUTPUT = 64 * 1024
LONGEST_SUMMARY = 2_000
MOST_CAUSES = 1_000

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


def greeted(greeting: Greeting, node: str, slots: tuple[int, int], *, at: float, commits: int) -> NodeConnected:
    """What a node says of itself, as a fact, with its slots for workers and checks."""
    return NodeConnected(
        at=at,
        node=node,
        version=greeting.version,
        host=greeting.host,
        processors=greeting.processors,
        memory_bytes=greeting.memory_bytes,
        workers=slots[0],
        checks=slots[1],
        skew_s=round(greeting.time - at, 3),
        commits=commits,
    )


def answers(order: ChecksOrder, runs: Sequence[CheckRun]) -> bool:
    """Whether these are the results of the very checks, of a length that a journal can hold."""
    asked = [(criterion.criterion, criterion.run or "") for criterion in order.criteria]
    return [(run.criterion, run.command) for run in runs] == asked and all(
        len(run.output) + sum(map(len, run.causes)) <= LONGEST_OUTPUT for run in runs
    )


def error_of(event: NotDone, node: str, setup: CheckRun | None) -> EffectError:
    """What `NotDone` means here, whatever kind of failure the node calls it: no attempt is used up by it."""
    failure = Failure(
        kind="infrastructure",
        summary=f"node {node}: {event.failure.summary[:LONGEST_SUMMARY]}",
        evidence=event.failure.evidence[-LONGEST_OUTPUT:],
    )
    return SetupFailedError(failure, setup) if setup is not None else NodeFailedError(failure)


async def kept(
    run: CheckRun, node: str, logs: Mapping[str, bytes], keep: Callable[[bytes], Awaitable[str]]
) -> CheckRun:
    """A result without what is not a node's to say: on which tree it ran, what its failure means, where its log is.

    The log that came with it is kept here.
    """
    text = logs.get(run.log, b"")
    log = await keep(f"[on node {node}]\n".encode() + text) if text else ""
    said = {"output": run.output[-LONGEST_OUTPUT:], "causes": run.causes[:MOST_CAUSES]}
    return run.model_copy(update={**said, "log": log, "tree": "", "flaky": False, "excused": "", "node": node})
