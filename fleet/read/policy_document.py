"""The policy as a document: the response to each failure, the choices of a subtask, and the limits.

The source of `fleet explain-policy`. A test compares docs/reference/recovery.md with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.facts.facts import RungTally
from fleet.core.plans.limits import SIZES, Policy, Size
from fleet.core.plans.plan import Effort, FailureAction
from fleet.core.policy.ladder import cheapest, in_order, rung_options
from fleet.core.policy.remedies import LADDER, RemedyRung

ACTIONS: Mapping[FailureAction, str] = {
    "replan": "the planner decides based on the evidence: an alternative, a split, a question, or dropping the subtask",
    "retry": "fleet retries without the planner",
    "skip": "fleet gives up the subtask, and dependent subtasks continue without it",
    "ask": "fleet asks a human",
    "abort": "fleet ends the run",
}
"""The meaning of each `failure_action` for failures that count."""


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit, and the effect of reaching it."""

    key: str
    """The key in the configuration."""
    limit: float | None
    """Null without a limit."""
    effect: str
    """The meaning of the limit, and the effect of reaching it."""


@dataclass(frozen=True, slots=True)
class RungView:
    """A rung of a worker's ladder, for subtasks of one size."""

    worker: str
    """The worker kind."""
    size: Size
    """`small`, `medium` or `large`, by the subtask's estimate."""
    chosen: bool
    """Whether subtasks of this size start on it."""
    named: bool
    """Whether the configuration sets it as the first rung."""
    model: str
    """Model of the rung."""
    effort: Effort | None
    """The effort level of the model. Null for the default."""
    tried: int
    """Attempts on it in past runs of this repository that count as evidence."""
    landed: int
    """Number of these attempts that landed."""
    dollars: float | None
    """Average cost of an attempt in USD. Null without attempts or with an unknown price."""
    per_landed: float | None
    """Cost of all attempts per landed one, in USD. Null if none landed or the price is unknown."""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """The policy for failures."""

    ladder: tuple[RemedyRung, ...]
    """The policy for each class of failure."""
    failure_action: Mapping[FailureAction, str]
    """The meaning of each `failure_action` of a subtask."""
    limits: tuple[LimitView, ...]
    """The limits of retries, waits and spending."""
    rungs: tuple[RungView, ...] = ()
    """The rungs of workers with a ladder, by worker and size."""


def policy_view(policy: Policy, tallies: Sequence[RungTally] = ()) -> PolicyView:
    """Return the policy as a view. `tallies` are the results of attempts in past runs."""
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
    human = "fleet asks a human and continues other work"
    spent = "new calls stop (finished work still lands, exit code 4)"
    rows = (
        ("limits.attempts", policy.max_attempts, f"counted failures of a subtask before {human}"),
        ("limits.retries", policy.max_retries, f"uncounted failures of a subtask before {human}"),
        (
            "limits.depth",
            policy.max_depth,
            "depth of splits before fleet rejects a split and the planner chooses again",
        ),
        ("limits.subtask_dollars", policy.subtask_dollars, f"cost of a subtask before {human}"),
        ("limits.subtask_tokens", policy.subtask_tokens, f"tokens used by a subtask before {human}"),
        ("limits.subtask_minutes", policy.subtask_minutes, f"time spent on a subtask before {human}"),
        ("planner.max_calls", policy.max_planner_calls, f"planner calls in a run before {human}"),
        ("planner.max_failures", policy.max_planner_failures, f"consecutive failed planner calls before {human}"),
        (
            "limits.answer_wait_minutes",
            policy.answer_wait_s / 60,
            "time that a run without other work waits for an answer before it ends as partial with exit code 1",
        ),
        (
            "limits.drain_minutes",
            policy.drain_s / 60,
            "time that running work may take after the first Ctrl-C before fleet stops it",
        ),
        (
            "models.ask_after_minutes",
            policy.service_wait_s / 60,
            "time that the model service may fail for all callers before fleet asks a human and all work waits",
        ),
        (
            "models.give_up_after_minutes",
            policy.service_lost_s / 60,
            "time that this question may stay unanswered before the run ends as partial with exit code 1",
        ),
        ("run.budget_dollars", policy.budget_dollars, f"cost of the run before {spent}"),
        ("run.budget_tokens", policy.budget_tokens, f"tokens used by the run before {spent}"),
        ("run.budget_minutes", policy.budget_minutes, f"active time of the run before {spent}"),
        ("run.budget_attempts", policy.budget_attempts, f"attempts in the run before {spent}"),
    )
    return tuple(LimitView(*row) for row in rows)
