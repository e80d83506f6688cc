"""What facts say about the cost and the time of subtasks to come, and the parts of forecasts in early journals."""

from pydantic import Field

from fleet.core.plans.plan import Shape
from fleet.core.plans.rungs import Ladder, Size


class Spread(Shape):
    """The median of some amounts, the lowest and the highest."""

    median: float
    """Half of them are at most this."""
    low: float
    """The lowest."""
    high: float
    """The highest."""


class SubtaskEstimate(Shape):
    """What comparable subtasks cost and took until they landed, all attempts of each included."""

    worker: str
    size: Size
    """By the estimate in the plan."""
    model: str | None = None
    """The model that landed them; none: a program did."""
    landed: int = 0
    """How many landed subtasks it is based on; 0: fewer than five, so there are no figures."""
    dollars: Spread | None = None
    """None if the price of a model is unknown, and for programs."""
    seconds: Spread | None = None
    """Seconds of work. None if fewer than five of them landed in runs without interruption."""


# ---- kept so that old journals load: nothing writes these any more --------------------------------------------------


class CallTally(Shape):
    """Calls of a run's own planner with one model: what they took and cost together."""

    model: str
    first: bool
    """Whether they are the first calls of their runs, which read the repository; the others are shorter."""
    calls: int = 0
    seconds: float = 0.0
    dollars: float | None = 0.0
    """None if the price of a part is unknown."""


class Assumed(Shape):
    """What an early version assumed that a run costs and takes until something is seen."""

    ladders: dict[str, Ladder] = Field(default={})
    """A ladder for every worker that calls a model, also for those without rungs: their models."""
    planner: tuple[CallTally, ...] = ()
    """One first call of the planner, and one of the others."""
    gate_s: float = Field(default=60.0, ge=0)
    """What the gate takes until it was run."""
    program_s: float = Field(default=60.0, ge=0)
    """What a worker takes that is a program, at a medium subtask without an estimate."""


class Expectation(Shape):
    """An amount that is expected, with its doubt."""

    median: float
    """Half of all runs should need at most this."""
    p90: float
    """Nine of ten runs should need at most this."""


class Forecast(Shape):
    """What an early version expected a run to cost and to take, before anything was done."""

    dollars: Expectation | None
    """Of workers and planner together; none if no price is known."""
    planner: float = 0.0
    """The planner's part of the median."""
    minutes: Expectation
    """At work, with the workers of the run; waiting for people is not in it."""
    subtasks: int
    """How many subtasks the plan has."""
    workers: int
    """How many agents may work at once."""
    attempts: int = 0
    """How many earlier attempts it rests on; 0: on assumptions alone."""
    calls: int = 0
    """How many earlier calls of the planner it rests on."""
    unpriced: int = 0
    """Subtasks whose cost is unknown: it is left out of the dollars."""
    areas: int = 0
    """Areas, which are not planned yet: they are left out."""
