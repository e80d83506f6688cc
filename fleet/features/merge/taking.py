"""`fleet merge`: brings the result of a run into a branch of the user's, and never a commit that was not tested.

Where the branch is where the run began, or on the way, the tested commits themselves are taken. Where it has moved, a
run of its own lands them again on top of it: gate and criteria on each commit, and a resolver for what does not fit.
The user's branch moves last, by compare-and-swap, to a commit whose whole line below is green.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet, Order, withdraw_cancel
from fleet.config.environment import user
from fleet.core.base.ids import RunId, Sha, result_branch, taken_ref, taken_refs
from fleet.core.facts import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import SubtaskState
from fleet.errors import FleetError, UsageError
from fleet.features.merge.relanding import (
    Origins,
    Piece,
    find_relanding,
    finished_work,
    has_landed_on,
    landed_line,
    put_candidates,
    relanding_name,
    relanding_plan,
    relanding_policy,
    spent_budget,
)
from fleet.read.base_view import How, MergeView, Redone
from fleet.runs.crash_points import reached
from fleet.runs.journal import Journal, locked_message
from fleet.runs.run_folder import RunFolder
from worktrees.base.fs import printable
from worktrees.git.object_format import RUN, Person, committer_of, member_of, one_line, parse_trailers
from worktrees.git.program import text
from worktrees.store.integrator import StoreIntegrator, landed_since
from worktrees.store.replay import Replay, Replayed, commits_above
from worktrees.store.store import Store, open_store
from worktrees.target.checkout import find_checkout, refuse_early, refuse_unfit
from worktrees.target.publish import BranchMovedError, commit_of, move_branch, published_ref
from worktrees.target.signing import taker_of
from worktrees.target.target import Target, inspect

ROUNDS = 3  # times that a result is landed again because its branch moved while that went on


@dataclass(frozen=True, slots=True)
class Resolving:
    """What may be done about commits that do not fit."""

    wanted: bool = True
    dollars: float | None = None
    """What it may cost, instead of what the run left of its budget."""


@dataclass(frozen=True, slots=True)
class Way:
    """From where a branch is to where the result is."""

    target: Target
    store: Store
    branch: str
    ours: Sha
    theirs: Sha
    """The result, as it is pinned in the store or in the user's repository."""
    since: Sha
    """The commit below the first one that the branch lacks."""
    commits: tuple[Sha, ...]
    """The commits that the branch lacks, the oldest first."""
    how: How

    @property
    def moved(self) -> bool:
        return self.since != self.ours


