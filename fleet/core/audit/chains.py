"""Why each landed commit is there: from the epic to its landing, told by the facts of a run alone.

What policy knew when an attempt began is looked up at that moment, so later versions of a plan can't be mistaken for
it. Nothing is judged here; that is `audit.py`'s part.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fleet.core import facts as f
from fleet.core.approval import approved, stopped_by
from fleet.core.evolve import evolve
from fleet.core.ids import Sha, SubtaskId
from fleet.core.plan import Subtask
from fleet.core.state import Attempt, Review, RunState, Version

Key = tuple[SubtaskId, int]
"""An attempt, by its subtask and number."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What held when an attempt began."""

    spec: Subtask
    version: int
    """Of the plan that was in force."""
    reviewed: bool
    """Whether the run asked for a review of its plan."""
    approval: Review | None
    rejections: tuple[Review, ...]
    """What was said against it before."""
    stopped: tuple[str, ...]
    """Why the rules would not have let it pass as it began; empty where they would."""
    versions: tuple[Version, ...]
    awaited: bool
    """It began although an approval was still awaited."""
    models: frozenset[str] = frozenset()
    """What it was told to use, and what was called in it."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One landed commit, and all that led to it."""

    member: f.Member
    batch: int
    landed_at: float
    checks: tuple[f.CheckRun, ...]
    """What passed on its own tree."""
    above: tuple[f.CheckRun, ...]
    """Of one whose own tree was not tested: what passed on the tree of the last commit that landed with it."""
    excused: frozenset[str]
    """Commands that were red on the base already, and so stand against nobody."""
    silent: bool
    """It landed in a crash: nobody wrote down what was tested."""
    entered: bool
    """Its candidate is among those of the batch."""
    begun: Beginning | None
    attempts: tuple[Attempt, ...]
    versions: tuple[Version, ...]
    """Those that made the subtask, changed it or had it tried again, up to when the attempt began."""
    area: SubtaskId | None
    split_from: SubtaskId | None
    published_at: float | None = None

    @property
    def attempt(self) -> Attempt | None:
        """The one that landed."""
        return next((attempt for attempt in self.attempts if attempt.number == self.member.attempt), None)


@dataclass(frozen=True, slots=True)
class Account:
    """All that a journal tells of its landed commits."""

    state: RunState | None
    chains: tuple[Chain, ...]
    published: Sha | None
    flaws: tuple[str, ...]
    """Where the journal does not hold together."""


def _reviews(state: RunState, id_: SubtaskId, *, rejected: bool) -> tuple[Review, ...]:
    return tuple(one for one in state.reviews if id_ in one.subtasks and one.rejected is rejected)


@dataclass(slots=True)
class _Reader:
    """Reads facts in their order. The only thing here that changes, and nobody else sees it."""

    state: RunState | None = None
    begun: dict[Key, Beginning] = field(default_factory=dict)
    batches: dict[int, f.BatchFormed] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    published: Sha | None = None
    _versions: dict[SubtaskId, tuple[Version, ...]] = field(default_factory=dict)
    """Of the plan, by the subtask they say something of."""

    def read(self, fact: f.Fact) -> None:
        before, self.state = self.state, evolve(self.state, fact)
        self._revised(before, self.state, fact)
        match fact:
            case f.AttemptStarted() if before is not None:
                self.begun[fact.subtask, fact.number] = self._beginning(before, fact)
            case f.ModelCalled(subtask=str(id_), attempt=int(number)) if (id_, number) in self.begun:
                known = self.begun[id_, number]
                self.begun[id_, number] = replace(known, models=known.models | {fact.model})
            case f.BatchFormed():
                self.batches[fact.number] = fact
            case f.BatchTested():
                self.chains += [self._chain(self.state, fact, member) for member in fact.landed]
            case f.WorkLost():
                self._lost(fact)
            case f.Published():
                self._published(fact)
            case _:
                pass

    def _revised(self, before: RunState | None, after: RunState, fact: f.Fact) -> None:
        known = before.versions if before is not None else ()
        if len(after.versions) == len(known):
            return
        old = before.specs if before is not None else {}
        changed = {id_ for id_, spec in after.specs.items() if old.get(id_) is not spec and old.get(id_) != spec}
        retried = {retry.id for retry in fact.revision.retry} if isinstance(fact, f.PlanRevised) else set()
        for id_ in changed | retried:
            self._versions[id_] = (*self._versions.get(id_, ()), after.versions[-1])

    def _beginning(self, state: RunState, fact: f.AttemptStarted) -> Beginning:
        approvals = _reviews(state, fact.subtask, rejected=False)
        return Beginning(
            spec=state.spec(fact.subtask),
            version=state.plan.version,
            reviewed=state.policy.review or state.policy.reviewing in {"human", "auto"},
            approval=approvals[-1] if approvals else None,
            rejections=_reviews(state, fact.subtask, rejected=True),
            stopped=stopped_by(state, fact.subtask) if state.policy.reviewing in {"human", "auto"} else (),
            awaited=not approved(state, fact.subtask),
            versions=self._versions.get(fact.subtask, ()),
            models=frozenset({fact.model} if fact.model else ()),
        )

    def _chain(self, state: RunState, fact: f.BatchTested, member: f.Member) -> Chain:
        formed = self.batches.get(fact.number)
        runs, last = (*fact.proofs, *fact.checks), fact.landed[-1]
        own = tuple(run for run in runs if member.tree and run.tree == member.tree)
        candidates = {(one.subtask, one.attempt) for one in formed.members} if formed is not None else set()
        subtask = state.subtasks[member.subtask]
        begun = self.begun.get((member.subtask, member.attempt))
        return Chain(
            member=member,
            batch=fact.number,
            landed_at=fact.at,
            checks=own,
            above=() if member.tested else tuple(run for run in runs if last.tree and run.tree == last.tree),
            excused=frozenset(check.command for check in state.red_base),
            silent=not member.tree,
            entered=(member.subtask, member.attempt) in candidates,
            begun=begun,
            attempts=subtask.attempts,
            versions=begun.versions if begun is not None else (),
            area=subtask.area,
            split_from=subtask.parent,
        )

    def _lost(self, fact: f.WorkLost) -> None:
        """What stood on commits that are gone lands again, as other commits."""
        fallen = {*fact.again, *fact.anew}
        self.chains = [chain for chain in self.chains if chain.member.subtask not in fallen]
        if fact.unpublished or self.published in fact.commits:
            self.published = None

    def _published(self, fact: f.Published) -> None:
        self.published = fact.tip
        tips = [index for index, chain in enumerate(self.chains) if chain.member.commit == fact.tip]
        until = tips[-1] + 1 if tips else 0
        for index in range(until):
            if self.chains[index].published_at is None:
                self.chains[index] = replace(self.chains[index], published_at=fact.at)


def read_facts(facts: Iterable[tuple[int, f.Fact]]) -> Account:
    """What a journal tells. It stops where a fact can't follow from those before it."""
    reader, flaws, expected = _Reader(), list[str](), 1
    for number, fact in facts:
        if number != expected:
            flaws.append(f"facts {expected} to {number - 1} are missing from the journal")
        expected = number + 1
        try:
            reader.read(fact)
        except (LookupError, ValueError, TypeError) as error:
            flaws.append(f"fact {number} ({fact.kind}) does not follow from those before it: {error!r}")
            break
    return Account(reader.state, tuple(reader.chains), reader.published, tuple(flaws))
