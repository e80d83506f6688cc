"""What must hold of a run that was killed, whenever and however often: a function for each, that yields what is wrong.

The numbers are those of docs/reliability.md. All of them look from outside: at the journal, at git, at the user's
files, at the processes of the machine, and at what the minds wrote down of their own calls.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.core.ids import attempt_ref, tip_ref
from fleet.core.paths import outside
from fleet.core.remedies import LADDER
from fleet.core.state import RunState
from fleet.journal import Journal
from tests.chaos.room import RUN, Room
from tests.chaos.scenarios import MOST, USE
from tests.e2e.stage import marked
from tests.worktrees.conftest import fingerprint, git
from worktrees.publish import published_ref

BY_HAND = "by-hand"  # beside the store: the commit that somebody put on the integration branch, where somebody did
SHOWN = "\x01%H %T %(trailers:key=Fleet-Task,valueonly,separator=%x20)"


@dataclass(frozen=True)
class Landed:
    """A commit of the result branch."""

    commit: str
    tree: str
    task: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call to a model, as the mind that made it wrote it down."""

    life: int
    who: str
    number: int


@dataclass
class Aftermath:
    """What is left of a run after its last life."""

    room: Room
    kills: int
    tree: str
    """The tree a run that nobody killed ends with."""
    before: Mapping[str, str]
    """The user's repository before anything began."""
    pins: Mapping[str, int] = field(default_factory=dict)
    """Attempts that were pinned when a life was killed, as SUBTASK/NUMBER, with the first such life."""
    verdicts: dict[str, str] = field(default_factory=dict)
    """What checks say of trees, kept from one run to the next: the same trees come again and again."""
    damaged: bool = False
    """Whether objects may lie about that nothing names and that are not whole."""

    @cached_property
    def facts(self) -> list[f.Fact]:
        with Journal(self.room.folder.journal) as journal:
            return [fact for _, fact in journal.facts()]

    @cached_property
    def states(self) -> list[RunState]:
        states: list[RunState] = []
        for fact in self.facts:
            states.append(evolve(states[-1] if states else None, fact))
        return states

    @cached_property
    def losses(self) -> list[int]:
        """Where in the journal commits were found to be gone: what is before that speaks of what was then."""
        return [place for place, fact in enumerate(self.facts) if isinstance(fact, f.WorkLost)]

    @cached_property
    def gone(self) -> set[str]:
        return {commit for fact in self.facts if isinstance(fact, f.WorkLost) for commit in fact.commits}

    @property
    def state(self) -> RunState:
        return self.states[-1]

    @cached_property
    def landed(self) -> list[Landed]:
        said = git(
            self.room.repository,
            *(
                "log",
                "--reverse",
                "--first-parent",
                "--name-only",
                f"--format={SHOWN}",
                f"{self.state.base}..fleet/{RUN}",
            ),
        )
        found = []
        for entry in said.split("\x01")[1:]:
            head, *paths = entry.splitlines()
            commit, tree, *tasks = head.split()
            found.append(Landed(commit, tree, " ".join(tasks), tuple(path for path in paths if path)))
        return found

    @cached_property
    def store(self) -> Path:
        return self.room.store() / "fleet.git"

    @cached_property
    def refs(self) -> dict[str, str]:
        lines = git(self.store, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split() for line in lines)

    @cached_property
    def calls(self) -> list[Call]:
        words = (line.split() for line in self.room.calls.read_text().splitlines())
        return [Call(int(life), who, int(number)) for life, who, number in words]


# ---- integration ----------------------------------------------------------------------------------------------------


def i1_merged_exactly_once(after: Aftermath) -> Iterator[str]:
    counts = Counter(one.task for one in after.landed)
    wanted = {id_ for id_, subtask in after.state.subtasks.items() if subtask.landed is not None}
    yield from (f"{task!r} is on the branch {count} times" for task, count in counts.items() if count != 1)
    yield from (f"{id_} is said to have landed, and is not there" for id_ in wanted - counts.keys())
    yield from (f"{id_} is there, and is not said to have landed" for id_ in counts.keys() - wanted)