@dataclass(frozen=True, slots=True)
class Taking:
    """One result, on its way into one branch."""

    fleet: Fleet
    folder: RunFolder
    work: Callable[[RunFolder], Awaitable[None]]
    """Runs the engine of a relanding, and shows it."""
    resolving: Resolving = Resolving()
    say: Callable[[str], None] = field(default=lambda _: None)
    """Takes a line about what is under way."""

    async def take(self, here: Path, into: str | None) -> MergeView:
        """Bring the result into a branch: the one that is checked out at `here`, unless one is named."""
        state = self.folder.state()
        if state.relanding is not None:
            raise UsageError(f"{state.run} lands a result again", hint=f"fleet merge {state.relanding.run}")
        if state.published is None:
            raise UsageError(f"nothing of {self.folder.run} has landed", hint="there is nothing to merge")
        target = await inspect(Path(state.repository))
        branch = into or await _current_branch(target, here)
        if branch == result_branch(state.run):
            raise UsageError(f"{branch} is the result itself", hint="name another branch with --into")
        for _ in range(ROUNDS - 1):
            try:
                return await self._take(state, target, branch)
            except BranchMovedError:
                self.say(f"{branch} has moved meanwhile")
        return await self._take(state, target, branch)

    async def _take(self, state: RunState, target: Target, branch: str) -> MergeView:
        result = result_branch(state.run)
        theirs, ours = await commit_of(target, result), await commit_of(target, branch)
        store = await open_store(self.fleet.state_dir, target, ours, theirs)
        try:
            way = await self._way(state, target, store, branch, ours=ours, theirs=theirs)
            pin = taken_ref(state.run, theirs, ours)
            taken = await self._prepared(state, way, pin)
            if taken.commit not in {ours, theirs}:
                await store.git("update-ref", pin, taken.commit)
                reached("a tested copy of a result is pinned")
            if taken.relanding is not None:
                await _mark_delivered(store, taken.relanding)
            await move_branch(store.git, target, state.run, branch, new=taken.commit, old=ours)
        finally:
            await store.close()
        return taken

    async def _prepared(self, state: RunState, way: Way, pin: str) -> MergeView:
        """What the branch will get. Raises `NotTakenError`, before anything has changed."""
        signing = self.fleet.config.git
        if not way.commits:
            return MergeView(state.run, way.branch, way.ours, 0, "nothing")
        if not way.moved and not signing.marks_taken:
            return MergeView(state.run, way.branch, way.theirs, len(way.commits), way.how, _untested(state, way))
        await _refuse_early(way, pin)
        taker = await taker_of(signing) if signing.marks_taken else None
        if way.moved:
            return await self._landed_again(state, way, taker)
        signed = await Replay(self._integrator(way.store), signing, taker).onto(way.ours, way.commits)
        return MergeView(state.run, way.branch, signed.tip, len(signed.pairs), way.how, _untested(state, way))

    def _integrator(self, store: Store) -> StoreIntegrator:
        settings = self.fleet.wiring.worktrees
        return StoreIntegrator(store, committer_of(settings.git.name, settings.git.email))

    async def _way(self, state: RunState, target: Target, store: Store, branch: str, *, ours: Sha, theirs: Sha) -> Way:
        """The shortest way that earlier calls have left: what they took counts, and what they landed again below."""
        base, result = await _merge_base(store, ours, theirs), result_branch(state.run)
        if base is None:
            raise UsageError(f"{result} and {branch} have no common history", hint="take it with git merge")
        ways = [(base, theirs)]
        again = has_landed_on(self.fleet.state_dir, state.run, theirs, ours)
        for taken, onto, copy in await _copies(store, state.run):
            if await store.git.is_ancestor(copy, ours) and await store.git.is_ancestor(taken, theirs):
                ways.append((taken, theirs))
            elif taken == theirs and await store.git.is_ancestor(onto, ours) and not (again and onto == ours):
                ways.append((onto, copy))
        lengths = [(await _count(store, since, tip), await _count(store, since, ours)) for since, tip in ways]
        since, tip = ways[min(range(len(ways)), key=lengths.__getitem__)]
        commits = await commits_above(self._integrator(store), since, tip)
        if commits is None:
            raise UsageError(f"{result} has a merge commit", hint="take it with git merge")
        how: How = "forwarded" if tip == theirs else "landed again"
        return Way(target, store, branch, ours, tip, since, tuple(commits), how)

    # ---- landing again

    async def _landed_again(self, state: RunState, way: Way, taker: Person | None) -> MergeView:
        integrator = self._integrator(way.store)
        replayed = await Replay(integrator).onto(way.ours, way.commits)
        if replayed.failure is None and not replayed.pairs:
            return MergeView(state.run, way.branch, way.ours, 0, "nothing")
        folder = await self._relanding(state, way, replayed)
        landed = folder.state()
        if landed.ending != "landed":
            raise relanding_error(landed, folder, way.branch, state.run)
        commits = await commits_above(integrator, way.ours, landed.tip) or []
        members = await landed_since(way.store.git, landed.run, old=way.ours, tip=landed.tip)
        line = landed_line(landed, commits, members)
        copied = await Replay(integrator, self.fleet.config.git, taker).line(way.ours, line)
        redone = _redone(landed, way.branch, dict(copied.pairs))
        how: How = "landed again" if copied.pairs else "nothing"
        dollars = landed.spent.priced_dollars
        return MergeView(state.run, way.branch, copied.tip, len(copied.pairs), how, 0, landed.run, redone, dollars)

    async def _relanding(self, state: RunState, way: Way, replayed: Replayed) -> RunFolder:
        """The run that lands the commits again, worked on until it has ended."""
        origins = Origins(self.fleet.state_dir, self._integrator(way.store), frozenset(self.fleet.config.workers))
        fits = replayed.failure is None
        pieces = await origins.pieces([source for source, _ in replayed.pairs] if fits else way.commits)
        why_not = self._why_unresolved(state, pieces)
        wanted = f.Relanding(
            run=state.run, branch=way.branch, since=way.since, result=way.theirs, resolves=why_not is None
        )
        folder = find_relanding(self.fleet.state_dir, wanted, way.ours)
        if folder is not None and folder.state().ending == "landed":
            return folder
        if replayed.failure is not None and why_not is not None:
            raise await conflict_error(
                way.store, replayed, run=state.run, branch=way.branch, commits=way.commits, why_not=why_not
            )
        goes_on = folder is not None
        folder = folder or await self._begin(state, way, wanted, pieces)
        if (holder := folder.holder) is not None:
            raise FleetError(locked_message(folder.run, holder))
        self._raise_budget(folder)
        number, how = counted(len(pieces), "commit"), "going on with" if goes_on else "as"
        self.say(f"{way.branch} has moved on; landing {number} again on top of it, {how} {folder.run}")
        withdraw_cancel(folder)
        await self.work(folder)
        return folder

    def _raise_budget(self, folder: RunFolder) -> None:
        """Give a relanding that was begun the budget that this call names."""
        dollars = self.resolving.dollars
        if dollars is not None and folder.state().policy.budget_dollars != dollars:
            with Journal(folder.journal) as journal:
                journal.ask(f.LimitsChanged(at=time.time(), by=user(), budget_dollars=dollars))

    def _why_unresolved(self, state: RunState, pieces: Sequence[Piece]) -> str | None:
        """Why no worker may redo what does not fit; None if one may."""
        wiring = self.fleet.wiring
        if not self.resolving.wanted:
            return "--no-resolve"
        if not wiring.has_models and not wiring.modelless_workers.issuperset(piece.subtask.worker for piece in pieces):
            return f"there is no API key for a resolver (set {self.fleet.config.models.api_key_env})"
        if self.resolving.dollars is None and (spent := spent_budget(state)) is not None:
            return f"the budget of {state.run}, {spent}, is spent (--budget USD allows a resolver more)"
        return None

    async def _begin(self, state: RunState, way: Way, wanted: f.Relanding, pieces: Sequence[Piece]) -> RunFolder:
        name = relanding_name(self.fleet.state_dir, state.run, way.branch)
        made = await put_candidates(self._integrator(way.store), name, pieces)
        reached("the commits of a result are pinned for a relanding")
        policy = relanding_policy(
            state,
            len(pieces),
            resolves=wanted.resolves,
            dollars=self.resolving.dollars,
            gate=bool(self.fleet.wiring.gate.criteria),
        )
        goal = f"Land {state.run} on {way.branch}: {state.goal}"
        order = Order(
            goal=goal,
            repository=Path(state.repository),
            base=way.ours,
            name=name,
            plan=relanding_plan(state, pieces, goal),
            publishes=False,
            relanding=wanted.model_copy(update={"commits": {piece.subtask.id: piece.commit for piece in pieces}}),
            policy=policy,
            begun=tuple(finished_work(pieces, made, policy)),
        )
        return await self.fleet.create(order)


