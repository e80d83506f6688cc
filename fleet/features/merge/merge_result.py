"""Merge a run's tested result into the user's branch.

If the branch has not moved since the run started, it is moved forward to the tested commits. If it has moved, a
relanding lands them again on top of it. The gate and the criteria run on each commit, and a resolver handles conflicts.
The branch moves last, by compare-and-swap, after all commits have passed.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

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
    RelandedPart,
    find_relanding,
    finished_work,
    has_landed_on,
    landed_line,
    pin_candidates,
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

ROUNDS = 3  # tries if the branch moves while a result is being landed again


@dataclass(frozen=True, slots=True)
class ConflictPolicy:
    """Whether and how to resolve conflicting commits."""

    wanted: bool = True
    dollars: float | None = None
    """The budget for resolvers, or None for the rest of the run's budget."""


class Unresolved(NamedTuple):
    """Why conflicts are not resolved, or empty for `--no-resolve`, and how to allow it."""

    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class BranchRoute:
    """The path from a branch to the result."""

    target: Target
    store: Store
    branch: str
    ours: Sha
    theirs: Sha
    """The result, pinned in the store or in the user's repository."""
    since: Sha
    """The parent of the first commit missing on the branch."""
    commits: tuple[Sha, ...]
    """The commits missing on the branch, the oldest first."""
    how: How

    @property
    def moved(self) -> bool:
        return self.since != self.ours


