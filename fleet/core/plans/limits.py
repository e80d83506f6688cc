"""The limits and choices of a run. Recorded when it starts, so that a resumed run keeps what it was given."""

from typing import Literal

from pydantic import Field

from fleet.core.plan import Risk, Shape

Reviewing = Literal["human", "auto", "none"]


class ReviewRules(Shape):
    """What a subtask may be like to begin without a person's word."""

    max_risk: Risk = "medium"
    paths: tuple[str, ...] = ()
    """Files that nobody may change without it."""
    workers: tuple[str, ...] = ()
    """Worker kinds that do not begin without it."""
    max_dollars: float | None = Field(default=None, gt=0)
    """What a subtask may cost by its estimate, or else by its limit."""


class Policy(Shape):
    """Everything `decide` weighs besides what is true. Each limit bounds something, so that every run ends."""

    workers: int = Field(default=16, ge=1, le=1000)
    """Attempts at once."""
    budget_dollars: float | None = Field(default=None, gt=0)
    budget_minutes: float | None = Field(default=None, gt=0)
    budget_tokens: int | None = Field(default=None, gt=0)
    budget_attempts: int | None = Field(default=None, gt=0)
    budget_soft: float = Field(default=0.8, gt=0, le=1)
    """The share of a budget at which the planner is told."""
    subtask_dollars: float | None = Field(default=None, gt=0)
    """What one subtask may cost, all its attempts together, until a human is asked."""
    subtask_tokens: int | None = Field(default=None, gt=0)
    subtask_minutes: float | None = Field(default=None, gt=0)
    max_attempts: int = Field(default=4, ge=1, le=50)
    """Failures of a subtask that count, until a human is asked."""
    max_retries: int = Field(default=6, ge=0, le=100)
    """Transient and infrastructure failures of a subtask, which do not count, until a human is asked."""
    max_depth: int = Field(default=3, ge=0, le=10)
    """Splits of splits."""
    max_subtasks: int = Field(default=500, ge=1)
    max_areas: int = Field(default=16, ge=0)
    """Areas of a run: subtasks with a planner of their own."""
    area_depth: int = Field(default=1, ge=0, le=5)
    """Areas within areas; 0: the run's own planner plans everything."""
    max_planner_calls: int = Field(default=300, ge=1)
    max_planner_failures: int = Field(default=5, ge=1)
    """Planner calls in a row that fail, until a human is asked."""
    settle_s: float = Field(default=2.0, ge=0)
    """How long good news waits for more of it before the planner is called."""
    backoff_first_s: float = Field(default=1.0, gt=0)
    backoff_cap_s: float = Field(default=120.0, gt=0)
    batch: int = Field(default=256, ge=1, le=500)
    """Candidates landed at once, at most."""
    slots: int = Field(default=2, ge=1, le=64)
    """Merged trees tested side by side."""
    every_commit: bool = False
    """Whether the integration branch passes only commits whose own tree passed, however long that takes."""
    every_commit_within_s: float = Field(default=60.0, ge=0)
    """The same, as long as testing all trees of what waits to land is likely to take no longer than this."""
    reruns: int = Field(default=1, ge=0, le=10)
    """Red results a verdict needs besides the first. A suspect with fewer against it is tested once more, alone."""
    check_base: bool = False
    """Whether there is a gate that the base has to pass before anything begins."""
    allow_red_base: bool = False
    """Whether the run may begin on a base that does not."""
    answer_wait_s: float = Field(default=600, ge=0)
    """How long a run with nothing else to do waits for a human's answer before it ends as partial."""
    drain_s: float = Field(default=600, ge=0)
    """How long what runs may go on once the run is drained, until it is stopped."""
    ladders: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Models of workers that have several, from the one they begin with upwards."""
    flat: bool = False
    """Whether the epic is one subtask, whatever the planner makes of it."""
    service_wait_s: float = Field(default=900, gt=0)
    """How long the models' service may fail everybody before a human is asked."""
    service_lost_s: float = Field(default=43200, gt=0)
    """How long nobody may answer that, while nothing comes through, until the run ends as partial."""
    review: bool = False
    """Whether the first plan waits for a human's approval. Alone (without `reviewing`) it is how old runs said it."""
    reviewing: Reviewing | None = None
    """Who lets a plan begin: a person the first one and the rules what changes it, the rules alone, or nobody asks."""
    rules: ReviewRules = ReviewRules()
