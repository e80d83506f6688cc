"""Compares the chains of a run with the commits of its result branch, and describes every contradiction.

The journal and the repository are two witnesses. Each commit's id covers its tree, message and parents, so a change of
landed work has to change both in the same way to go unnoticed. Knows neither git nor files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.audit.chains import Chain, JournalChains
from fleet.core.audit.commits import Branch, Commit
from fleet.core.base.ids import RunId, Sha
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt

# ---- audit -----------------------------------------------------------------------------------------------------------


SHORT = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """A commit of the branch, or a landing that is not on it."""

    commit: Commit | None
    chain: Chain | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the comparison."""

    state: RunState
    branch: Branch
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]
    """Problems that concern no single commit; the others are in `entries`."""
    unpublished: tuple[Chain, ...]
    """Landed, but not yet on the result branch."""

    @property
    def holds(self) -> bool:
        return not self.problems and not any(entry.problems for entry in self.entries)


def audit_run(journal: JournalChains, state: RunState, branch: Branch) -> Audit:
    """Compare the chains of a journal with the branch."""
    chains = {chain.member.commit: chain for chain in journal.chains}
    on_branch = {commit.id for commit in branch.commits}
    expected = tuple(chain for chain in journal.chains if chain.published_at is not None)
    entries = [_entry(commit, chains, state, below) for commit, below in _with_parents(branch.commits, state.base)]
    for chain in expected:
        if chain.member.commit not in on_branch:
            missing = f"landed and published as {chain.member.commit[:SHORT]}, but is not on {state.result_branch}"
            entries.append(Entry(None, chain, (missing, *_journal_problems(chain))))
    published = on_branch | {chain.member.commit for chain in expected}
    unpublished = tuple(chain for chain in journal.chains if chain.member.commit not in published)
    problems = (*journal.problems, *_branch_problems(journal, state, branch))
    return Audit(state, branch, tuple(entries), problems, unpublished)


def _with_parents(commits: Sequence[Commit], base: Sha) -> Iterator[tuple[Commit, Sha]]:
    """Each commit with the one that has to be below it."""
    below = base
    for commit in commits:
        yield commit, below
        below = commit.id


def _branch_problems(journal: JournalChains, state: RunState, branch: Branch) -> Iterator[str]:
    """Problems that concern no single commit."""
    published = journal.published
    if not branch.has_base:
        yield f"the base {state.base[:SHORT]} is not in the repository, so the run's commits can't be identified"
    if branch.tip is None and published is not None:
        yield f"there is no branch {state.result_branch}; according to the journal, its tip is {published[:SHORT]}"
    landings = [chain.member.commit for chain in journal.chains]
    if published is not None and published not in landings:
        yield f"the journal published {published[:SHORT]}, which is not a landing in it"
    on_branch = [commit.id for commit in branch.commits if commit.id in landings]
    if on_branch != [commit for commit in landings if commit in on_branch]:
        yield "the commits are in a different order than they landed in"
    if len(set(landings)) != len(landings):
        yield "the journal lands a commit twice"


def _entry(commit: Commit, chains: Mapping[Sha, Chain], state: RunState, below: Sha) -> Entry:
    chain = chains.get(commit.id)
    problems = _commit_problems(commit, below)
    if chain is None:
        return Entry(commit, None, (_unknown_commit(commit, chains, state), *problems))
    return Entry(commit, chain, (*problems, *_contradictions(commit, chain, state.run), *_journal_problems(chain)))


def _unknown_commit(commit: Commit, chains: Mapping[Sha, Chain], state: RunState) -> str:
    if commit.run != state.run:
        return "does not belong to this run: the journal has no such landing, and no trailer names the run"
    landings = {(chain.member.subtask, chain.member.attempt): chain.member.commit for chain in chains.values()}
    landed = landings.get((commit.subtask or "", commit.attempt or 0))
    claim = f"claims to be {commit.subtask}, attempt {commit.attempt}"
    if landed is None:
        return f"{claim}, which did not land according to the journal"
    return f"{claim}, which landed as {landed[:SHORT]}: it was rewritten or forged"


def _commit_problems(commit: Commit, below: Sha) -> Iterator[str]:
    if not commit.sound:
        yield "its content does not match its id"
    if commit.parents != (below,):
        parents = ", ".join(parent[:SHORT] for parent in commit.parents) or "none"
        yield f"its parents are {parents}; expected only {below[:SHORT]}"


def _contradictions(commit: Commit, chain: Chain, run: RunId) -> Iterator[str]:
    """Where git and the journal differ about a commit."""
    member, attempt = chain.member, chain.attempt
    trailers: list[tuple[str, object, object]] = [
        ("Fleet-Run", commit.run, run),
        ("Fleet-Task", commit.subtask, member.subtask),
        ("Fleet-Attempt", commit.attempt, member.attempt),
    ]
    if attempt is not None and commit.worker is not None:  # early versions wrote no such trailer
        trailers.append(("Fleet-Worker", commit.worker, attempt.worker))
    for name, in_git, in_journal in trailers:
        if in_git != in_journal:
            yield f"its trailer {name} says {in_git}, the journal {in_journal}"
    models = chain.start.models if chain.start is not None else frozenset[str]()
    if models and not any(_same_model(commit.model or "", model) for model in models):
        yield f"its trailer Assisted-by says {commit.model or 'nothing'}, the journal {', '.join(sorted(models))}"
    if member.tree and member.tree != commit.tree:
        yield f"its tree is {commit.tree[:SHORT]}; the tree that was tested and landed is {member.tree[:SHORT]}"
    if attempt is not None and attempt.commit == commit.id:  # it landed without a merge
        trees = {run.tree for run in attempt.checks if run.tree}
        if trees and commit.tree not in trees:
            yield f"its own checks ran on the tree {min(trees)[:SHORT]}, not on its {commit.tree[:SHORT]}"


def _same_model(one: str, other: str) -> bool:
    """Whether two names mean one model: a service may answer with a dated name."""
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")


def _journal_problems(chain: Chain) -> Iterator[str]:
    """Where the journal alone does not justify a landing."""
    attempt, start, who = chain.attempt, chain.start, f"attempt {chain.member.attempt}"
    if start is None or attempt is None:
        yield f"the journal has no start of {who} at {chain.member.subtask}"
        return
    if not chain.versions:
        yield f"no version of the plan before {who} contains {chain.member.subtask}"
    if start.unapproved:
        yield f"{who} started before the plan was approved"
    if not attempt.verified:
        yield f"{who} landed, but the journal does not say that its own checks passed"
    for run in attempt.checks:
        if not run.passed:
            yield f"a check of {who} that landed is red: {run.command}"
    if attempt.worker != PLANNER and not chain.was_candidate and not chain.unrecorded:
        yield f"batch {chain.batch} landed it, but did not have it among its candidates"
    if not chain.unrecorded:
        yield from _test_problems(chain, attempt, has_checks=bool(start.spec.acceptance))


def _test_problems(chain: Chain, attempt: Attempt, *, has_checks: bool) -> Iterator[str]:
    """Where the journal does not show that what landed is green. A step whose worker decides has no checks."""
    runs = chain.checks if chain.member.tested else chain.later_checks
    if not runs and has_checks and attempt.checks:
        yield f"the journal has no check of the tree {chain.member.tree[:SHORT]}, but calls it tested"
    for run in runs:
        if not run.fine and run.command not in chain.red_on_base:
            yield f"a check of the tree that landed is red: {run.command}"
