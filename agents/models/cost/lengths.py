"""How long answers usually are: what a budget reserves for the next one, instead of the most that it may take."""

import math
from collections import deque
from dataclasses import dataclass, field

FLOOR = 8_000  # tokens that are always reserved
ENOUGH = 20  # answers before what was seen counts
REMEMBERED = 500  # answers of each model
PERCENTILE = 0.99
MARGIN = 1.25


@dataclass(slots=True)
class AnswerLengths:
    """The latest answers of each model, by their tokens, thinking included."""

    _seen: dict[str, deque[int]] = field(default_factory=dict)

    def saw(self, model: str, tokens: int) -> None:
        self._seen.setdefault(model, deque(maxlen=REMEMBERED)).append(tokens)

    def usual(self, model: str, most: int) -> int:
        """What an answer that may take `most` tokens hardly ever exceeds."""
        return min(most, usual_length(self._seen.get(model, ())))


def usual_length(seen: "deque[int] | tuple[int, ...]") -> int:
    """A high percentile of what was seen and a margin; never below the floor."""
    if len(seen) < ENOUGH:
        return FLOOR
    ordered = sorted(seen)
    return max(FLOOR, math.ceil(MARGIN * ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))]))