@dataclass(frozen=True, slots=True)
class ResultMerge:
    """The merge of one result into one branch."""

    fleet: Fleet
    folder: RunFolder
    work: Callable[[RunFolder], Awaitable[None]]
    """Runs the engine of a relanding and shows its progress."""
    resolving: ConflictPolicy = ConflictPolicy()
    say: Callable[[str], None] = field(default=lambda _: None)
    """Prints a progress line."""

    async def take(self, here: Path, into: str | None) -> MergeView:
        """Merge the result into `into`, or into the branch checked out at `here`."""
        state = self.folder.state()
        if state.relanding is not None:
            raise UsageError(
                f"{state.run} is a re-landing of another run",
                hint=f"merge that run with `fleet merge {state.relanding.run}`",
            )
        if state.published is None:
            raise UsageError(
                f"no subtask of {self.folder.run} has landed",
                hint=f"check its progress with `fleet status {self.folder.run}`",
            )
        target = await inspect(Path(state.repository))
        branch = into or await _current_branch(target, here)
        if branch == result_branch(state.run):
            raise UsageError(f"{branch} is the result branch itself", hint="choose another branch with --into BRANCH")
        for _ in range(ROUNDS - 1):
            try:
                return await self._take(state, target, branch)
            except BranchMovedError:
                self.say(f"{branch} moved during the merge, trying again")
        return await self._take(state, target, branch)

    async def _take(self, state: RunState, target: Target, branch: str) -> MergeView:
        result = result_branch(state.run)
        theirs, ours = await commit_of(target, result), await commit_of(target, branch)
        store = await open_store(self.fleet.state_dir, target, ours, theirs)
        try:
            way = await self._way(state, target, store, branch, ours=ours, theirs=theirs)
            pin = taken_ref(state.run, theirs, ours)
            taken = await self._prepare(state, way, pin)
            if taken.commit not in {ours, theirs}:
                await store.git("update-ref", pin, taken.commit)
                reached("a tested copy of a result is pinned")
            if taken.relanding is not None:
                await _mark_delivered(store, taken.relanding)
            await move_branch(store.git, target, state.run, branch, new=taken.commit, old=ours)
        finally:
            await store.close()
        return taken

    async def _prepare(self, state: RunState, way: BranchRoute, pin: str) -> MergeView:
        """Prepare the new commit of the branch. Raises `NotTakenError` before anything has changed."""
        signing = self.fleet.config.git
        if not way.commits:
            return MergeView(state.run, way.branch, way.ours, 0, "up to date")
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

    async def _way(
        self, state: RunState, target: Target, store: Store, branch: str, *, ours: Sha, theirs: Sha
    ) -> BranchRoute:
        """Find the shortest path from the branch to the result, counting commits that earlier merges took."""
        base, result = await _merge_base(store, ours, theirs), result_branch(state.run)
        if base is None:
            raise UsageError(
                f"{result} and {branch} do not share any history",
                hint=f"merge it with `git merge --allow-unrelated-histories {result}`",
            )
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
            raise UsageError(
                f"{result} contains a merge commit, which fleet can't land again",
                hint=f"merge it with `git merge {result}`",
            )
        how: How = "fast-forwarded" if tip == theirs else "relanded"
        return BranchRoute(target, store, branch, ours, tip, since, tuple(commits), how)

    # ---- landing again

    async def _landed_again(self, state: RunState, way: BranchRoute, taker: Person | None) -> MergeView:
        integrator = self._integrator(way.store)
        replayed = await Replay(integrator).onto(way.ours, way.commits)
        if replayed.failure is None and not replayed.pairs:
            return MergeView(state.run, way.branch, way.ours, 0, "up to date")
        folder = await self._relanding(state, way, replayed)
        landed = folder.state()
        if landed.ending != "landed":
            raise relanding_error(landed, folder, way.branch, state.run)
        commits = await commits_above(integrator, way.ours, landed.tip) or []
        members = await landed_since(way.store.git, landed.run, old=way.ours, tip=landed.tip)
        line = landed_line(landed, commits, members)
        copied = await Replay(integrator, self.fleet.config.git, taker).line(way.ours, line)
        redone = _redone(landed, way.branch, dict(copied.pairs))
        how: How = "relanded" if copied.pairs else "up to date"
        dollars = landed.spent.priced_dollars
        return MergeView(state.run, way.branch, copied.tip, len(copied.pairs), how, 0, landed.run, redone, dollars)

    async def _relanding(self, state: RunState, way: BranchRoute, replayed: Replayed) -> RunFolder:
        """Create or find the relanding, and run it until it ends."""
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
            message, hint = locked_message(folder.run, holder)
            raise FleetError(message, hint=hint)
        self._raise_budget(folder)
        number, how = counted(len(pieces), "commit"), "continuing" if goes_on else "in"
        self.say(f"{way.branch} has moved: landing {number} again on top of it, {how} {folder.run}")
        withdraw_cancel(folder)
        await self.work(folder)
        return folder

    def _raise_budget(self, folder: RunFolder) -> None:
        """Apply the budget of this call to a relanding that has already started."""
        dollars = self.resolving.dollars
        if dollars is not None and folder.state().policy.budget_dollars != dollars:
            with Journal(folder.journal) as journal:
                journal.ask(f.LimitsChanged(at=time.time(), by=user(), budget_dollars=dollars))

    def _why_unresolved(self, state: RunState, pieces: Sequence[RelandedPart]) -> Unresolved | None:
        """Return why conflicts can't be resolved, or None if they can."""
        wiring = self.fleet.wiring
        if not self.resolving.wanted:
            return Unresolved("", f"let a worker resolve it with `fleet merge {state.run}`")
        if not wiring.has_models and not wiring.modelless_workers.issuperset(piece.subtask.worker for piece in pieces):
            return Unresolved("resolvers need an API key", f"set {self.fleet.config.models.api_key_env}")
        if self.resolving.dollars is None and (spent := spent_budget(state)) is not None:
            why = f"the budget of {state.run} ({spent}) is used up"
            return Unresolved(why, "set a budget for resolvers with --budget USD")
        return None

    async def _begin(
        self, state: RunState, way: BranchRoute, wanted: f.Relanding, pieces: Sequence[RelandedPart]
    ) -> RunFolder:
        name = relanding_name(self.fleet.state_dir, state.run, way.branch)
        made = await pin_candidates(self._integrator(way.store), name, pieces)
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
    """Merge the result of a run into a branch, with a budget in dollars. Returns the reason as text if it fails."""
    resolving = ConflictPolicy(wanted=dollars > 0, dollars=dollars if dollars > 0 else None)
    try:
        return await ResultMerge(fleet, folder, work, resolving).take(Path(), branch)
    except NotTakenError as why:
        return str(why)