async def take_into(
    fleet: Fleet, folder: RunFolder, work: Callable[[RunFolder], Awaitable[None]], branch: str, dollars: float
) -> MergeView | str:
    """Bring the result of a run into a branch for at most so many dollars; text says why the branch did not get it."""
    resolving = Resolving(wanted=dollars > 0, dollars=dollars if dollars > 0 else None)
    try:
        return await Taking(fleet, folder, work, resolving).take(Path(), branch)
    except NotTakenError as why:
        return str(why)


def _untested(state: RunState, way: Way) -> int:
    """How many commits of a result were tested only together with later ones. A relanding tests each."""
    tested = {each.landed for subtask in state.subtasks.values() for each in subtask.attempts if each.tested}
    return sum(commit not in tested for commit in way.commits) if way.how == "forwarded" else 0


def _redone(landed: RunState, branch: str, copies: dict[Sha, Sha]) -> tuple[Redone, ...]:
    originals = landed.relanding.commits if landed.relanding is not None else {}
    redone = []
    for id_, subtask in landed.subtasks.items():
        failures = [each.failure for each in subtask.attempts if each.failure is not None]
        is_new = id_ not in originals or len(subtask.attempts) > 1
        if subtask.landed is not None and is_new and (copy := copies.get(subtask.landed)) is not None:
            redone.append(Redone(id_, copy, words_about(failures[0], branch) if failures else ""))
    return tuple(redone)


