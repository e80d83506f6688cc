"""The limits and choices of a run. Recorded when it starts, so that a resumed run keeps them."""

from typing import Literal, get_args

from pydantic import Field, JsonValue

from fleet.core.plans.plan import Effort, Estimate, FrozenModel, Risk, Subtask

# ---- rungs -----------------------------------------------------------------------------------------------------------
# Rungs: a worker's model and its effort, and the ladder that they make.
#
# The size of a subtask comes from its estimate. The success of a rung depends on it.


Size = Literal["small", "medium", "large"]
SIZES: tuple[Size, ...] = get_args(Size)
EFFORTS: tuple[Effort, ...] = get_args(Effort)
ENOUGH = 5  # minimum number of observed subtasks or attempts for a prediction
SMALL_LINES, SMALL_MINUTES = 40, 5.0
LARGE_LINES, LARGE_MINUTES = 200, 20.0


class Rung(FrozenModel):
    """One rung of a ladder. The last three fields are not written any more, so that old journals load."""

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


class Ladder(FrozenModel):
    """The rungs of a worker, the weakest first."""

    rungs: tuple[Rung, ...] = Field(min_length=1)
    first: int | None = Field(default=None, ge=0)
    """Rung on which every subtask starts. None: the cheapest rung per landed subtask, as observed."""


def parse_rung(text: str) -> tuple[str, Effort | None]:
    """The model and the effort of a rung as it is written. Raises `ValueError`."""
    match text.split():
        case [model]:
            return model, None
        case [model, word]:
            effort = next((effort for effort in EFFORTS if effort == word), None)
            if effort is None:
                raise ValueError(f"must be a model, or a model and one of these efforts: {', '.join(EFFORTS)}")
            return model, effort
        case _:
            raise ValueError("must be a model, or a model and an effort: claude-opus-5-5 low")


def size_of(estimate: Estimate) -> Size:
    """Return the size of a subtask: the larger of its sizes by lines and by minutes. Without either, medium."""
    sizes = []
    if estimate.lines is not None:
        sizes.append(_size(estimate.lines, SMALL_LINES, LARGE_LINES))
    if estimate.minutes is not None:
        sizes.append(_size(estimate.minutes, SMALL_MINUTES, LARGE_MINUTES))
    return SIZES[max(sizes, default=1)]


def _size(amount: float, small: float, large: float) -> int:
    return 0 if amount <= small else 2 if amount > large else 1


# ---- limits ----------------------------------------------------------------------------------------------------------


Reviewing = Literal["human", "auto", "none"]


class RunOverrides(FrozenModel):
    """Settings of a single run, in addition to the files of the user and the repository."""

    config_file: str | None = None
    """The file of `--config`. It is read again when the run is resumed, as the other files are."""
    flags: dict[str, JsonValue] = Field(default={})
    """The keys that options of the command line set, as tables."""
    environment: dict[str, JsonValue] = Field(default={})
    """The keys that FLEET_* variables set, as tables."""
    withheld: dict[str, Literal["flag", "environment"]] = Field(default={})
    """Keys whose value may hold a secret and is not kept, and where it was set: who resumes the run gives it again."""


class ReviewRules(FrozenModel):
    """Conditions under which a subtask may start without a human's approval."""

    max_risk: Risk = "medium"
    paths: tuple[str, ...] = ()
    """Files whose change needs approval."""
    workers: tuple[str, ...] = ()
    """Worker kinds that need approval."""
    max_dollars: float | None = Field(default=None, gt=0)
    """The most a subtask may cost, by its estimate or else by its limit."""


HERE = ""
"""Name of the manager's machine among the machines of a run."""


class MachineOffer(FrozenModel):
    """Work that a machine may do for a run."""

    labels: tuple[str, ...] = ()
    lands: bool = False
    """Whether its verdict on a merged tree counts."""
    works: bool = True
    """Whether it takes attempts."""


class Machines(FrozenModel):
    """The machines that may ever work for a run, and which of them a worker kind can use."""

    offers: dict[str, MachineOffer] = Field(default_factory=dict)
    """Offers by node name. Empty name: the manager's machine."""
    workers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The labels that worker kinds ask for."""
    stays: tuple[str, ...] = ()
    """Workers whose attempts are made on the manager's machine."""

    def wanted(self, spec: Subtask) -> frozenset[str]:
        """The labels that a machine must have for the attempts at a subtask."""
        return frozenset((*spec.labels, *self.workers.get(spec.worker, ())))

    def problem(self, spec: Subtask) -> str | None:
        """Return why no machine can ever run a subtask, or None."""
        if not (wanted := self.wanted(spec)):
            return None
        asks = f"needs a machine with {labels_text(wanted)}"
        able = {name: offer for name, offer in self.offers.items() if wanted <= set(offer.labels)}
        if not able:
            return f"{asks}, and none has it. Set nodes.NAME.labels, or box.labels for this machine ({self._known()})"
        if spec.worker in self.stays and HERE not in able:
            return f"{asks}, but worker {spec.worker!r} runs only on this machine. Set box.labels, or choose another"
        if not any(offer.works for offer in able.values()):
            return f"{asks}, and {', '.join(sorted(able))} does not run attempts. Set nodes.NAME.workers"
        judges = [name for name, offer in self.offers.items() if offer.lands and {*spec.labels} <= {*offer.labels}]
        if spec.labels and not judges and any(check.run is not None for check in spec.acceptance):
            return (
                f"{asks}, but no machine with {labels_text(frozenset(spec.labels))} may test merged trees. Set "
                "box.labels, or lands = true for a node that you trust as much as this machine"
            )
        return None

    def _known(self) -> str:
        labels = sorted({label for offer in self.offers.values() for label in offer.labels})
        return f"known labels: {', '.join(labels)}" if labels else "no labels are defined"


