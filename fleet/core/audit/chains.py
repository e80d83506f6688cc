"""Chains: why each landed commit is there, from the epic to its landing, by the facts of a run alone.

What was true when an attempt started is taken from the state of that moment, not from later ones. `audit.py` judges
the chains.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.history.evolve import evolve
from fleet.core.plans.plan import Subtask
from fleet.core.policy.requests import is_approved, objections
from fleet.core.state import facts as f
from fleet.core.state.state import Review, RunState, Version
from fleet.core.state.subtasks import Attempt

Key = tuple[SubtaskId, int]
"""An attempt, by its subtask and number."""


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """What was true when an attempt started."""

    spec: Subtask
    version: int
    """The version of the plan."""
    reviewed: bool
    """Whether the run asked for a review of its plan."""
    approval: Review | None
    rejections: tuple[Review, ...]
    objections: tuple[str, ...]
    """Why the review rules did not approve the subtask; empty if they did."""
    versions: tuple[Version, ...]
    """The versions of the plan that made or changed the subtask, or had it tried again."""
    unapproved: bool
    """Whether it started although an approval was pending."""
    models: frozenset[str] = frozenset()
    """The model it was given, and those that were called in it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A landed commit, and all that led to it."""

    member: f.Member
    batch: int
    landed_at: float
    checks: tuple[f.CheckRun, ...]
    """The checks that ran on its own tree."""
    later_checks: tuple[f.CheckRun, ...]
    """If its own tree was not tested: the checks on the tree of the last commit that landed with it."""
    red_on_base: frozenset[str]
    """Commands that failed on the base, so that their failures do not count."""
    unrecorded: bool
    """Whether a crash took the record of its tests."""
    was_candidate: bool
    """Whether its candidate is among those of the batch."""
    start: AttemptStart | None
    attempts: tuple[Attempt, ...]
    area: SubtaskId | None
    split_from: SubtaskId | None
    published_at: float | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that landed."""
        return next((attempt for attempt in self.attempts if attempt.number == self.member.attempt), None)

    @property
    def versions(self) -> tuple[Version, ...]:
        return self.start.versions if self.start is not None else ()


@dataclass(frozen=True, slots=True)
class JournalChains:
    """The chains of all landed commits of a journal."""

    state: RunState | None
    chains: tuple[Chain, ...]
    published: Sha | None
    problems: tuple[str, ...]
    """Where the journal is not consistent."""