async def _merge_base(store: Store, ours: Sha, theirs: Sha) -> Sha | None:
    answer = await store.git.ask("merge-base", ours, theirs)
    return Sha(text(answer.stdout).strip()) or None


async def _count(store: Store, since: Sha, tip: Sha) -> int:
    return int(await store.git.line("rev-list", "--count", f"{since}..{tip}"))


async def _copies(store: Store, run: RunId) -> list[tuple[Sha, Sha, Sha]]:
    """The copies of results of a run that passed on a branch of the user's: the result, on what, and the copy."""
    prefix = taken_refs(run)
    found = (await store.git.refs(prefix)).items()
    return [(*_two(ref.removeprefix(prefix)), copy) for ref, copy in found]


def _two(name: str) -> tuple[Sha, Sha]:
    result, _, onto = name.partition("/")
    return Sha(result), Sha(onto)


async def _mark_delivered(store: Store, run: RunId) -> None:
    """Note in the store that what a relanding landed is in the user's repository, so that `fleet clean` may forget."""
    if (tip := await store.git.sha(f"refs/fleet/{run}/tip")) is not None:
        await store.git("update-ref", published_ref(run), tip)


async def _current_branch(target: Target, here: Path) -> str:
    """The branch that is checked out where the person is, or else in the repository of the run."""
    try:
        place = await inspect(here)
    except UsageError:
        place = target
    checkout = place.checkout if place.git_dir == target.git_dir else target.checkout
    answer = await checkout.ask("symbolic-ref", "--quiet", "HEAD")
    branch = answer.stdout.decode("utf-8", "replace").strip().removeprefix("refs/heads/")
    if answer.exit_code != 0 or not branch:
        raise UsageError("no branch is checked out here (HEAD is detached)", hint="name one with --into")
    return branch


async def _refuse_early(way: Way, pin: str) -> None:
    """Refuse a checkout with changes before anything is tested: nothing else may be in the way later.

    Files of a copy that an interrupted call has put there are no changes of a person's.
    """
    checkout, copy = await find_checkout(way.target, way.branch), await way.store.git.sha(pin)
    if checkout is not None and copy is not None and await way.target.git.sha(copy) is not None:
        await refuse_unfit(checkout, old=way.ours, new=copy, branch=way.branch)
    elif checkout is not None:
        await refuse_early(checkout, way.store.git, at=way.ours, since=way.since, until=way.theirs, branch=way.branch)


# ---- not taken -------------------------------------------------------------------------------------------------------
# Why a branch did not get a result: what does not fit or is red, on which commit, and what to do next.
#
# Subjects, names and output come from workers and repositories; they are made safe to print.


TAIL = 20  # lines of a red check that a person is shown
NAMED = 5  # subtasks that are named after the first


class NotTakenError(FleetError):
    """The branch is as it was: a commit of the run does not fit on it, or is red there."""

    exit_code = 1
    code = "not_taken"


class InterruptedTakingError(FleetError):
    """The branch is as it was, because a person stopped what went on."""

    exit_code = 130
    code = "interrupted"


async def conflict_error(
    store: Store, replayed: Replayed, *, run: RunId, branch: str, commits: Sequence[Sha], why_not: str
) -> NotTakenError:
    """A commit does not fit, and no worker may do it again."""
    stuck, failure = replayed.stuck or Sha(""), replayed.failure
    place = f"commit {commits.index(stuck) + 1} of {len(commits)}, {await _named(store, stuck)}"
    resolve = f"`fleet merge {run}` lets a worker resolve it" if why_not == "--no-resolve" else ""
    return NotTakenError(
        f"{branch} is as it was: {place}, {_on_branch(failure)}",
        hint=_joined(resolve or f"no worker resolves it: {why_not}", _by_hand(branch, run)),
    )


