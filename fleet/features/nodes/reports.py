"""What a node may report of the orders that are followed. Anything else breaks the protocol: it can't be honest."""

import fcntl
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from fleet.core.facts.facts import CheckRun, Failure, NodeConnected
from fleet.features.nodes.messages import Decoder, Frame, FrameError, Greeting, encode
from fleet.features.nodes.node_orders import NotDone, NumberedEvent, OrderReport
from fleet.ports.orders import Began, ChecksOrder, NodeFailedError, Worked
from fleet.ports.worktrees import EffectError, SetupFailedError
from fleet.runs.crash_points import reached

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


# ---- spool -----------------------------------------------------------------------------------------------------------
# Reports that wait to be fetched, on a node's disk: a manager that was killed finds them when it comes back.
#
# A lock for each order shows, to other processes of this node too, that it is still being worked on: the kernel
# releases it however the process ends.


MOST_LISTED = 256


@dataclass(frozen=True, slots=True)
class Spool:
    """The orders of one run on this node."""

    folder: Path

    def make(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, key: str, frame: Frame) -> None:
        """Keep a report. It is there as a whole or not at all."""
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
        """The orders that are finished or being worked on, by any process."""
        if not self.folder.is_dir():
            return []
        locks = sorted(self.folder.glob("*.lock"))[:MOST_LISTED]
        return [key for path in locks if self.holds(key := path.read_text(encoding="utf-8")) and key]

    def reports(self) -> list[Path]:
        """The reports that were not fetched yet."""
        return sorted(self.folder.glob("*.report"))

    def holds(self, key: str) -> bool:
        """Whether an order is finished, or being worked on. Its report is there before its lock is released."""
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
        """Whether the order is ours to work on while the block lasts."""
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
