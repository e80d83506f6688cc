"""The invariants of a run that was killed, whenever and however often: one function each, which yields the violations.

The numbers are those of docs/internals/reliability.md. Everything is checked from outside: in the journal, in git, in
the user's files, among the processes of the machine, and in the agents' own records of their calls.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from chaos.repeatable_run import RUN, RepeatableRun
from chaos.scenarios import CALL, CALL_AT_MOST
from fleet.core.base.ids import Sha, SubtaskId, attempt_ref, tip_ref
from fleet.core.base.paths import outside
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.policy.remedies import LADDER
from fleet.core.state.state import RunState
from fleet.runs.journal import Journal
from tests.e2e.stage import marked
from tests.worktrees.conftest import fingerprint, git
from worktrees.target.publish import published_ref

FOREIGN_TIP = "foreign-tip"
"""A file beside the store: the commit that someone else put on the integration branch, if anyone did."""
LOG_FORMAT = "\x01%H %T %(trailers:key=Fleet-Task,valueonly,separator=%x20)"


@dataclass(frozen=True)
class Landed:
    """A commit of the result branch."""

    commit: Sha
    tree: Sha
    task: SubtaskId
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call to a model, as recorded by the agent that made it."""

    engine: int
    caller: str
    number: int


@dataclass
class Aftermath:
    """State of a run after its last engine."""

    run: RepeatableRun
    kills: int
    tree: str
    """The final tree of the reference run."""
    before: Mapping[str, str]
    """The user's repository before the run."""
    pins: Mapping[str, int] = field(default_factory=dict)
    """Attempts that were pinned when an engine was killed, as SUBTASK/NUMBER, with the first such engine."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """Results of checks by tree and command, kept from run to run, because the same trees occur again and again."""
    damaged: bool = False
    """Whether damaged objects may exist that no ref reaches."""

    @cached_property
    def facts(self) -> list[f.Fact]:
        with Journal(self.run.folder.journal) as journal:
            return [fact for _, fact in journal.facts()]

    @cached_property
    def states(self) -> list[RunState]:
        states: list[RunState] = []
        for fact in self.facts:
            states.append(evolve(states[-1] if states else None, fact))
        return states

    @cached_property
    def losses(self) -> list[int]:
        """Positions in the journal where commits were found to be lost: earlier facts describe the state before."""
        return [place for place, fact in enumerate(self.facts) if isinstance(fact, f.WorkLost)]

    @cached_property
    def lost(self) -> set[str]:
        return {commit for fact in self.facts if isinstance(fact, f.WorkLost) for commit in fact.commits}

    @property
    def state(self) -> RunState:
        return self.states[-1]

    @cached_property
    def landed(self) -> list[Landed]:
        options = ("--reverse", "--first-parent", "--name-only", f"--format={LOG_FORMAT}")
        log = git(self.run.repository, "log", *options, f"{self.state.base}..fleet/{RUN}")
        landed = []
        for entry in log.split("\x01")[1:]:
            head, *paths = entry.splitlines()
            commit, tree, *tasks = head.split()
            task = SubtaskId(" ".join(tasks))
            landed.append(Landed(Sha(commit), Sha(tree), task, tuple(path for path in paths if path)))
        return landed

    @cached_property
    def store(self) -> Path:
        return self.run.store() / "fleet.git"

    @cached_property
    def refs(self) -> dict[str, str]:
        lines = git(self.store, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)

    @cached_property
    def calls(self) -> list[Call]:
        lines = (line.split() for line in self.run.calls.read_text().splitlines())
        return [Call(int(engine), caller, int(number)) for engine, caller, number in lines]


# ---- integration ----------------------------------------------------------------------------------------------------


def i1_merged_exactly_once(after: Aftermath) -> Iterator[str]:
    counts = Counter(one.task for one in after.landed)
    wanted = {id_ for id_, subtask in after.state.subtasks.items() if subtask.landed is not None}
    yield from (f"{task!r} is on the branch {count} times" for task, count in counts.items() if count != 1)
    yield from (f"{id_} landed according to the journal, but is not on the branch" for id_ in wanted - counts.keys())
    yield from (f"{id_} is on the branch, but did not land according to the journal" for id_ in counts.keys() - wanted)


def i2_finished_work_is_reachable(after: Aftermath) -> Iterator[str]:
    """Work is pinned before it is recorded: a ref exists for each commit that the journal names."""
    for fact in after.facts:
        if isinstance(fact, f.AttemptCommitted) and fact.commit not in after.lost:
            ref = attempt_ref(RUN, fact.subtask, fact.number)
            if after.refs.get(ref) != fact.commit:
                yield f"{ref} does not pin {fact.commit[:7]} of {fact.subtask} {fact.number}"


def i3_every_commit_passes(after: Aftermath) -> Iterator[str]:
    gate = after.run.scenario.gate
    for landed in after.landed:
        own = [c.run or "true" for c in after.state.spec(landed.task).acceptance]
        for command in (*([gate] if gate else []), *own):
            if verdict := _verdict(after, landed, command):
                yield f"{landed.task} at {landed.commit[:7]}: {command} {verdict}"


def _verdict(after: Aftermath, landed: Landed, command: str) -> str:
    """Return why a command fails on the tree of a commit. Empty if it passes."""
    key = f"{landed.tree} {command}"
    if key not in after.verdicts:
        checkout = after.run.path / "checkout"
        subprocess.run(["rm", "-rf", checkout], check=True)
        checkout.mkdir()
        archive = subprocess.run(
            ["git", "archive", landed.commit], cwd=after.run.repository, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", checkout], input=archive, check=True)
        done = subprocess.run(["sh", "-c", command], cwd=checkout, check=False, capture_output=True)
        after.verdicts[key] = "" if done.returncode == 0 else f"fails with exit code {done.returncode}"
    return after.verdicts[key]


def i4_published_trees_were_tested(after: Aftermath) -> Iterator[str]:
    """The checks of a batch that landed in part ran on the whole batch."""
    trees = {one.commit: one.tree for one in after.landed}
    for place, fact in enumerate(after.facts):
        if not isinstance(fact, f.BatchTested) or not fact.landed:
            continue
        tree = trees.get(fact.tip)
        if tree is None and any(place < loss for loss in after.losses):
            continue
        if tree is None:
            yield f"batch {fact.number} landed {fact.tip[:7]}, which is not on the branch"
        elif not fact.red and (other := {check.tree for check in fact.checks} - {tree}):
            yield f"batch {fact.number} landed the tree {tree[:7]}, but tested {other}"


def i5_the_target_moves_forward(after: Aftermath) -> Iterator[str]:
    order = {after.state.base: 0} | {one.commit: place for place, one in enumerate(after.landed, 1)}
    since = after.losses[-1] if after.losses else 0
    tips = list(dict.fromkeys(state.tip for state in after.states[since:]))
    places = [order.get(tip, -1) for tip in tips]
    if places != sorted(places) or -1 in places:
        yield f"the tip moved to positions {places} of the branch"
    ends = {after.refs.get(tip_ref(RUN)), after.refs.get(published_ref(RUN)), after.state.tip, after.landed[-1].commit}
    if len(ends) != 1:
        yield f"journal, integration branch and result branch name different commits: {ends}"


def i5_nothing_is_overwritten(after: Aftermath) -> Iterator[str]:
    """By compare-and-swap: a commit that someone else put on the integration branch is kept under a ref."""
    foreign = after.store.parent / FOREIGN_TIP
    if foreign.exists() and foreign.read_text() not in after.refs.values():
        yield f"{foreign.read_text()[:7]} was on the integration branch, and no ref keeps it"


def i6_no_silent_revert(after: Aftermath) -> Iterator[str]:
    touches = after.run.scenario.touches
    for landed in after.landed:
        if landed.task in touches and (beyond := outside(landed.paths, touches[landed.task])):
            yield f"{landed.task} changed {beyond}"


def i7_dependencies_first(after: Aftermath) -> Iterator[str]:
    order = [one.task for one in after.landed]
    for place, task in enumerate(order):
        for need in after.state.spec(task).depends_on:
            if need in order and order.index(need) > place:
                yield f"{task} landed before {need}"


# ---- the user's property --------------------------------------------------------------------------------------------


def i9_the_users_repository_is_unchanged(after: Aftermath) -> Iterator[str]:
    now = fingerprint(after.run.repository)
    differ = {name for name in now.keys() | after.before.keys() if now.get(name) != after.before.get(name)}
    yield from (f"{name} has changed" for name in sorted(differ))


def i10_one_branch_appears(after: Aftermath) -> Iterator[str]:
    """Expect one branch in the user's repository. The store contains only refs below refs/fleet/."""
    yield from (f"the store has {ref}" for ref in after.refs if not ref.startswith("refs/fleet/"))
    refs = git(after.run.repository, "for-each-ref", "--format=%(refname)").splitlines()
    yield from (
        f"the user's repository has {ref}"
        for ref in refs
        if ref not in {"refs/heads/main", "refs/stash", f"refs/heads/fleet/{RUN}"}
    )