async def _named(store: Store, commit: Sha) -> str:
    message = (await store.repository.commit(commit)).message.decode("utf-8", "replace")
    member = member_of(commit, message, RunId(parse_trailers(message).get(RUN, "")))
    subject = printable(one_line(message.partition("\n")[0]))
    return f"{commit[:12]} {subject}" + (f" ({member.subtask})" if member is not None else "")


def relanding_error(state: RunState, folder: RunFolder, branch: str, run: RunId) -> FleetError:
    """A run that landed a result again has stopped before all of it had landed."""
    name = state.run
    if not state.ended:
        hint = f"the same command continues; `fleet status {name}` shows how far it is"
        return InterruptedTakingError(f"{branch} is as it was: interrupted", hint=hint)
    if state.base_failure is not None:
        return NotTakenError(f"nothing can be run on {branch} at {state.base[:12]}: {state.base_failure.summary}")
    if state.red_base and state.commits == 0 and not state.policy.allow_red_base:
        return NotTakenError(_with_check(f"{branch} itself is red at {state.base[:12]}", state.red_base[0], folder))
    stuck = [state.subtasks[id_] for id_ in state.plan.ids if _is_stuck(state.subtasks[id_])]
    if not stuck:
        hint = _joined(f"`fleet status {name}` has more", _by_hand(branch, run))
        return NotTakenError(f"{branch} is as it was: {state.ending_why}", hint=hint)
    return _stuck_error(state, stuck, folder, branch, run)


def _stuck_error(
    state: RunState, stuck: Sequence[SubtaskState], folder: RunFolder, branch: str, run: RunId
) -> NotTakenError:
    first, name = stuck[0], state.run
    ids = list(state.relanding.commits) if state.relanding is not None else []
    place = f"commit {ids.index(first.id) + 1} of {len(ids)}, " if first.id in ids else ""
    title = printable(state.spec(first.id).title)
    failures = [attempt for attempt in first.attempts if attempt.failure is not None]
    what = f"{branch} is as it was: {place}{title} ({first.id}), {_on_branch(failures[0].failure)}"
    if len(failures) > 1 and (last := failures[-1].failure) is not None:
        times = counted(len(failures) - 1, "time")
        what += f"; it was done again {times} and failed, last: {printable(last.summary.rstrip('.'))}"
    if len(stuck) > 1:
        more = ", ".join(each.id for each in stuck[1 : NAMED + 1])
        what += f"; neither did {more}{' and others' if len(stuck) > NAMED + 1 else ''} land"
    if state.ending == "budget":
        what += f"; {state.ending_why}"
    red = next((check for attempt in reversed(failures) for check in attempt.checks if not check.fine), None)
    again = f"`fleet retry {first.id} --run {name} -g GUIDANCE`, then the same command"
    if state.ending == "budget":
        again = "more with --budget USD"
    elif state.relanding is not None and not state.relanding.resolves:
        again = ""
    look = f"`fleet show {first.id} --run {name}` has every attempt"
    return NotTakenError(_with_check(what, red, folder), hint=_joined(look, again, _by_hand(branch, run)))


def _is_stuck(subtask: SubtaskState) -> bool:
    """Whether it was tried and did not land, rather than waiting for one before it."""
    return subtask.landed is None and not subtask.parts and any(each.failure is not None for each in subtask.attempts)


def words_about(failure: f.Failure, branch: str) -> str:
    """The failure of a first attempt, in the words of a person to whom nothing has landed before it."""
    return printable(failure.summary.replace("what landed meanwhile", branch).replace("what landed", branch))


def _on_branch(failure: f.Failure | None) -> str:
    """What is wrong with a commit on the branch, in the words of a person to whom nothing has landed yet."""
    if failure is None:
        return "does not merge"
    if failure.kind == "integration":
        return "is red on top of it"
    return printable(failure.summary.replace("what landed", "what it has"))


def _with_check(what: str, check: f.CheckRun | None, folder: RunFolder) -> str:
    if check is None:
        return what
    log = f"\nthe whole output: {folder.path / check.log}" if check.log else ""
    tail = "\n".join(map(printable, check.output.rstrip().splitlines()[-TAIL:]))
    return f"{what}\n{check.criterion}: {check.command}\n{tail}{log}"


def _by_hand(branch: str, run: RunId) -> str:
    return f"by hand: git checkout {branch} && git merge {result_branch(run)}"


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