def labels_text(labels: frozenset[str]) -> str:
    """The labels in words."""
    return f"the label{'s' if len(labels) > 1 else ''} {', '.join(sorted(labels))}"


class Policy(FrozenModel):
    """All parameters of `decide`. Each limit bounds something, so that every run ends."""

    workers: int = Field(default=16, ge=1, le=1000)
    """Attempts at the same time."""
    budget_dollars: float | None = Field(default=None, gt=0)
    budget_minutes: float | None = Field(default=None, gt=0)
    budget_tokens: int | None = Field(default=None, gt=0)
    budget_attempts: int | None = Field(default=None, gt=0)
    budget_soft: float = Field(default=0.8, gt=0, le=1)
    """The share of a budget at which the planner is informed."""
    subtask_dollars: float | None = Field(default=None, gt=0)
    """Budget of all attempts at one subtask. At the limit, fleet asks a human."""
    subtask_tokens: int | None = Field(default=None, gt=0)
    subtask_minutes: float | None = Field(default=None, gt=0)
    max_attempts: int = Field(default=4, ge=1, le=50)
    """Number of failures of a subtask that count. At the limit, fleet asks a human."""
    max_retries: int = Field(default=6, ge=0, le=100)
    """Number of transient and infrastructure failures of a subtask. At the limit, fleet asks a human."""
    max_depth: int = Field(default=3, ge=0, le=10)
    """Splits of splits."""
    max_subtasks: int = Field(default=500, ge=1)
    """Subtasks that one revision of a planner may add."""
    max_areas: int = Field(default=16, ge=0)
    """Number of areas in a run. An area is a subtask with a separate planner."""
    area_depth: int = Field(default=1, ge=0, le=5)
    """Areas within areas; 0: the run's own planner plans everything."""
    max_planner_calls: int = Field(default=300, ge=1)
    max_planner_failures: int = Field(default=5, ge=1)
    """Number of consecutive failed planner calls. At the limit, fleet asks a human."""
    settle_s: float = Field(default=2.0, ge=0)
    """Time during which results are collected before the planner is called, unless one is urgent."""
    backoff_first_s: float = Field(default=1.0, gt=0)
    backoff_cap_s: float = Field(default=120.0, gt=0)
    batch: int = Field(default=256, ge=1, le=500)
    """Maximum number of candidates that land together."""
    slots: int = Field(default=2, ge=1, le=64)
    """Merged trees tested in parallel."""
    every_commit: bool = False
    """Whether the tree of every commit is tested before it lands, however long that takes."""
    every_commit_within_s: float = Field(default=60.0, ge=0)
    """Test every commit's tree if testing the trees of all candidates is likely to take at most this long."""
    in_order: bool = False
    """Whether subtasks land in plan order. A finished subtask then waits for all earlier ones."""
    publishes: bool = True
    """Whether the result branch is made in the user's repository."""
    reruns: int = Field(default=1, ge=0, le=10)
    """Number of additional failures required for a verdict. A suspect with fewer is tested again, alone."""
    check_base: bool = False
    """Whether there is a gate that the base has to pass before anything starts."""
    allow_red_base: bool = False
    """Whether the run may start on a base that fails the gate."""
    answer_wait_s: float = Field(default=600, ge=0)
    """Time that a run without other work waits for a human's answer before it ends as partial."""
    drain_s: float = Field(default=600, ge=0)
    """Time that running work may continue after the run is drained."""
    ladders: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """The models of workers that have several, the first one first."""
    rungs: dict[str, Ladder] = Field(default_factory=dict)
    """The ladders of workers that have rungs."""
    programs: tuple[str, ...] = ()
    """Workers that are programs. They can't read instructions while they run."""
    by_turns: tuple[str, ...] = ()
    """Workers that read instructions only between two turns."""
    flat: bool = False
    """Whether all subtasks of the planner's first revision are merged into one."""
    service_wait_s: float = Field(default=900, gt=0)
    """Time that the model service may fail for all calls before fleet asks a human."""
    service_lost_s: float = Field(default=43200, gt=0)
    """Time after that question until the run ends as partial, if no call succeeds."""
    review: bool = False
    """Whether the first plan waits for a human's approval. Runs without `reviewing` are old and have only this."""
    reviewing: Reviewing | None = None
    """`human`: a person approves the first plan, and rules its changes. `auto`: rules approve. `none`: no review."""
    rules: ReviewRules = ReviewRules()
    machines: Machines = Machines()
    """The machines of the configuration, with their labels."""
