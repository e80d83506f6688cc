"""The view of an audit: the output of `fleet audit --json`, and the source of the text output."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts.facts import CheckRun, Ending
from fleet.core.plans.limits import Reviewing
from fleet.core.plans.plan import Subtask
from fleet.core.state.state import Review, RunState
from fleet.features.audit.audit import AttemptStart, Audit, AuditEntry, Chain
from fleet.read.question_view import FindingView, findings_of
from fleet.read.subtask_view import AttemptView, attempt_view

Tested = Literal["itself", "with what landed on it", "unknown"]


@dataclass(frozen=True, slots=True)
class AppliedReview:
    """The review settings of the run."""

    by: Reviewing | None
    """`human`, `auto` or `none`; null for runs from before review rules existed."""
    rules: Mapping[str, object]
    """`[review]` of the configuration."""


@dataclass(frozen=True, slots=True)
class VersionView:
    """A version of the plan that concerns the subtask."""

    version: int
    """Version of the plan."""
    by: str
    """`planner`, or the user who gave or edited the plan."""
    at: float
    """When, in seconds since 1970."""
    area: SubtaskId | None
    """The area whose planner wrote it; null if the run's planner or a person wrote it."""
    why: str
    """Reason for the version."""


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """The approval of a subtask."""

    required: bool
    """Whether the run requested a review."""
    version: int | None
    """The approved version of the plan; null if none was approved."""
    by: str | None
    """The approver; null if nothing was approved."""
    at: float | None
    """When, in seconds since 1970."""
    automatic: bool | None
    """Whether the review rules approved it, instead of a person."""
    plan_version: int
    """The version of the plan when the attempt started."""
    broken_rules: tuple[str, ...]
    """The review rules that it does not meet, so that a person had to approve it."""
    rejections: tuple[Review, ...]
    """Earlier rejections of the subtask."""


@dataclass(frozen=True, slots=True)
class AuditedSubtask:
    """A subtask of a landed commit."""

    id: SubtaskId
    """Id of the subtask."""
    spec: Subtask | None
    """The [subtask](plan-file.md#a-subtask) at the start of the attempt; null if the journal has no start."""
    area: SubtaskId | None
    """The area of the subtask."""
    split_from: SubtaskId | None
    """The subtask that was split into this one and others."""


@dataclass(frozen=True, slots=True)
class LandingRecord:
    """The landing of a commit."""

    batch: int
    """The number of the batch."""
    at: float
    """When, in seconds since 1970."""
    published_at: float | None
    """When it was published on the result branch; null before."""
    tree: Sha | None
    """Tree of the landed commit. Null if the journal does not name it."""
    tested: Tested
    """Whether its tree was tested, or only a later one that contains it; `unknown` if a crash lost the record."""
    checks: tuple[CheckRun, ...]
    """Checks of that tree, with their results."""


@dataclass(frozen=True, slots=True)
class CommitView:
    """A commit that is or should be on the result branch, and the records that led to it."""

    commit: Sha | None
    """The id of the commit; null if it is not in the journal."""
    tree: Sha | None
    """The tree of the commit; null if git does not have the commit."""
    subject: str | None
    """The first line of its message."""
    on_branch: bool
    """Whether it is on the result branch."""
    plan: tuple[VersionView, ...] | None
    """The versions of the plan that concern it. This key and the next five are null if it is not in the journal."""
    approval: ApprovalView | None
    """The approval; null if the start of the attempt is not in the journal."""
    subtask: AuditedSubtask | None
    """The subtask."""
    attempts: tuple[AttemptView, ...] | None
    """Every attempt at the subtask."""
    findings: tuple[FindingView, ...] | None
    """The findings of reviewers in these attempts, and their outcomes."""
    landing: LandingRecord | None
    """The landing of the commit."""
    problems: tuple[str, ...]
    """Contradictions between the journal and git, and missing records."""