def _untested(state: RunState, way: BranchRoute) -> int:
    """Count the commits that were only tested together with later ones. A relanding tests each commit."""
    tested = {each.landed for subtask in state.subtasks.values() for each in subtask.attempts if each.tested}
    return sum(commit not in tested for commit in way.commits) if way.how == "fast-forwarded" else 0


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
    """Return the tested copies of the run's results on the user's branches: the result, the base, and the copy."""
    prefix = taken_refs(run)
    found = (await store.git.refs(prefix)).items()
    return [(*_two(ref.removeprefix(prefix)), copy) for ref, copy in found]


def _two(name: str) -> tuple[Sha, Sha]:
    result, _, onto = name.partition("/")
    return Sha(result), Sha(onto)


async def _mark_delivered(store: Store, run: RunId) -> None:
    """Record in the store that the user's repository has the landed commits, so that `fleet clean` can remove them."""
    if (tip := await store.git.sha(f"refs/fleet/{run}/tip")) is not None:
        await store.git("update-ref", published_ref(run), tip)


async def _current_branch(target: Target, here: Path) -> str:
    """Return the branch checked out in the current directory, or else in the repository of the run."""
    try:
        place = await inspect(here)
    except UsageError:
        place = target
    checkout = place.checkout if place.git_dir == target.git_dir else target.checkout
    answer = await checkout.ask("symbolic-ref", "--quiet", "HEAD")
    branch = answer.stdout.decode("utf-8", "replace").strip().removeprefix("refs/heads/")
    if answer.exit_code != 0 or not branch:
        raise UsageError("no branch is checked out (HEAD is detached)", hint="choose a branch with --into BRANCH")
    return branch


async def _refuse_early(way: BranchRoute, pin: str) -> None:
    """Refuse a checkout with uncommitted changes before anything is tested.

    Files that an interrupted merge left behind do not count as changes.
    """
    checkout, copy = await find_checkout(way.target, way.branch), await way.store.git.sha(pin)
    if checkout is not None and copy is not None and await way.target.git.sha(copy) is not None:
        await refuse_unfit(checkout, old=way.ours, new=copy, branch=way.branch)
    elif checkout is not None:
        await refuse_early(checkout, way.store.git, at=way.ours, since=way.since, until=way.theirs, branch=way.branch)


# ---- not taken -------------------------------------------------------------------------------------------------------
# Errors that explain why a branch did not get a result: the conflict or failed check, its commit, and the next step.
#
# Subjects, names and output come from workers and repositories, so they are escaped.


TAIL = 20  # lines of output shown for a failed check
NAMED = 5  # subtasks listed after the first


class NotTakenError(FleetError):
    """The branch is unchanged, because a commit of the run conflicts with it or fails its checks there."""

    exit_code = 1
    code = "not_merged"


class InterruptedTakingError(FleetError):
    """The branch is unchanged, because the merge was interrupted."""

    exit_code = 130
    code = "interrupted"


async def conflict_error(
    store: Store, replayed: Replayed, *, run: RunId, branch: str, commits: Sequence[Sha], why_not: Unresolved
) -> NotTakenError:
    """Return the error for a conflicting commit that can't be resolved."""
    stuck, failure = replayed.stuck or Sha(""), replayed.failure
    place = f"commit {commits.index(stuck) + 1} of {len(commits)}, {await _name(store, stuck)}"
    why = f". No worker resolved the conflict, because {why_not.why}" if why_not.why else ""
    return NotTakenError(
        f"{branch} is unchanged: {place}, {_on_branch(failure)}{why}", hint=_join(why_not.fix, _by_hand(branch, run))
    )


async def _name(store: Store, commit: Sha) -> str:
    message = (await store.repository.commit(commit)).message.decode("utf-8", "replace")
    member = member_of(commit, message, RunId(parse_trailers(message).get(RUN, "")))
    subject = printable(one_line(message.partition("\n")[0]))
    return f"{commit[:12]} {subject}" + (f" ({member.subtask})" if member is not None else "")


