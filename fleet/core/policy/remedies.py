"""Handles failures: the ladder of remedies, the ladder of models, and the choice between them.

Temporary failures are retried with backoff and do not count as attempts. Work that does not merge is redone once on the
new base. The planner decides about other failures: another approach, a split, a question. At a limit, fleet asks a
human.
"""

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Subtask
from fleet.core.policy.budget import over_subtask_budget
from fleet.core.policy.ladder import ABILITY, climbs_after
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import SubtaskState


@dataclass(frozen=True, slots=True)
class RemedyRung:
    """The handling of one class of failure."""

    kind: f.FailureKind
    """The class."""
    counts: bool
    """Whether such a failure counts against `limits.attempts`."""
    first: Literal["retry", "resolve", "planner", "aside"]
    """First remedy."""
    what: str
    """Description of the class."""


LADDER: dict[f.FailureKind, RemedyRung] = {
    rung.kind: rung
    for rung in (
        RemedyRung("transient", False, "retry", "the model service: limits, overload, a broken connection or stream"),
        RemedyRung("infrastructure", False, "retry", "a problem of the machine: worktrees, sandboxes, disk"),
        RemedyRung("internal", False, "aside", "a bug in fleet, twice at the same step. Finished work stays pinned"),
        RemedyRung("crash", False, "retry", "a bug in an older fleet. New journals use `internal`"),
        RemedyRung("configuration", False, "retry", "a wrong key or an unknown model, which affects the entire run"),
        RemedyRung(
            "protocol", True, "planner", "invalid answers: no tool, malformed input, the same action again and again"
        ),
        RemedyRung("tool", True, "planner", "a tool or command that the worker needs does not work"),
        RemedyRung("check", True, "planner", "an acceptance check failed, or a guard did on the base, before any work"),
        RemedyRung("vacuous", True, "planner", "an acceptance check passed before any work was done"),
        RemedyRung("empty", True, "planner", "reported done, but without changes"),
        RemedyRung("bounds", True, "planner", "changed files outside `touches`, or files that may not be committed"),
        RemedyRung("conflict", True, "resolve", "conflicts with work that landed in the meantime"),
        RemedyRung("integration", True, "planner", "merges, but the merged tree fails"),
        RemedyRung("too_complex", True, "planner", "more than one worker can do, or the conversation no longer fits"),
        RemedyRung("ambiguous", True, "planner", "the worker is blocked by missing information"),
        RemedyRung("refusal", True, "planner", "the model refused"),
        RemedyRung("budget", True, "planner", "turns, time, tokens or dollars of the attempt or its subtask are spent"),
        RemedyRung(
            "spent",
            False,
            "retry",
            "the run's budget does not cover another call. The attempt continues after an increase",
        ),
        RemedyRung("other", True, "planner", "none of these"),
    )
}
LONGEST_CLIMB = 64  # doublings, far beyond any cap. A float overflows at about a thousand
_AGAIN = (
    "Do the subtask again on this base: keep the landed work, and apply this subtask's change to it so that both have "
    "the intended effect."
)
RESOLVE_GUIDANCE: dict[f.FailureKind, str] = {
    "conflict": "An earlier attempt passed its own checks, but its change conflicts with work that landed since its "
    f"base. The evidence lists the paths, the landed changes there, and the attempt's change. {_AGAIN}",
    "integration": "An earlier attempt passed its own checks, and its change merges with work that landed since its "
    f"base, but the merged tree fails. The evidence has the output of the checks, and the attempt's change. {_AGAIN}",
}
"""Guidance for the worker that makes the work fit a new base."""


def backoff(policy: Policy, *, key: str, failures: int) -> float:
    """Seconds to wait after the n-th failure in a row: exponential, with full jitter that `key` determines."""
    ceiling = min(policy.backoff_cap_s, policy.backoff_first_s * 2.0 ** min(failures - 1, LONGEST_CLIMB))
    spread = int.from_bytes(sha256(f"{key}:{failures}".encode()).digest()[:4]) / 2**32
    return ceiling * (0.1 + 0.9 * spread)


def model_for(policy: Policy, spec: Subtask, subtask: SubtaskState) -> str | None:
    """The model of the next attempt: the plan's, or else a rung of the worker's ladder. None: the worker's default."""
    ladder = policy.ladders.get(spec.worker, ())
    if spec.model is not None or not ladder:
        return spec.model
    failed = sum(
        attempt.worker == spec.worker and attempt.failure is not None and attempt.failure.kind in ABILITY
        for attempt in subtask.attempts
    )
    return ladder[min(failed, len(ladder) - 1)]