def i2_what_was_done_is_reachable(after: Aftermath) -> Iterator[str]:
    """Pinned before it is journalled: whatever the journal names, a ref of its own keeps."""
    for fact in after.facts:
        if isinstance(fact, f.AttemptCommitted) and fact.commit not in after.gone:
            ref = attempt_ref(RUN, fact.subtask, fact.number)
            if after.refs.get(ref) != fact.commit:
                yield f"{fact.commit[:7]} of {fact.subtask} {fact.number} is not what {ref} pins"


def i3_every_commit_passes(after: Aftermath) -> Iterator[str]:
    gate = after.room.scenario.gate
    done: list[str] = []
    for one in after.landed:
        done.append(one.task)
        own = [c.run or "true" for c in after.state.spec(one.task).acceptance]
        for command in (*([gate] if gate else []), *own):
            if (wrong := _verdict(after, one, command)) != "":
                yield f"{one.task} at {one.commit[:7]}: {command} {wrong}"


def _verdict(after: Aftermath, one: Landed, command: str) -> str:
    key = f"{one.tree} {command}"
    if key not in after.verdicts:
        checkout = after.room.path / "checkout"
        subprocess.run(["rm", "-rf", checkout], check=True)
        checkout.mkdir()
        archive = subprocess.run(
            ["git", "archive", one.commit], cwd=after.room.repository, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", checkout], input=archive, check=True)
        done = subprocess.run(["sh", "-c", command], cwd=checkout, check=False, capture_output=True)
        after.verdicts[key] = "" if done.returncode == 0 else f"ends with {done.returncode}"
    return after.verdicts[key]


def i4_what_was_tested_is_what_is_published(after: Aftermath) -> Iterator[str]:
    """Where a part of a batch landed, its checks tell of the part that did not."""
    trees = {one.commit: one.tree for one in after.landed}
    for place, fact in enumerate(after.facts):
        if not isinstance(fact, f.BatchTested) or not fact.landed:
            continue
        tree = trees.get(fact.tip)
        if tree is None and any(place < loss for loss in after.losses):
            continue
        if tree is None:
            yield f"batch {fact.number} says that it landed {fact.tip[:7]}, which is not on the branch"
        elif not fact.red and (strange := {check.tree for check in fact.checks} - {tree}):
            yield f"batch {fact.number} landed the tree {tree[:7]}, and tested {strange}"


def i5_the_target_moves_forward(after: Aftermath) -> Iterator[str]:
    order = {after.state.base: 0} | {one.commit: place for place, one in enumerate(after.landed, 1)}
    since = after.losses[-1] if after.losses else 0
    tips = list(dict.fromkeys(state.tip for state in after.states[since:]))
    places = [order.get(tip, -1) for tip in tips]
    if places != sorted(places) or -1 in places:
        yield f"the tip went {places} along the branch"
    ends = {after.refs.get(tip_ref(RUN)), after.refs.get(published_ref(RUN)), after.state.tip, after.landed[-1].commit}
    if len(ends) != 1:
        yield f"journal, integration branch and result branch end at different commits: {ends}"


def i5_nothing_is_overwritten(after: Aftermath) -> Iterator[str]:
    """By compare-and-swap: what a hand put on the integration branch meanwhile is kept, beside it."""
    by_hand = after.store.parent / BY_HAND
    if by_hand.exists() and by_hand.read_text() not in after.refs.values():
        yield f"{by_hand.read_text()[:7]} stood on the integration branch, and no ref keeps it"


def i6_no_silent_revert(after: Aftermath) -> Iterator[str]:
    touches = after.room.scenario.touches
    for one in after.landed:
        if one.task in touches and (beyond := outside(one.paths, touches[one.task])):
            yield f"{one.task} changed {beyond}"


def i7_dependencies_first(after: Aftermath) -> Iterator[str]:
    order = [one.task for one in after.landed]
    for place, task in enumerate(order):
        for need in after.state.spec(task).depends_on:
            if need in order and order.index(need) > place:
                yield f"{task} landed before {need}"


# ---- the user's property --------------------------------------------------------------------------------------------


def i9_the_users_repository_is_as_it_was(after: Aftermath) -> Iterator[str]:
    now = fingerprint(after.room.repository)
    differ = {name for name in now.keys() | after.before.keys() if now.get(name) != after.before.get(name)}
    yield from (f"{name} is not as it was" for name in sorted(differ))


def i10_one_branch_appears(after: Aftermath) -> Iterator[str]:
    """And the store holds no refs but the fleet's."""
    yield from (f"the store has {ref}" for ref in after.refs if not ref.startswith("refs/fleet/"))
    refs = git(after.room.repository, "for-each-ref", "--format=%(refname)").splitlines()
    yield from (
        f"there is a ref {ref}"
        for ref in refs
        if ref not in {"refs/heads/main", "refs/stash", f"refs/heads/fleet/{RUN}"}
    )


# ---- durability -----------------------------------------------------------------------------------------------------


def i12_the_same_tree_in_the_end(after: Aftermath) -> Iterator[str]:
    if after.state.ending != "landed":
        yield f"the run ended {after.state.ending}: {after.state.ending_why}"
    tree = after.landed[-1].tree if after.landed else "nothing"
    if tree != after.tree:
        yield f"the tree is {tree[:7]}, and {after.tree[:7]} without a kill"


def i15_finished_work_costs_no_new_call(after: Aftermath) -> Iterator[str]:
    """A call is made again only where a kill came before its answer was on disk."""
    made = Counter((call.who, call.number) for call in after.calls)
    for (who, number), count in made.items():
        if count > 1 + after.kills:
            yield f"{who} {number} was asked {count} times in {after.kills + 1} lives"
    for call in after.calls:
        if call.life > after.pins.get(f"{call.who}/{call.number}", call.life):
            yield f"{call.who} {call.number} was pinned before life {call.life}, which asked again"
    answered = Counter(fact.call for fact in after.facts if isinstance(fact, f.PlanRevised))
    yield from (f"planner call {call} was answered {count} times" for call, count in answered.items() if count != 1)


def i17_every_transition_is_legal(after: Aftermath) -> Iterator[str]:
    epochs = [fact.epoch for fact in after.facts if isinstance(fact, f.EngineStarted)]
    if epochs != list(range(1, len(epochs) + 1)):
        yield f"the engine's epochs are {epochs}"
    started = Counter((fact.subtask, fact.number) for fact in after.facts if isinstance(fact, f.AttemptStarted))
    yield from (f"attempt {key} began {count} times" for key, count in started.items() if count != 1)
    done = Counter((fact.subtask, fact.number) for fact in after.facts if isinstance(fact, f.AttemptCommitted))
    yield from (f"attempt {key} was committed {count} times" for key, count in done.items() if count != 1)


def i18_nothing_is_left_in_limbo(after: Aftermath) -> Iterator[str]:
    if not after.state.ended:
        yield "the run has not ended"
    yield from (f"{id_} is in limbo" for id_, subtask in after.state.subtasks.items() if not subtask.closed)


# ---- resources ------------------------------------------------------------------------------------------------------


def i19_nothing_is_left_behind(after: Aftermath) -> Iterator[str]:
    home = after.store.parent
    listed = git(after.store, "worktree", "list", "--porcelain").split("\n\n")
    if len(listed) != 1:
        yield f"git still knows {len(listed) - 1} worktrees"
    yield from (f"{path} is left" for path in (home / "slots").iterdir() if path.is_dir())
    yield from (f"{path} is left" for path in home.rglob("*.lock") if path.parent.name != "slots")
    yield from (f"{path} is left" for path in home.iterdir() if path.name.startswith("new-"))
    yield from (f"process {pid} is left" for pid in marked(RUN) if _ours(pid, after.room))


def i19_nothing_of_a_dead_engine_works_beside_a_new_one(after: Aftermath) -> Iterator[str]:
    for line in after.room.orphans.read_text().splitlines():
        life, many = line.split()
        if int(many):
            yield f"{many} processes of earlier lives were there when work began in life {life}"


def _ours(pid: int, room: Room) -> bool:
    """Whether a process that carries the run's name belongs to this room: others may play at the same time."""
    try:
        return str(room.play).encode() in Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return False


def i20_what_was_spent_is_known(after: Aftermath) -> Iterator[str]:
    """To the last call: what a kill left unanswered is counted as doubtful, at its highest price."""
    state, calls = after.state, len(after.calls)
    known = state.spent.priced_dollars + (state.doubt.dollars or 0.0)
    if known + 1e-9 < calls * (USE.dollars or 0.0):
        yield f"{calls} calls were made, and only ${known:.2f} are accounted for"
    if state.spent.calls > calls:
        yield f"{state.spent.calls} calls are journalled, and {calls} were made"
    if state.doubt.calls > after.kills * len(after.state.subtasks) * 4 + after.kills:
        yield f"{state.doubt.calls} calls of at most ${MOST.dollars} are in doubt after {after.kills} kills"


def i21_no_more_at_once_than_allowed(after: Aftermath) -> Iterator[str]:
    if after.state.peak > after.state.policy.workers:
        yield f"{after.state.peak} worked at once"


def i22_attempts_and_plans_are_bounded(after: Aftermath) -> Iterator[str]:
    """And no kill uses up an attempt: each began for a failure of its own."""
    policy = after.state.policy
    for id_, subtask in after.state.subtasks.items():
        failed = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
        counted = sum(LADDER[failure.kind].counts for failure in failed)
        scripted = max(len(after.room.scenario.work.get(id_, ())), 1) + (id_ in {"x", "y", "p", "q"})
        scripted += sum(id_ in fact.anew for fact in after.facts if isinstance(fact, f.WorkLost))
        if counted > policy.max_attempts or subtask.depth > policy.max_depth:
            yield f"{id_} failed {counted} times at depth {subtask.depth}"
        if len(subtask.attempts) > scripted:
            kinds = [failure.kind for failure in failed]
            yield f"{id_} took {len(subtask.attempts)} attempts, which the script does not explain: {kinds}"
    if after.state.planning.calls > policy.max_planner_calls:
        yield f"the planner was called {after.state.planning.calls} times"


def fsck(after: Aftermath) -> Iterator[str]:
    """Not in the list, and true all the same: whatever a ref names is there, whole."""
    for place in (after.store, after.room.repository):
        how = "--connectivity-only" if after.damaged else "--strict"
        done = subprocess.run(["git", "fsck", how, "--no-dangling"], cwd=place, capture_output=True, check=False)
        if done.returncode != 0:
            yield f"git fsck in {place.name}: {(done.stdout + done.stderr).decode()[-300:]}"


INVARIANTS: dict[str, Callable[[Aftermath], Iterator[str]]] = {
    "I1": i1_merged_exactly_once,
    "I2": i2_what_was_done_is_reachable,
    "I3": i3_every_commit_passes,
    "I4": i4_what_was_tested_is_what_is_published,
    "I5": i5_the_target_moves_forward,
    "I5 by swap": i5_nothing_is_overwritten,
    "I6": i6_no_silent_revert,
    "I7": i7_dependencies_first,
    "I9": i9_the_users_repository_is_as_it_was,
    "I10": i10_one_branch_appears,
    "I12": i12_the_same_tree_in_the_end,
    "I15": i15_finished_work_costs_no_new_call,
    "I17": i17_every_transition_is_legal,
    "I18": i18_nothing_is_left_in_limbo,
    "I19": i19_nothing_is_left_behind,
    "I19 meanwhile": i19_nothing_of_a_dead_engine_works_beside_a_new_one,
    "I20": i20_what_was_spent_is_known,
    "I21": i21_no_more_at_once_than_allowed,
    "I22": i22_attempts_and_plans_are_bounded,
    "fsck": fsck,
}


def violations(after: Aftermath) -> list[str]:
    """All that does not hold. Evidence that is missing altogether is a violation, too."""
    found = []
    for name, holds in INVARIANTS.items():
        try:
            found += [f"{name}: {wrong}" for wrong in holds(after)]
        except Exception as error:  # noqa: BLE001 - what can't even be looked at does not hold
            found.append(f"{name}: can't be told: {type(error).__name__}: {error}")
    return found
