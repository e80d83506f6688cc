"""Compares the journal of a run with the commits of its result branch, and describes every contradiction.

The journal and the repository are independent records. A commit's id covers its tree, message and parents, so a change
to landed work goes unnoticed only if both are changed in the same way.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.plan import PLANNER, Subtask
from fleet.core.policy.requests import is_approved, objections
from fleet.core.state.state import Review, RunState, Version
from fleet.core.state.subtasks import Attempt
from worktrees.git import reader
from worktrees.git.object_format import (
    ASSISTED,
    LONGEST_SUBJECT,
    RUN,
    TASK,
    WORKER,
    attempt_number,
    object_id,
    one_line,
    parse_commit,
    parse_trailers,
)
from worktrees.git.program import text
from worktrees.git.reader import read
from worktrees.target.target import locate

# ---- commits ---------------------------------------------------------------------------------------------------------
# A result branch as stored in git. Only names and raw bytes are read from git, and the bytes are parsed here, so that
# graph files, grafts and settings of the repository have no effect on them.


@dataclass(frozen=True, slots=True)
class AuditedCommit:
    """A commit as stored in git, and the values of its trailers."""

    id: Sha
    tree: Sha
    parents: tuple[Sha, ...]
    subject: str
    run: RunId | None
    subtask: SubtaskId | None
    attempt: int | None
    worker: str | None
    model: str | None
    sound: bool = True
    """Whether its content matches its id."""


@dataclass(frozen=True, slots=True)
class AuditedBranch:
    """The result branch as stored in git: the commits above the base, oldest first."""

    tip: Sha | None
    """None if the branch does not exist."""
    commits: tuple[AuditedCommit, ...]
    has_base: bool = True


async def read_result_branch(path: Path, branch: str, *, base: Sha, instead: Sha | None) -> AuditedBranch:
    """Read the commits of `branch` above `base`, oldest first. Without such a branch, read those of commit `instead`.

    Raises `UsageError` if there is no repository at `path`, and `EffectError` if it can't be read.
    """
    git = await locate(path)
    tip = await git.sha(f"refs/heads/{branch}")
    start = tip or (await git.sha(instead) if instead is not None else None)
    if start is None:
        return AuditedBranch(tip, ())
    if await git.sha(base) is None:
        return AuditedBranch(tip, (), has_base=False)
    stored = await read(git, partial(reader.commits_between, base=base, tip=start))
    return AuditedBranch(tip, tuple(_audited(id_, content) for id_, content in stored))


def _audited(id_: Sha, content: bytes) -> AuditedCommit:
    commit = parse_commit(content)
    message = text(commit.message)
    values = parse_trailers(message)
    return AuditedCommit(
        id=id_,
        tree=commit.tree,
        parents=commit.parents,
        subject=one_line(message.partition("\n")[0])[:LONGEST_SUBJECT],
        run=RunId(values[RUN]) if RUN in values else None,
        subtask=SubtaskId(values[TASK]) if TASK in values else None,
        attempt=attempt_number(values),
        worker=values.get(WORKER),
        model=values.get(ASSISTED),
        sound=object_id("commit", content, digits=len(id_)) == id_,
    )


# ---- chains ----------------------------------------------------------------------------------------------------------
# Chains: the records that led to each landed commit, from the epic to the landing, derived from the facts of a run.
#
# The conditions at the start of an attempt are taken from the state at that time, not from later states.


Key = tuple[SubtaskId, int]
"""An attempt, by its subtask and number."""


@dataclass(frozen=True, slots=True)
class AttemptStart:
    """The conditions at the start of an attempt."""

    spec: Subtask
    version: int
    """The version of the plan."""
    reviewed: bool
    """Whether the run requested a review of its plan."""
    approval: Review | None
    rejections: tuple[Review, ...]
    objections: tuple[str, ...]
    """Why the review rules did not approve the subtask; empty if they did."""
    versions: tuple[Version, ...]
    """The versions of the plan that created, changed or retried the subtask."""
    unapproved: bool
    """Whether it started although an approval was pending."""
    models: frozenset[str] = frozenset()
    """The configured model, and the models called during the attempt."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A landed commit and the records that led to it."""

    member: f.Member
    batch: int
    landed_at: float
    checks: tuple[f.CheckRun, ...]
    """The checks that ran on its own tree."""
    later_checks: tuple[f.CheckRun, ...]
    """If the commit's tree was not tested: the checks on the tree of the last commit that landed with it."""
    red_on_base: frozenset[str]
    """Commands that failed on the base. Their failures don't count."""
    unrecorded: bool
    """Whether the record of its tests was lost in a crash."""
    was_candidate: bool
    """Whether its candidate is one of the batch."""
    start: AttemptStart | None
    attempts: tuple[Attempt, ...]
    area: SubtaskId | None
    split_from: SubtaskId | None
    published_at: float | None = None

    @property
    def attempt(self) -> Attempt | None:
        """Return the attempt that landed."""
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
    """Inconsistencies of the journal."""


