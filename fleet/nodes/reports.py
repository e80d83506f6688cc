"""What a node may report of the orders that are followed. Anything else breaks the protocol: it can't be honest."""

from dataclasses import dataclass, field

from fleet.nodes.frames import FrameError
from fleet.ports.nodes import Began, NumberedEvent, OrderReport, Worked

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
