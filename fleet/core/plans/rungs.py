"""Rungs: a worker's model and its effort, and the ladder that they make.

A size is what an estimate says about a subtask: how a rung does depends on it.
"""

from typing import Literal, get_args

from pydantic import Field

from fleet.core.plans.plan import Effort, Estimate, Shape

Size = Literal["small", "medium", "large"]
SIZES: tuple[Size, ...] = get_args(Size)
EFFORTS: tuple[Effort, ...] = get_args(Effort)
ENOUGH = 5  # subtasks or attempts observed; fewer say nothing about the next one
SMALL_LINES, SMALL_MINUTES = 40, 5.0
LARGE_LINES, LARGE_MINUTES = 200, 20.0


class Rung(Shape):
    """One rung of a ladder. Its last three fields are kept so that old journals load: nothing writes them any more."""

    model: str
    effort: Effort | None = None
    """None: as the model tries by default."""
    lands: float | None = None
    dollars: float | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """As in the configuration: `claude-opus-5-5 low`."""
        return self.model if self.effort is None else f"{self.model} {self.effort}"


class Ladder(Shape):
    """The rungs of a worker, the weakest first."""

    rungs: tuple[Rung, ...] = Field(min_length=1)
    first: int | None = Field(default=None, ge=0)
    """The rung on which every subtask begins; None: the cheapest by observed cost per landed subtask."""


def parse_rung(text: str) -> tuple[str, Effort | None]:
    """The model and the effort of a rung as it is written. Raises `ValueError`."""
    match text.split():
        case [model]:
            return model, None
        case [model, word]:
            effort = next((effort for effort in EFFORTS if effort == word), None)
            if effort is None:
                raise ValueError(f"must end with an effort ({', '.join(EFFORTS)}) or with none, not with {word}")
            return model, effort
        case _:
            raise ValueError("must be a model, or a model and an effort: claude-opus-5-5 low")


def size_of(estimate: Estimate) -> Size:
    """The size of a subtask: the larger of what its lines and its minutes say. Without either, medium."""
    sizes = []
    if estimate.lines is not None:
        sizes.append(_size(estimate.lines, SMALL_LINES, LARGE_LINES))
    if estimate.minutes is not None:
        sizes.append(_size(estimate.minutes, SMALL_MINUTES, LARGE_MINUTES))
    return SIZES[max(sizes, default=1)]


def _size(amount: float, small: float, large: float) -> int:
    return 0 if amount <= small else 2 if amount > large else 1
