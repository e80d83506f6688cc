"""What facts say about costs and times: what is assumed of a run, what was seen of its planner, what is forecast."""

from pydantic import Field

from fleet.core.plans.plan import Shape
from fleet.core.plans.rungs import Ladder


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
    """What a run is assumed to cost and to take until something is seen."""

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
    """What a run is expected to cost and to take from its beginning to its end, before anything was done."""

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