@dataclass(frozen=True, slots=True)
class AuditView:
    """Every commit of a result branch, compared with the journal."""

    run: RunId
    """Name of the run."""
    epic: str
    """Goal of the run."""
    repository: str
    """Path of the repository."""
    base: Sha
    """Commit that the run is based on."""
    base_name: str
    """Name of the base as given by the user: a branch, a tag or `HEAD`."""
    result_branch: str
    """Branch to which the run publishes landed work."""
    tip: Sha | None
    """The tip of the result branch; null if it does not exist."""
    simulated: bool
    """Whether the model is simulated."""
    rehearsal: bool
    """Whether the run is a rehearsal."""
    for_real: bool
    """Whether the run is a rehearsal with `--for-real`, in which workers made the commits of history again."""
    plan_values: Mapping[str, object]
    """The values of the parameters of the plan file."""
    ending: Ending | None
    """How the run ended; null for an unfinished run."""
    review: AppliedReview
    """The review settings of the run."""
    ok: bool
    """Whether there are no problems, here or at a commit."""
    problems: tuple[str, ...]
    """Problems that don't concern a single commit."""
    commits: tuple[CommitView, ...]
    """Landed commits in order, each with its history."""
    not_published: tuple[Sha, ...]
    """Landed commits that are not on the result branch yet."""


def audit_view(audit: Audit) -> AuditView:
    state = audit.state
    return AuditView(
        run=state.run,
        epic=state.goal,
        repository=state.repository,
        base=state.base,
        base_name=state.base_name,
        result_branch=state.result_branch,
        tip=audit.branch.tip,
        simulated=state.simulated,
        rehearsal=state.rehearsal is not None,
        for_real=state.for_real,
        plan_values=dict(state.values),
        ending=state.ending,
        review=AppliedReview(by=state.policy.reviewing, rules=state.policy.rules.model_dump(mode="json")),
        ok=audit.holds,
        problems=tuple(audit.problems),
        commits=tuple(_commit(state, entry) for entry in audit.entries),
        not_published=tuple(chain.member.commit for chain in audit.unpublished),
    )


def _commit(state: RunState, entry: AuditEntry) -> CommitView:
    commit, chain = entry.commit, entry.chain
    start = chain.start if chain is not None else None
    return CommitView(
        commit=commit.id if commit is not None else chain.member.commit if chain is not None else None,
        tree=commit.tree if commit is not None else None,
        subject=commit.subject if commit is not None else None,
        on_branch=commit is not None,
        plan=_versions(chain) if chain is not None else None,
        approval=_approval(start) if start is not None else None,
        subtask=_subtask(chain) if chain is not None else None,
        attempts=_attempts(chain) if chain is not None else None,
        findings=findings_of(state, chain.member.subtask, chain.attempts) if chain is not None else None,
        landing=_landing(chain) if chain is not None else None,
        problems=tuple(entry.problems),
    )


def _versions(chain: Chain) -> tuple[VersionView, ...]:
    return tuple(VersionView(v.plan.version, v.by, v.at, v.area, v.why) for v in chain.versions)


def _attempts(chain: Chain) -> tuple[AttemptView, ...]:
    return tuple(attempt_view(attempt, chain.landed_at) for attempt in chain.attempts)


def _subtask(chain: Chain) -> AuditedSubtask:
    spec = chain.start.spec if chain.start is not None else None
    return AuditedSubtask(chain.member.subtask, spec, chain.area, chain.split_from)


def _landing(chain: Chain) -> LandingRecord:
    return LandingRecord(
        batch=chain.batch,
        at=chain.landed_at,
        published_at=chain.published_at,
        tree=chain.member.tree or None,
        tested="unknown" if chain.unrecorded else "itself" if chain.member.tested else "with what landed on it",
        checks=chain.checks or chain.later_checks,
    )


def _approval(start: AttemptStart) -> ApprovalView:
    approval = start.approval
    return ApprovalView(
        required=start.reviewed,
        version=approval.version if approval is not None else None,
        by=approval.by if approval is not None else None,
        at=approval.at if approval is not None else None,
        automatic=approval.automatic if approval is not None else None,
        plan_version=start.version,
        broken_rules=start.objections,
        rejections=start.rejections,
    )