@dataclass(slots=True)
class _Reader:
    """Reads facts in order. Mutable, only used in `read_facts`."""

    state: RunState | None = None
    starts: dict[Key, AttemptStart] = field(default_factory=dict)
    batches: dict[int, f.BatchFormed] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    published: Sha | None = None
    _versions: dict[SubtaskId, tuple[Version, ...]] = field(default_factory=dict)
    """The versions of the plan that concern each subtask."""
    _reviews: dict[SubtaskId, list[Review]] = field(default_factory=dict)
    """The reviews of each subtask."""
    _shown: int = 0
    """The number of chains that were published. They come first."""

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
        """Remove the chains of lost commits. Their subtasks land again as different commits."""
        lost = {*fact.reland, *fact.redo}
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
    """Read the chains of a journal. Stops at a fact that contradicts earlier ones."""
    reader, problems, expected = _Reader(), list[str](), 1
    for number, fact in facts:
        if number != expected:
            problems.append(f"facts {expected} to {number - 1} are missing from the journal")
        expected = number + 1
        try:
            reader.read(fact)
        except (LookupError, ValueError, TypeError) as error:
            problems.append(f"fact {number} ({fact.kind}) contradicts earlier facts: {error!r}")
            break
    return JournalChains(reader.state, tuple(reader.chains), reader.published, tuple(problems))


# ---- audit -----------------------------------------------------------------------------------------------------------


SHORT = 12


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A commit of the branch, or a landing that is not on it."""

    commit: AuditedCommit | None
    chain: Chain | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the comparison."""

    state: RunState
    branch: AuditedBranch
    entries: tuple[AuditEntry, ...]
    problems: tuple[str, ...]
    """Problems that don't concern a single commit. All others are in `entries`."""
    unpublished: tuple[Chain, ...]
    """Chains that landed and are not on the result branch yet."""

    @property
    def holds(self) -> bool:
        return not self.problems and not any(entry.problems for entry in self.entries)


def audit_run(journal: JournalChains, state: RunState, branch: AuditedBranch) -> Audit:
    """Compare the chains of a journal with the branch."""
    chains = {chain.member.commit: chain for chain in journal.chains}
    on_branch = {commit.id for commit in branch.commits}
    expected = tuple(chain for chain in journal.chains if chain.published_at is not None)
    entries = [_entry(commit, chains, state, below) for commit, below in _with_parents(branch.commits, state.base)]
    for chain in expected:
        if chain.member.commit not in on_branch:
            missing = f"landed and published as {chain.member.commit[:SHORT]}, but is not on {state.result_branch}"
            entries.append(AuditEntry(None, chain, (missing, *_journal_problems(chain))))
    published = on_branch | {chain.member.commit for chain in expected}
    unpublished = tuple(chain for chain in journal.chains if chain.member.commit not in published)
    problems = (*journal.problems, *_branch_problems(journal, state, branch))
    return Audit(state, branch, tuple(entries), problems, unpublished)


def _with_parents(commits: Sequence[AuditedCommit], base: Sha) -> Iterator[tuple[AuditedCommit, Sha]]:
    """Yield each commit with its expected parent."""
    below = base
    for commit in commits:
        yield commit, below
        below = commit.id


def _branch_problems(journal: JournalChains, state: RunState, branch: AuditedBranch) -> Iterator[str]:
    """Yield problems that don't concern a single commit."""
    published = journal.published
    if not branch.has_base:
        yield f"the base {state.base[:SHORT]} is not in the repository, so the run's commits can't be identified"
    if branch.tip is None and published is not None:
        yield f"no branch {state.result_branch} exists, but according to the journal, its tip is {published[:SHORT]}"
    landings = [chain.member.commit for chain in journal.chains]
    if published is not None and published not in landings:
        yield f"the journal records {published[:SHORT]} as published, but not as landed"
    on_branch = [commit.id for commit in branch.commits if commit.id in landings]
    if on_branch != [commit for commit in landings if commit in on_branch]:
        yield "the commits are not in the order in which they landed"
    if len(set(landings)) != len(landings):
        yield "the journal records the same commit as landed twice"


