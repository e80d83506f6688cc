"""Requests of one conversation grow at their end: what a request shares with the one before it does not travel again.

Both ends remember the last request of each order on their connection, in the order in which they are sent.
"""

from dataclasses import dataclass, field

from fleet.nodes.frames import FrameError
from fleet.ports.calls import LONGEST_REQUEST


@dataclass(slots=True)
class Shortened:
    """The node's end."""

    _last: dict[str, bytes] = field(default_factory=dict)

    def shortened(self, key: str, request: bytes) -> tuple[int, bytes]:
        """How many bytes the request shares with the one before, and the others."""
        same = _common(self._last.get(key, b""), request)
        self._last[key] = request
        return same, request[same:]

    def forget(self, key: str) -> None:
        self._last.pop(key, None)


@dataclass(slots=True)
class Restored:
    """The manager's end."""

    _last: dict[str, bytes] = field(default_factory=dict)

    def restored(self, key: str, same: int, rest: bytes) -> bytes:
        """The whole request. Raises `FrameError`."""
        last = self._last.get(key, b"")
        if same > len(last) or same + len(rest) > LONGEST_REQUEST:
            raise FrameError(f"a request of {same} bytes that are known, of {len(last)}, and {len(rest)} more")
        request = self._last[key] = last[:same] + rest
        return request

    def forget(self, key: str) -> None:
        self._last.pop(key, None)


def _common(first: bytes, second: bytes) -> int:
    """The length of the longest common beginning. Compares halves, because that is done without a loop per byte."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