@dataclass(slots=True)
class _Reader:
    """Reads facts in their order. It changes with each, but is used in `read_facts` only."""

    state: RunState | None = None
    starts: dict[Key, AttemptStart] = field(default_factory=dict)
    batches: dict[int, f.BatchFormed] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    published: Sha | None = None
    _versions: dict[SubtaskId, tuple[Version, ...]] = field(default_factory=dict)
    """The versions of the plan that concern each subtask."""
    _reviews: dict[SubtaskId, list[Review]] = field(default_factory=dict)
    """The verdicts on each subtask."""
    _shown: int = 0
    """How many of the first chains were published."""

    def read(self, fact: f.Fact) -> None:
        before, self.state = self.state, evolve(self.state, fact)
        self._add_version(before, self.state, fact)
        for review in self.state.reviews[len(before.reviews) if before is not None else 0 :]:
            for id_ in review.subtasks:
                self._reviews.setdefault(id_, []).append(review)
        match fact:
            case f.AttemptStarted() if before is not None:
                self.starts[fact.subtask, fact.number] = self._start(before, fact)
            case f.ModelCalled(subtask=str(id_), attempt=int(number)) if (id_, number) in self.starts:
                start = self.starts[id_, number]
                if fact.model not in start.models:
                    self.starts[id_, number] = replace(start, models=start.models | {fact.model})
            case f.BatchFormed():
                self.batches[fact.number] = fact
            case f.BatchTested():
                batch = self.batches.get(fact.number)
                candidates = {(one.subtask, one.attempt) for one in batch.members} if batch is not None else set()
                self.chains += [self._chain(self.state, fact, member, candidates) for member in fact.landed]
            case f.WorkLost():
                self._remove_lost(fact)
            case f.Published():
                self._publish(fact)
            case _:
                pass

    def _add_version(self, before: RunState | None, after: RunState, fact: f.Fact) -> None:
        if len(after.versions) == (len(before.versions) if before is not None else 0):
            return
        changed = {spec.id for spec in after.versions[-1].changed}
        retried = {retry.id for retry in fact.revision.retry} if isinstance(fact, f.PlanRevised) else set()
        for id_ in changed | retried:
            self._versions[id_] = (*self._versions.get(id_, ()), after.versions[-1])

    def _start(self, state: RunState, fact: f.AttemptStarted) -> AttemptStart:
        reviews = self._reviews.get(fact.subtask, [])
        approvals = [review for review in reviews if not review.rejected]
        has_rules = state.policy.reviewing in {"human", "auto"}
        return AttemptStart(
            spec=state.spec(fact.subtask),
            version=state.plan.version,
            reviewed=state.policy.review or has_rules,
            approval=approvals[-1] if approvals else None,
            rejections=tuple(review for review in reviews if review.rejected),
            objections=objections(state, fact.subtask) if has_rules else (),
            versions=self._versions.get(fact.subtask, ()),
            unapproved=not is_approved(state, fact.subtask),
            models=frozenset({fact.model} if fact.model else ()),
        )

    def _chain(self, state: RunState, fact: f.BatchTested, member: f.Member, candidates: Collection[Key]) -> Chain:
        runs, last = (*fact.proofs, *fact.checks), fact.landed[-1]
        subtask = state.subtasks[member.subtask]
        return Chain(
            member=member,
            batch=fact.number,
            landed_at=fact.at,
            checks=tuple(run for run in runs if member.tree and run.tree == member.tree),
            later_checks=() if member.tested else tuple(run for run in runs if last.tree and run.tree == last.tree),
            red_on_base=frozenset(check.command for check in state.red_base),
            unrecorded=not member.tree,
            was_candidate=(member.subtask, member.attempt) in candidates,
            start=self.starts.get((member.subtask, member.attempt)),
            attempts=subtask.attempts,
            area=subtask.area,
            split_from=subtask.parent,
        )

    def _remove_lost(self, fact: f.WorkLost) -> None:
        """Remove the chains of lost commits: their subtasks land again, as other commits."""
        lost = {*fact.again, *fact.anew}
        self.chains, self._shown = [chain for chain in self.chains if chain.member.subtask not in lost], 0
        if fact.unpublished or self.published in fact.commits:
            self.published = None

    def _publish(self, fact: f.Published) -> None:
        self.published = fact.tip
        new = range(self._shown, len(self.chains))
        tip = next((index for index in reversed(new) if self.chains[index].member.commit == fact.tip), None)
        for index in range(self._shown, tip + 1) if tip is not None else ():
            if self.chains[index].published_at is None:
                self.chains[index] = replace(self.chains[index], published_at=fact.at)
        self._shown = self._shown if tip is None else tip + 1


def read_facts(facts: Iterable[tuple[int, f.Fact]]) -> JournalChains:
    """The chains of a journal. Stops at a fact that can't follow from those before it."""
    reader, problems, expected = _Reader(), list[str](), 1
    for number, fact in facts:
        if number != expected:
            problems.append(f"facts {expected} to {number - 1} are missing from the journal")
        expected = number + 1
        try:
            reader.read(fact)
        except (LookupError, ValueError, TypeError) as error:
            problems.append(f"fact {number} ({fact.kind}) does not follow from those before it: {error!r}")
            break
    return JournalChains(reader.state, tuple(reader.chains), reader.published, tuple(problems))