def choose_remedy(state: RunState, subtask: SubtaskState, failure: f.Failure, now: float) -> f.Fact:
    """The decision about the failure of a subtask: a remedy, a question, or the end of the run."""
    number, policy, rung = len(subtask.attempts), state.policy, LADDER[failure.kind]
    action = state.spec(subtask.id).failure_action
    wait = now + backoff(policy, key=f"{state.run}/{subtask.id}", failures=subtask.counted + subtask.retries)
    retry = f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="retry", not_before=wait)
    if failure.kind == "spent":  # it continues as soon as there is a budget again
        return retry.model_copy(update={"not_before": now})
    if not rung.counts:
        return _free_remedy(state, subtask, failure, retry)
    if may_resolve(state, subtask, failure):
        guidance = RESOLVE_GUIDANCE[failure.kind]
        return retry.model_copy(update={"remedy": "resolve", "not_before": 0.0, "guidance": guidance})
    if action == "abort":
        return f.RunEnded(at=now, ending="aborted", why=f"{subtask.id} failed: {failure.summary}")
    if action == "skip":
        return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="skip")
    if action == "ask" and not subtask.counted:  # a person has answered: now it is for the planner, who reads it
        return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="planner")
    if action == "ask" or subtask.counted >= policy.max_attempts or _is_refused_again(subtask):
        return failure_question(subtask, failure, now)
    if (spent := over_subtask_budget(state, subtask.id, now)) is not None:
        return failure_question(subtask, failure.model_copy(update={"summary": f"{failure.summary}; {spent}"}), now)
    climbs = climbs_after(state, state.spec(subtask.id), subtask)
    if action == "retry":
        return retry.model_copy(update={"climbs": climbs})
    if state.undoing is not None:  # with a rollback half done, only a human decides
        return failure_question(subtask, failure, now)
    if climbs:
        return retry.model_copy(update={"climbs": True, "not_before": now})
    return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="planner")


def _free_remedy(state: RunState, subtask: SubtaskState, failure: f.Failure, retry: f.RemedyChosen) -> f.Fact:
    """The decision about a failure that uses up no attempt."""
    if failure.kind == "internal":  # a retry or a planner can't fix a bug, and `failure_action` is for failed work
        return aside_question(subtask, failure, retry.at)
    if subtask.retries <= state.policy.max_retries:
        return retry
    if failure.kind == "transient" and state.spent.calls == 0:  # the service never answered
        return f.RunEnded(at=retry.at, ending="failed", why=failure.summary)
    return failure_question(subtask, failure, retry.at)


def failure_question(subtask: SubtaskState, failure: f.Failure, now: float) -> f.QuestionAsked:
    tries = len(subtask.attempts)
    summary = failure.summary.rstrip(".")
    return f.QuestionAsked(
        at=now,
        about=subtask.id,
        question=f"{subtask.id} failed {tries} time{'s' * (tries != 1)}; last: {summary}. How should it continue?",
        options=("retry", "drop it"),
        evidence=failure.evidence,
    )


def aside_question(subtask: SubtaskState, failure: f.Failure, now: float) -> f.QuestionAsked:
    """Set a subtask aside after an internal error. The run does not wait, and only a user can reopen it."""
    last = subtask.last
    kept = last is not None and last.commit is not None and not last.kept
    how = f"`fleet retry {subtask.id}` retries it" + (" and keeps the finished work" if kept else "")
    return f.QuestionAsked(
        at=now,
        about=subtask.id,
        question=f"{subtask.id} is set aside: {failure.summary.rstrip('.')}. {how}.",
        options=("retry", "drop it"),
        evidence=failure.evidence,
        aside=True,
    )


def may_resolve(state: RunState, subtask: SubtaskState, failure: f.Failure) -> bool:
    """Return whether work that passed its own checks may be redone on a new base. Allowed once per subtask.

    A second conflict points to a problem in the plan. When a result is landed again, a failing merged tree counts like
    a conflict, because both sides passed separately.
    """
    resolved: set[f.FailureKind] = {"conflict"} if state.relanding is None else {"conflict", "integration"}
    failed = [each for each in subtask.attempts if each.failure is not None and each.failure.kind in resolved]
    if failure.kind not in resolved or subtask.counted >= state.policy.max_attempts:
        return False
    return len(failed) == 1 and failed[-1].verified


def _is_refused_again(subtask: SubtaskState) -> bool:
    """Whether a model refused twice since a human last helped: a third wording seldom helps, and each one costs."""
    kinds = [attempt.failure.kind for attempt in subtask.attempts if attempt.failure is not None]
    counted = [kind for kind in kinds if LADDER[kind].counts]
    return counted[len(counted) - subtask.counted :].count("refusal") > 1