# ---- durability -----------------------------------------------------------------------------------------------------


def i12_the_same_tree_in_the_end(after: Aftermath) -> Iterator[str]:
    if after.state.ending != "landed":
        yield f"the run ended {after.state.ending}: {after.state.ending_why}"
    tree = after.landed[-1].tree if after.landed else "nothing"
    if tree != after.tree:
        yield f"the tree is {tree[:7]}, but {after.tree[:7]} without a kill"


def i15_finished_work_costs_no_new_call(after: Aftermath) -> Iterator[str]:
    """A call is repeated only if a kill came before its answer was on disk."""
    made = Counter((call.caller, call.number) for call in after.calls)
    for (caller, number), count in made.items():
        if count > 1 + after.kills:
            yield f"{caller} {number} made {count} calls in {after.kills + 1} engines"
    for call in after.calls:
        if call.engine > after.pins.get(f"{call.caller}/{call.number}", call.engine):
            yield f"{call.caller} {call.number} was pinned before engine {call.engine}, which called again"
    answered = Counter(fact.call for fact in after.facts if isinstance(fact, f.PlanRevised))
    yield from (f"planner call {call} was answered {count} times" for call, count in answered.items() if count != 1)


def i17_every_transition_is_legal(after: Aftermath) -> Iterator[str]:
    epochs = [fact.epoch for fact in after.facts if isinstance(fact, f.EngineStarted)]
    if epochs != list(range(1, len(epochs) + 1)):
        yield f"the epochs are {epochs}"
    started = Counter((fact.subtask, fact.number) for fact in after.facts if isinstance(fact, f.AttemptStarted))
    yield from (f"attempt {key} was started {count} times" for key, count in started.items() if count != 1)
    done = Counter((fact.subtask, fact.number) for fact in after.facts if isinstance(fact, f.AttemptCommitted))
    yield from (f"attempt {key} was committed {count} times" for key, count in done.items() if count != 1)