def _entry(commit: AuditedCommit, chains: Mapping[Sha, Chain], state: RunState, below: Sha) -> AuditEntry:
    chain = chains.get(commit.id)
    problems = _commit_problems(commit, below)
    if chain is None:
        return AuditEntry(commit, None, (_unknown_commit(commit, chains, state), *problems))
    return AuditEntry(commit, chain, (*problems, *_contradictions(commit, chain, state.run), *_journal_problems(chain)))


def _unknown_commit(commit: AuditedCommit, chains: Mapping[Sha, Chain], state: RunState) -> str:
    if commit.run != state.run:
        return "does not belong to this run: it is not in the journal and lacks a trailer of the run"
    landings = {(chain.member.subtask, chain.member.attempt): chain.member.commit for chain in chains.values()}
    landed = landings.get((commit.subtask or SubtaskId(""), commit.attempt or 0))
    claim = f"claims to be {commit.subtask}, attempt {commit.attempt}"
    if landed is None:
        return f"{claim}, which did not land according to the journal"
    return f"{claim}, which landed as {landed[:SHORT]}: it was rewritten or forged"


def _commit_problems(commit: AuditedCommit, below: Sha) -> Iterator[str]:
    if not commit.sound:
        yield "its content does not match its id"
    if commit.parents != (below,):
        parents = ", ".join(parent[:SHORT] for parent in commit.parents) or "none"
        yield f"its parents are {parents}, expected {below[:SHORT]}"


def _contradictions(commit: AuditedCommit, chain: Chain, run: RunId) -> Iterator[str]:
    """Yield the differences between git and the journal for a commit."""
    member, attempt = chain.member, chain.attempt
    trailers: list[tuple[str, object, object]] = [
        ("Fleet-Run", commit.run, run),
        ("Fleet-Task", commit.subtask, member.subtask),
        ("Fleet-Attempt", commit.attempt, member.attempt),
    ]
    if attempt is not None and commit.worker is not None:  # early versions did not write this trailer
        trailers.append(("Fleet-Worker", commit.worker, attempt.worker))
    for name, in_git, in_journal in trailers:
        if in_git != in_journal:
            yield f"its trailer {name} is {in_git}, but {in_journal} in the journal"
    models = chain.start.models if chain.start is not None else frozenset[str]()
    if models and not any(_same_model(commit.model or "", model) for model in models):
        yield f"its trailer Assisted-by is {commit.model or 'missing'}, but {', '.join(sorted(models))} in the journal"
    if member.tree and member.tree != commit.tree:
        yield f"its tree is {commit.tree[:SHORT]}, but the tested and landed tree is {member.tree[:SHORT]}"
    if attempt is not None and attempt.commit == commit.id:  # it landed without a merge
        trees = {run.tree for run in attempt.checks if run.tree}
        if trees and commit.tree not in trees:
            yield f"its checks ran on the tree {min(trees)[:SHORT]}, not on its tree {commit.tree[:SHORT]}"


def _same_model(one: str, other: str) -> bool:
    """Whether two names mean the same model. Services may answer with a dated name."""
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")


def _journal_problems(chain: Chain) -> Iterator[str]:
    """Yield reasons why the journal does not justify a landing."""
    attempt, start, who = chain.attempt, chain.start, f"attempt {chain.member.attempt}"
    if start is None or attempt is None:
        yield f"the journal does not record the start of {who} at {chain.member.subtask}"
        return
    if not chain.versions:
        yield f"no version of the plan before {who} contains {chain.member.subtask}"
    if start.unapproved:
        yield f"{who} started before the plan was approved"
    if not attempt.verified:
        yield f"{who} landed, but the journal does not record that its checks passed"
    for run in attempt.checks:
        if not run.passed:
            yield f"{who} landed, but one of its checks failed: {run.command}"
    if attempt.worker != PLANNER and not chain.was_candidate and not chain.unrecorded:
        yield f"batch {chain.batch} landed it without having it as a candidate"
    if not chain.unrecorded:
        yield from _test_problems(chain, attempt, has_checks=bool(start.spec.acceptance))


def _test_problems(chain: Chain, attempt: Attempt, *, has_checks: bool) -> Iterator[str]:
    """Yield landings whose tests did not pass or are not recorded. A step decided by its worker has no checks."""
    runs = chain.checks if chain.member.tested else chain.later_checks
    if not runs and has_checks and attempt.checks:
        yield f"the journal marks the tree {chain.member.tree[:SHORT]} as tested, but its check is missing"
    for run in runs:
        if not run.fine and run.command not in chain.red_on_base:
            yield f"a check of the landed tree failed: {run.command}"
