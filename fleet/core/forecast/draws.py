"""Numbers that look random and are always the same, so that a forecast is a pure function."""

from math import exp, log, sqrt
from statistics import NormalDist

_PLACES = 1 << 10
_NORMAL = tuple(NormalDist().inv_cdf((place + 0.5) / _PLACES) for place in range(_PLACES))
_FACTOR, _ADDED, _BITS = 6364136223846793005, 1442695040888963407, 64  # Knuth's linear congruential generator
_MASK, _TOP = (1 << _BITS) - 1, _BITS - _PLACES.bit_length() + 1


def width_of(spread: float) -> float:
    """The width of a log-normal amount whose standard deviation is this share of its mean."""
    return sqrt(log(1.0 + spread**2))


class Draws:
    """One sequence of numbers; the same each time."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 1

    def share(self) -> float:
        """Between 0 and 1."""
        self._last = (self._last * _FACTOR + _ADDED) & _MASK
        return self._last / (_MASK + 1)

    def normal(self) -> float:
        """As from a normal distribution."""
        self._last = (self._last * _FACTOR + _ADDED) & _MASK
        return _NORMAL[self._last >> _TOP]

    def factor(self, width: float) -> float:
        """A log-normal amount with a mean of 1."""
        return exp(width * self.normal() - width * width / 2)
