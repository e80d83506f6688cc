"""Whether the chains of a run and the commits of its result branch say the same; and what does not hold, in words.

A journal and a repository are two witnesses. Each commit's id covers its tree, message and parents, so whoever wants to
change what landed has to change both alike. Knows neither git nor files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.chains import Account, Chain
from fleet.core.ids import RunId, Sha, SubtaskId
from fleet.core.plan import PLANNER
from fleet.core.state import Attempt, RunState

SHORT = 12


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, read from git, and what its trailers say."""

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
    """Whether its content has the id it is stored by."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The result branch as git has it: the commits above the base, the oldest first."""

    tip: Sha | None
    """None: there is no such branch."""
    commits: tuple[Commit, ...]
    base_there: bool = True


@dataclass(frozen=True, slots=True)
class Entry:
    """One commit of the branch, or one landing that is not on it."""

    commit: Commit | None
    chain: Chain | None
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """The verdict."""

    state: RunState
    branch: Branch
    entries: tuple[Entry, ...]
    problems: tuple[str, ...]
    """Of the whole; those of a commit stand with it."""
    unpublished: tuple[Chain, ...]
    """Landed, and not yet told to the result branch."""

    @property
    def holds(self) -> bool:
        return not self.problems and not any(entry.problems for entry in self.entries)


def audited(account: Account, state: RunState, branch: Branch) -> Audit:
    """Set one against the other."""
    chains = {chain.member.commit: chain for chain in account.chains}
    there = {commit.id for commit in branch.commits}
    expected = _published(account)
    entries = [_entry(commit, chains, state, below) for commit, below in _with_parents(branch.commits, state.base)]
    for chain in expected:
        if chain.member.commit not in there:
            missing = f"landed and published as {chain.member.commit[:SHORT]}, and is not on {state.result_branch}"
            entries.append(Entry(None, chain, (missing, *_doubts(chain))))
    known = {chain.member.commit for chain in expected}
    waiting = tuple(c for c in account.chains if c.member.commit not in known and c.member.commit not in there)
    return Audit(state, branch, tuple(entries), (*account.flaws, *_of_the_whole(account, state, branch)), waiting)


def _published(account: Account) -> tuple[Chain, ...]:
    return tuple(chain for chain in account.chains if chain.published_at is not None)


def _with_parents(commits: Sequence[Commit], base: Sha) -> Iterator[tuple[Commit, Sha]]:
    """Each commit, and the one that has to be below it."""
    below = base
    for commit in commits:
        yield commit, below
        below = commit.id


def _of_the_whole(account: Account, state: RunState, branch: Branch) -> Iterator[str]:
    if not branch.base_there:
        yield f"the base {state.base[:SHORT]} is not in the repository, so nothing above it can be told apart"
    if branch.tip is None and account.published is not None:
        yield f"there is no branch {state.result_branch}; the journal says it was left at {account.published[:SHORT]}"
    landings = {chain.member.commit for chain in account.chains}
    if account.published is not None and account.published not in landings:
        yield f"the journal published {account.published[:SHORT]}, which is no landing in it"
    order = [chain.member.commit for chain in account.chains if chain.member.commit in {c.id for c in branch.commits}]
    if order != [commit.id for commit in branch.commits if commit.id in landings]:
        yield "the commits stand in another order than they landed in"
    if len(landings) != len(account.chains):
        yield "the journal lands one commit twice"


def _entry(commit: Commit, chains: Mapping[Sha, Chain], state: RunState, below: Sha) -> Entry:
    chain = chains.get(commit.id)
    if chain is None:
        return Entry(commit, None, (_stranger(commit, chains, state), *_of_the_commit(commit, below)))
    said = (*_of_the_commit(commit, below), *_disagreements(commit, chain, state.run), *_doubts(chain))
    return Entry(commit, chain, said)