def i18_everything_is_closed(after: Aftermath) -> Iterator[str]:
    if not after.state.ended:
        yield "the run has not ended"
    yield from (f"{id_} is not closed" for id_, subtask in after.state.subtasks.items() if not subtask.closed)


# ---- resources ------------------------------------------------------------------------------------------------------


def i19_nothing_is_left_behind(after: Aftermath) -> Iterator[str]:
    home = after.store.parent
    listed = git(after.store, "worktree", "list", "--porcelain").split("\n\n")
    if len(listed) != 1:
        yield f"git still lists {len(listed) - 1} worktrees"
    yield from (f"{path} is left" for path in (home / "slots").iterdir() if path.is_dir())
    yield from (f"{path} is left" for path in home.rglob("*.lock") if path.parent.name != "slots")
    yield from (f"{path} is left" for path in home.iterdir() if path.name.startswith("new-"))
    yield from (f"process {pid} is left" for pid in marked(RUN) if _belongs_to(pid, after.run))


def i19_no_process_of_a_dead_engine_works_beside_a_new_one(after: Aftermath) -> Iterator[str]:
    for line in after.run.orphans.read_text().splitlines():
        engine, count = line.split()
        if int(count):
            yield f"{count} processes of earlier engines were running when engine {engine} leased its first worktree"