def relanding_error(state: RunState, folder: RunFolder, branch: str, run: RunId) -> FleetError:
    """Return the error for a relanding that ended before all commits had landed."""
    name = state.run
    if not state.ended:
        hint = f"run the same command again to continue, or check its progress with `fleet status {name}`"
        return InterruptedTakingError(f"{branch} is unchanged: the merge was interrupted", hint=hint)
    if state.base_failure is not None:
        return NotTakenError(f"can't run checks on {branch} at {state.base[:12]}: {state.base_failure.summary}")
    if state.red_base and state.commits == 0 and not state.policy.allow_red_base:
        return NotTakenError(
            _with_check(f"the gate fails on {branch} itself, at {state.base[:12]}", state.red_base[0], folder)
        )
    stuck = [state.subtasks[id_] for id_ in state.plan.ids if _is_stuck(state.subtasks[id_])]
    if not stuck:
        hint = _join(f"see `fleet status {name}`", _by_hand(branch, run))
        return NotTakenError(f"{branch} is unchanged: {state.ending_why}", hint=hint)
    return _stuck_error(state, stuck, folder, branch, run)


def _stuck_error(
    state: RunState, stuck: Sequence[SubtaskState], folder: RunFolder, branch: str, run: RunId
) -> NotTakenError:
    first, name = stuck[0], state.run
    ids = list(state.relanding.commits) if state.relanding is not None else []
    place = f"commit {ids.index(first.id) + 1} of {len(ids)}, " if first.id in ids else ""
    title = printable(state.spec(first.id).title)
    failures = [attempt for attempt in first.attempts if attempt.failure is not None]
    what = f"{branch} is unchanged: {place}{title} ({first.id}), {_on_branch(failures[0].failure)}"
    if len(failures) > 1 and (last := failures[-1].failure) is not None:
        tries = counted(len(failures) - 1, "more attempt")
        what += f". {tries} failed, the last with: {printable(last.summary.rstrip('.'))}"
    if len(stuck) > 1:
        more = ", ".join(each.id for each in stuck[1 : NAMED + 1])
        what += f". Also not landed: {more}{' and others' if len(stuck) > NAMED + 1 else ''}"
    if state.ending == "budget":
        what += f". {state.ending_why}"
    red = next((check for attempt in reversed(failures) for check in attempt.checks if not check.fine), None)
    again = f"run `fleet retry {first.id} --run {name} -g GUIDANCE`, then the same command again"
    if state.ending == "budget":
        again = "raise the budget with --budget USD"
    elif state.relanding is not None and not state.relanding.resolves:
        again = ""
    look = f"see all attempts with `fleet show {first.id} --run {name}`"
    return NotTakenError(_with_check(what, red, folder), hint=_join(look, again, _by_hand(branch, run)))


def _is_stuck(subtask: SubtaskState) -> bool:
    """Return whether the subtask failed, rather than waits for an earlier one."""
    return subtask.landed is None and not subtask.parts and any(each.failure is not None for each in subtask.attempts)


def words_about(failure: f.Failure, branch: str) -> str:
    """Return the summary of a first attempt's failure, with the branch's name in place of "landed work"."""
    return printable(failure.summary.replace("landed work", branch))


def _on_branch(failure: f.Failure | None) -> str:
    """Describe the problem of a commit on the branch."""
    if failure is None:
        return "does not merge"
    if failure.kind == "integration":
        return "fails its checks on top of it"
    return printable(failure.summary.replace("landed work", "it"))


def _with_check(what: str, check: f.CheckRun | None, folder: RunFolder) -> str:
    if check is None:
        return what
    log = f"\nfull output: {folder.path / check.log}" if check.log else ""
    tail = "\n".join(map(printable, check.output.rstrip().splitlines()[-TAIL:]))
    return f"{what}\n{check.criterion}: {check.command}\n{tail}{log}"


def _by_hand(branch: str, run: RunId) -> str:
    return f"merge manually with `git checkout {branch} && git merge {result_branch(run)}`"


def _join(*parts: str) -> str:
    return ", or ".join(part for part in parts if part)