def _stranger(commit: Commit, chains: Mapping[Sha, Chain], state: RunState) -> str:
    if commit.run != state.run:
        return "is not of this run: no landing in the journal, and no trailer that names it"
    ours = (chain.member for chain in chains.values())
    landed = next((one.commit for one in ours if (one.subtask, one.attempt) == (commit.subtask, commit.attempt)), None)
    who = f"{commit.subtask}, attempt {commit.attempt}"
    if landed is None:
        return f"says it is {who}, of which the journal knows no landing"
    return f"says it is {who}, which landed as {landed[:SHORT]}: it was rewritten, or made up"


def _of_the_commit(commit: Commit, below: Sha) -> Iterator[str]:
    if not commit.sound:
        yield "its content does not have the id it is stored by"
    if commit.parents != (below,):
        stands = ", ".join(parent[:SHORT] for parent in commit.parents) or "nothing"
        yield f"stands on {stands}; below it should be {below[:SHORT]}, and nothing else"


def _disagreements(commit: Commit, chain: Chain, run: RunId) -> Iterator[str]:
    """Where git and the journal tell different things of one commit."""
    member, attempt = chain.member, chain.attempt
    pairs: list[tuple[str, object, object]] = [
        ("Fleet-Run", commit.run, run),
        ("Fleet-Task", commit.subtask, member.subtask),
        ("Fleet-Attempt", commit.attempt, member.attempt),
    ]
    if attempt is not None and commit.worker is not None:  # early versions wrote no such trailer
        pairs.append(("Fleet-Worker", commit.worker, attempt.worker))
    for name, said, told in pairs:
        if said != told:
            yield f"its trailer {name} says {said}, the journal {told}"
    models = chain.begun.models if chain.begun is not None else frozenset[str]()
    if models and not any(_same_model(commit.model or "", model) for model in models):
        yield f"its trailer Assisted-by says {commit.model or 'nothing'}, the journal {', '.join(sorted(models))}"
    if member.tree and member.tree != commit.tree:
        yield f"its tree is {commit.tree[:SHORT]}; the tree that was tested and landed is {member.tree[:SHORT]}"
    if attempt is not None and attempt.commit == commit.id:  # it landed as it was made
        trees = {run.tree for run in attempt.checks if run.tree}
        if trees and commit.tree not in trees:
            yield f"its own checks ran on the tree {min(trees)[:SHORT]}, not on its {commit.tree[:SHORT]}"


def _same_model(one: str, other: str) -> bool:
    """A service may answer with a dated name for the one that it was asked for."""
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")


def _doubts(chain: Chain) -> Iterator[str]:
    """Where the journal alone does not account for a landing."""
    attempt, begun, who = chain.attempt, chain.begun, f"attempt {chain.member.attempt}"
    if begun is None or attempt is None:
        yield f"the journal knows no beginning of {who} at {chain.member.subtask}"
        return
    if not chain.versions:
        yield f"no version of the plan before {who} holds {chain.member.subtask}"
    if begun.awaited:
        yield f"{who} began before the plan was approved"
    if not attempt.verified:
        yield f"{who} landed, and the journal does not say that its own checks passed"
    for run in attempt.checks:
        if not run.passed:
            yield f"a check of {who} that landed is red: {run.command}"
    if attempt.worker != PLANNER and not chain.entered and not chain.silent:
        yield f"batch {chain.batch} landed it without having it among its candidates"
    if not chain.silent:
        yield from _untested(chain, attempt, judged=bool(begun.spec.acceptance))


def _untested(chain: Chain, attempt: Attempt, *, judged: bool) -> Iterator[str]:
    """Where what landed is not shown to be green. A step that only its worker can tell about has no checks."""
    runs = chain.checks if chain.member.tested else chain.above
    if not runs and judged and attempt.checks:
        yield f"no check of the tree {chain.member.tree[:SHORT]} is in the journal, though it says it was tested"
    for run in runs:
        if not run.fine and run.command not in chain.excused:
            yield f"a check of the tree that landed is red: {run.command}"
