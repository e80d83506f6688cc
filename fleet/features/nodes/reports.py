"""Validate the reports of a node for followed orders. Other reports violate the protocol."""

import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fleet.core.facts.facts import CheckRun, Failure, NodeConnected
from fleet.features.nodes.messages import Decoder, Frame, FrameError, Greeting, encode
from fleet.features.nodes.node_orders import NumberedEvent, OrderFailed, OrderReport
from fleet.ports.orders import ChecksOrder, NodeFailedError, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import EffectError, SetupFailedError
from fleet.runs.crash_points import reached

LONGEST_OUTPUT = 64 * 1024
LONGEST_SUMMARY = 2_000
MOST_CAUSES = 1_000

STEPS = (WorktreeReady, WorkerFinished)
"""The events that may precede a report, each at most once and in this order."""


@dataclass(slots=True)
class _Followed:
    number: int
    """The number of the next event."""
    step: int
    """The index in `STEPS` of the last event, or -1 before the first."""


@dataclass(slots=True)
class Reports:
    """The orders followed over one connection that don't have a report yet."""

    _followed: dict[str, _Followed] = field(default_factory=dict)

    def expect(self, key: str, since: int) -> None:
        """Follow an order from this event on."""
        self._followed[key] = _Followed(since, since - 1)

    def take(self, key: str, number: int, event: NumberedEvent) -> None:
        """Check an event. Raises `FrameError` if it can't be the next event of a followed order."""
        followed = self._of(key)
        is_report = isinstance(event, OrderReport)
        step = len(STEPS) if is_report else STEPS.index(type(event))
        if number != followed.number or step <= followed.step:
            raise FrameError(f"event {number} (`{type(event).__name__}`) of an order is out of order")
        followed.number, followed.step = number + 1, step
        if is_report:
            del self._followed[key]

    def end(self, key: str) -> None:
        """Stop following an order that the node does not have. Raises `FrameError` if it was not followed."""
        self._of(key)
        del self._followed[key]

    def _of(self, key: str) -> _Followed:
        if (followed := self._followed.get(key)) is None:
            raise FrameError("a report for an unknown or already reported order")
        return followed


def greeted(greeting: Greeting, node: str, slots: tuple[int, int], *, at: float, commits: int) -> NodeConnected:
    """Return a greeting as a fact, with the node's slots for workers and checks."""
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
    """Return whether the results match the checks of the order, and fit into a journal."""
    asked = [(criterion.criterion, criterion.run or "") for criterion in order.criteria]
    return [(run.criterion, run.command) for run in runs] == asked and all(
        len(run.output) + sum(map(len, run.causes)) <= LONGEST_OUTPUT for run in runs
    )


def error_of(event: OrderFailed, node: str, setup: CheckRun | None) -> EffectError:
    """Return the error for `OrderFailed`. It is always an infrastructure failure, which does not use up an attempt."""
    failure = Failure(
        kind="infrastructure",
        summary=f"node {node}: {event.failure.summary[:LONGEST_SUMMARY]}",
        evidence=event.failure.evidence[-LONGEST_OUTPUT:],
    )
    return SetupFailedError(failure, setup) if setup is not None else NodeFailedError(failure)


async def kept(
    run: CheckRun, node: str, logs: Mapping[str, bytes], keep: Callable[[bytes], Awaitable[str]]
) -> CheckRun:
    """Remove the fields that a node may not set (tree, meaning of a failure, log path), and store its log here."""
    text = logs.get(run.log, b"")
    log = await keep(f"[on node {node}]\n".encode() + text) if text else ""
    said = {"output": run.output[-LONGEST_OUTPUT:], "causes": run.causes[:MOST_CAUSES]}
    return run.model_copy(update={**said, "log": log, "tree": "", "flaky": False, "excused": "", "node": node})


# ---- spool -----------------------------------------------------------------------------------------------------------
# Stores reports on the node's disk until they are fetched, so that a restarted manager finds them.
#
# Each running order holds a lock, which other processes of this node can see. The kernel releases it when the process
# ends for any reason.


MOST_LISTED = 256


@dataclass(frozen=True, slots=True)
class Spool:
    """The orders of one run on this node."""

    folder: Path

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, key: str, frame: Frame) -> None:
        """Write a report atomically."""
        path = self._path(key)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(encode(frame))
        reached("a node has written a report, and not in its place")
        new.replace(path)
        reached("a node keeps a report")

    def get(self, key: str) -> Frame | None:
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        try:
            return next(Decoder().feed(data), None)
        except FrameError:
            return None

    def forget(self, key: str) -> None:
        for path in (self._path(key), self._lock_path(key)):
            with suppress(OSError):
                path.unlink()
            reached("a node forgets an order")

    def keys(self) -> list[str]:
        """Return the orders that are finished or running in any process."""
        if not self.folder.is_dir():
            return []
        locks = sorted(self.folder.glob("*.lock"))[:MOST_LISTED]
        return [key for path in locks if self.holds(key := path.read_text(encoding="utf-8")) and key]

    def reports(self) -> list[Path]:
        """Return the reports that were not fetched yet."""
        return sorted(self.folder.glob("*.report"))

    def holds(self, key: str) -> bool:
        """Return whether an order is finished or running. The report is written before the lock is released."""
        return self.is_locked(key) or self._path(key).exists()

    def is_locked(self, key: str) -> bool:
        try:
            fd = os.open(self._lock_path(key), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    @contextmanager
    def locked(self, key: str) -> Iterator[bool]:
        """Lock an order during the block, and yield whether this process got the lock."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self._lock_path(key), flags, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            os.pwrite(fd, key.encode(), 0)
            reached("a node has taken an order")
            yield True
        finally:
            os.close(fd)

    def _path(self, key: str) -> Path:
        return self.folder / f"{sha256(key.encode()).hexdigest()[:32]}.report"

    def _lock_path(self, key: str) -> Path:
        return self._path(key).with_suffix(".lock")
