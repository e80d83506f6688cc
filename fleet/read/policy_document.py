"""The policy as a document: what is done about each failure, what a subtask may decide in advance, and the limits.

The only source of `fleet explain-policy` and, compared by a test, of docs/reference/recovery.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.facts.facts import RungTally
from fleet.core.plans.limits import SIZES, Policy, Size
from fleet.core.plans.plan import Effort, FailureAction
from fleet.core.policy.ladder import cheapest, in_order, rung_options
from fleet.core.policy.remedies import LADDER, Rung

ACTIONS: Mapping[FailureAction, str] = {
    "replan": "the planner decides, with the evidence: an alternative, a split, a question, or drop it",
    "retry": "retried without the planner",
    "skip": "given up; what depends on it continues without",
    "ask": "a human is asked",
    "abort": "the run ends",
}
"""The meaning of each `failure_action` of a subtask, for failures that count."""


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit, and what happens when it is reached."""

    key: str
    """Its key in the configuration."""
    limit: float | None
    """Null if there is no limit."""
    effect: str
    """What it limits, and what happens then."""


@dataclass(frozen=True, slots=True)
class RungView:
    """One rung of a worker's ladder as the first one for subtasks of one size."""

    worker: str
    """The worker kind that a plan names."""
    size: Size
    """`small`, `medium` or `large`, by the subtask's estimate."""
    chosen: bool
    """Whether subtasks of this size begin on it."""
    named: bool
    """Whether that is because the configuration names it."""
    model: str
    """Model of the rung."""
    effort: Effort | None
    """How hard the model tries; null: as it does by default."""
    tried: int
    """Attempts with it that say something about it, in past runs of this repository."""
    landed: int
    """How many of these landed."""
    dollars: float | None
    """The average cost of an attempt; null if nothing was seen, or the price is unknown."""
    per_landed: float | None
    """What all attempts cost for each one that landed; null if none landed, or the price is unknown."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """What is done about failures."""

    ladder: tuple[Rung, ...]
    """By class of failure."""
    failure_action: Mapping[FailureAction, str]
    """What each `failure_action` of a subtask means."""
    limits: tuple[LimitView, ...]
    """The limits that end retries, waits and spending."""
    rungs: tuple[RungView, ...] = ()
    """The rungs of workers that have some, by worker and size."""


def policy_view(policy: Policy, tallies: Sequence[RungTally] = ()) -> PolicyView:
    """`tallies` are what attempts of past runs led to."""
    return PolicyView(
        rungs=tuple(rung_views(policy, tallies)),
        ladder=tuple(LADDER.values()),
        failure_action=ACTIONS,
        limits=_limits(policy),
    )


def rung_views(policy: Policy, tallies: Sequence[RungTally]) -> Iterator[RungView]:
    for worker, ladder in policy.rungs.items():
        for size in SIZES:
            options = rung_options(ladder, tallies, worker, size)
            best = ladder.first if ladder.first is not None else cheapest(options)
            chosen = in_order(options) if best is None else best
            for index, each in enumerate(options):
                seen = (each.tried, each.landed, each.dollars, each.per_landed)
                yield RungView(worker, size, index == chosen, index == ladder.first, each.model, each.effort, *seen)


def _limits(policy: Policy) -> tuple[LimitView, ...]:
    human = "a human is asked, the rest continues"
    rows = (
        ("limits.attempts", policy.max_attempts, f"failures of a subtask that count; then {human}"),
        ("limits.retries", policy.max_retries, f"failures of a subtask that do not count; then {human}"),
        ("limits.depth", policy.max_depth, "splits of splits; a deeper one is refused, and the planner chooses again"),
        ("limits.subtask_dollars", policy.subtask_dollars, f"what a subtask may cost; then {human}"),
        ("limits.subtask_tokens", policy.subtask_tokens, f"what a subtask may use; then {human}"),
        ("limits.subtask_minutes", policy.subtask_minutes, f"how long a subtask may be worked on; then {human}"),
        ("planner.max_calls", policy.max_planner_calls, f"calls of the planner in a run; then {human}"),
        ("planner.max_failures", policy.max_planner_failures, f"calls that fail in a row; then {human}"),
        (
            "limits.answer_wait_minutes",
            policy.answer_wait_s / 60,
            "how long a run with nothing else to do waits for an answer; then it ends as partial, with exit code 1",
        ),
        (
            "limits.drain_minutes",
            policy.drain_s / 60,
            "how long running work may take after a first Ctrl-C; then it stops",
        ),
        (
            "models.ask_after_minutes",
            policy.service_wait_s / 60,
            "how long the models' service may fail all callers; then a human is asked, and everything waits",
        ),
        (
            "models.give_up_after_minutes",
            policy.service_lost_s / 60,
            "how long that question may stay unanswered; then the run ends as partial, with exit code 1",
        ),
        ("run.budget_dollars", policy.budget_dollars, "then no new calls; finished work still lands; exit code 4"),
        ("run.budget_tokens", policy.budget_tokens, "the same"),
        ("run.budget_minutes", policy.budget_minutes, "the same"),
        ("run.budget_attempts", policy.budget_attempts, "the same"),
    )
    return tuple(LimitView(*row) for row in rows)