def _belongs_to(pid: int, run: RepeatableRun) -> bool:
    """Whether a process with the run's name in its tag belongs to this run: others of that name may run in parallel."""
    try:
        return str(run.current).encode() in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def i20_costs_are_known(after: Aftermath) -> Iterator[str]:
    """To the last call: calls that a kill left unanswered are in doubt, at their highest price."""
    state, calls = after.state, len(after.calls)
    known = state.spent.priced_dollars + (state.doubt.dollars or 0.0)
    if known + 1e-9 < calls * (CALL.dollars or 0.0):
        yield f"{calls} calls were made, but only ${known:.2f} are accounted for"
    if state.spent.calls > calls:
        yield f"{state.spent.calls} calls are recorded, but {calls} were made"
    if state.doubt.calls > after.kills * len(after.state.subtasks) * 4 + after.kills:
        yield f"{state.doubt.calls} calls of at most ${CALL_AT_MOST.dollars} are in doubt after {after.kills} kills"


def i21_no_more_at_once_than_allowed(after: Aftermath) -> Iterator[str]:
    if after.state.peak > after.state.policy.workers:
        yield f"{after.state.peak} workers ran at once"


def i22_attempts_and_plans_are_bounded(after: Aftermath) -> Iterator[str]:
    """Expect bounded attempts and plans. A kill does not use up an attempt."""
    policy = after.state.policy
    for id_, subtask in after.state.subtasks.items():
        failed = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
        counted = sum(LADDER[failure.kind].counts for failure in failed)
        scripted = max(len(after.run.scenario.attempts.get(id_, ())), 1) + (id_ in {"x", "y", "p", "q"})
        scripted += sum(id_ in fact.redo for fact in after.facts if isinstance(fact, f.WorkLost))
        if counted > policy.max_attempts or subtask.depth > policy.max_depth:
            yield f"{id_} failed {counted} times at depth {subtask.depth}"
        if len(subtask.attempts) > scripted:
            kinds = [failure.kind for failure in failed]
            yield f"{id_} took {len(subtask.attempts)} attempts, more than the script explains: {kinds}"
    if after.state.planning.calls > policy.max_planner_calls:
        yield f"the planner was called {after.state.planning.calls} times"


def fsck(after: Aftermath) -> Iterator[str]:
    """Every object that a ref reaches exists and is intact."""
    for repository in (after.store, after.run.repository):
        how = "--connectivity-only" if after.damaged else "--strict"
        done = subprocess.run(["git", "fsck", how, "--no-dangling"], cwd=repository, capture_output=True, check=False)
        if done.returncode != 0:
            yield f"git fsck in {repository.name}: {(done.stdout + done.stderr).decode()[-300:]}"


INVARIANTS: dict[str, Callable[[Aftermath], Iterator[str]]] = {
    "I1": i1_merged_exactly_once,
    "I2": i2_finished_work_is_reachable,
    "I3": i3_every_commit_passes,
    "I4": i4_published_trees_were_tested,
    "I5": i5_the_target_moves_forward,
    "I5 by swap": i5_nothing_is_overwritten,
    "I6": i6_no_silent_revert,
    "I7": i7_dependencies_first,
    "I9": i9_the_users_repository_is_unchanged,
    "I10": i10_one_branch_appears,
    "I12": i12_the_same_tree_in_the_end,
    "I15": i15_finished_work_costs_no_new_call,
    "I17": i17_every_transition_is_legal,
    "I18": i18_everything_is_closed,
    "I19": i19_nothing_is_left_behind,
    "I19 meanwhile": i19_no_process_of_a_dead_engine_works_beside_a_new_one,
    "I20": i20_costs_are_known,
    "I21": i21_no_more_at_once_than_allowed,
    "I22": i22_attempts_and_plans_are_bounded,
    "fsck": fsck,
}


def violations(after: Aftermath) -> list[str]:
    """All violations. Missing evidence is a violation, too."""
    found = []
    for name, check in INVARIANTS.items():
        try:
            found += [f"{name}: {violation}" for violation in check(after)]
        except Exception as error:  # noqa: BLE001 - what cannot be checked counts as violated
            found.append(f"{name}: cannot be checked: {type(error).__name__}: {error}")
    return found
