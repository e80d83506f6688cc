"""`fleet merge`: brings the result of a run into a branch of the user's, and never a commit that was not tested.

Where the branch points to the run's base, or to a commit of its result, it gets the tested commits themselves. Where it
has moved, they are put on top of it in the store, and the gate and the criteria of each are run there, in the box, on
each commit. The user's branch moves last, by compare-and-swap, to a commit whose whole line below is green.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path

from anyio import CapacityLimiter

from dashboards.text.formats import counted
from fleet.app.fleet import Fleet
from fleet.core.base.ids import Sha, result_branch, taken_ref
from fleet.core.plans.plan import Criterion
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.engine.clock import SystemClock
from fleet.engine.verdicts.checks import Checks, run_side_by_side
from fleet.errors import FleetError, UsageError
from fleet.runs.run_folder import RunFolder
from worktrees.base.fs import printable
from worktrees.git.commit_message import committer_of, member_of
from worktrees.git.program import text
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.store.checkout import find_checkout, refuse_dirty
from worktrees.store.integrator import StoreIntegrator
from worktrees.store.publish import commit_of, move_branch
from worktrees.store.replay import Replay, Replayed, commits_above
from worktrees.store.store import Store, open_store
from worktrees.store.target import Target, inspect

TAIL = 20  # lines of a red check that a person is shown


@dataclass(frozen=True, slots=True)
class Taken:
    """The result for a branch of the user's."""

    branch: str
    commit: Sha
    commits: int
    """How many commits of the run it got."""
    how: str
    """`nothing`: it had them all; `forwarded`: to the run's own commits; `landed again`: to copies on what it had."""


@dataclass(frozen=True, slots=True)
class _Way:
    """From where a branch is to where the result is."""

    target: Target
    store: Store
    branch: str
    ours: Sha
    theirs: Sha


class NotTakenError(FleetError):
    """The branch is as it was: a commit of the run does not fit on it, or is red there."""

    exit_code = 1
    code = "not_taken"


@dataclass(frozen=True, slots=True)
class Taking:
    """One result, on its way into one branch."""

    fleet: Fleet
    folder: RunFolder
    say: Callable[[str], None] = field(default=lambda _: None)
    """Takes a line about what is under way."""

    async def take(self, here: Path, into: str | None) -> Taken:
        """Bring the result into a branch: the one that is checked out at `here`, unless one is named."""
        state = self.folder.state()
        if state.published is None:
            raise UsageError(f"nothing of {self.folder.run} has landed", hint="there is nothing to merge")
        target = await inspect(Path(state.repository))
        branch = into or await _current_branch(target, here)
        result = result_branch(state.run)
        if branch == result:
            raise UsageError(f"{branch} is the result itself", hint="name another branch with --into")
        theirs, ours = await commit_of(target, result), await commit_of(target, branch)
        if await target.git.is_ancestor(theirs, ours):
            return Taken(branch, ours, 0, "nothing")
        store = await open_store(self.fleet.state_dir, target, ours, theirs)
        try:
            way = _Way(target, store, branch, ours, theirs)
            taken = await self._prepared(state, way)
            if taken.commit not in {ours, theirs}:
                await store.git("update-ref", taken_ref(state.run, theirs, ours), taken.commit)
            if taken.commit != ours:
                await move_branch(store.git, target, state.run, branch, new=taken.commit, old=ours)
        finally:
            await store.close()
        return taken

    async def _prepared(self, state: RunState, way: _Way) -> Taken:
        """What the branch will get. Raises `NotTakenError`, before anything has changed."""
        settings, signing = self.fleet.wiring.worktrees, self.fleet.wiring.signing
        integrator = StoreIntegrator(way.store, committer_of(settings.author, settings.email))
        answer = await way.store.git.ask("merge-base", way.ours, way.theirs)
        base = text(answer.stdout).strip()
        commits = await commits_above(integrator, base, way.theirs) if base else None
        if commits is None:
            what = "has a merge commit" if base else f"and {way.branch} have no common history"
            raise UsageError(f"{result_branch(state.run)} {what}", hint="take it with git merge")
        if base == way.ours and not signing.wanted:
            return Taken(way.branch, way.theirs, len(commits), "forwarded")
        if (ready := await way.store.git.sha(taken_ref(state.run, way.theirs, way.ours))) is not None:
            return Taken(way.branch, ready, len(commits), "landed again")  # it was tested, then something stopped it
        await _refuse_early(way)
        taker = await signing.taker() if signing.wanted else None
        replayed = await Replay(integrator, signing, taker).onto(way.ours, commits)
        if replayed.failure is not None:
            raise await self._conflict(way, replayed, commits)
        if base != way.ours and replayed.pairs:
            await self._test(state, way, [copy for _, copy in replayed.pairs])
        how = "nothing" if not replayed.pairs else "forwarded" if base == way.ours else "landed again"
        return Taken(way.branch, replayed.tip, len(replayed.pairs), how)

    async def _conflict(self, way: _Way, replayed: Replayed, commits: Sequence[Sha]) -> NotTakenError:
        stuck, failure = replayed.stuck or "", replayed.failure
        name, result = await _named(way.store, self.folder.run, stuck), result_branch(self.folder.run)
        number = commits.index(stuck) + 1
        return NotTakenError(
            f"{way.branch} is as it was: commit {number} of {len(commits)}, {name}, "
            f"{failure.summary.replace('what landed', 'what it has') if failure is not None else 'does not merge'}",
            hint=f"merge it by hand: git checkout {way.branch} && git merge {result}",
        )

    async def _test(self, state: RunState, way: _Way, commits: Sequence[Sha]) -> None:
        """Run the gate and the criteria on each commit. Raises `NotTakenError` for the first that is red."""
        self.say(f"{way.branch} has moved on; testing {counted(len(commits), 'commit')} on top of it")
        settings = replace(self.fleet.wiring.worktrees, check_logs=self.folder.checks)
        async with open_worktrees(way.target, settings, state.run, state.base) as worktrees:
            checks = Checks(_Recorder(state, self.say), worktrees, worktrees, SystemClock(), self.fleet.wiring.gate)
            if red := _red(state, await checks.merged(way.ours, (), sure=True)):
                raise self._red_error(f"{way.branch} itself is red at {way.ours[:12]}", red)
            criteria = [await self._criteria(state, worktrees, commit) for commit in commits]
            criteria[-1] = tuple(chain.from_iterable(criteria))  # the last commit must pass those of all
            slots, tested = CapacityLimiter(max(1, state.policy.slots)), list[Sha]()

            async def test(commit: Sha, asked: Sequence[Criterion]) -> tuple[f.CheckRun, ...]:
                async with slots:
                    runs = await checks.merged(commit, asked, sure=True)
                tested.append(commit)
                self.say(f"  {len(tested)} of {len(commits)} tested")
                return runs

            tests = [partial(test, *pair) for pair in zip(commits, criteria, strict=True)]
            for number, runs in enumerate(await run_side_by_side(tests)):
                if red := _red(state, runs):
                    name = await _named(worktrees.store, state.run, commits[number])
                    where = f"commit {number + 1} of {len(commits)}, {name}, is red on top of it"
                    raise self._red_error(f"{way.branch} is as it was: {where}", red)

    async def _criteria(self, state: RunState, worktrees: RunWorktrees, commit: Sha) -> tuple[Criterion, ...]:
        """The criteria of the subtask that a commit belongs to; none for a commit that a person made."""
        stored = await worktrees.store.repository.commit(commit)
        member = member_of(commit, stored.message.decode("utf-8", "replace"), state.run)
        spec = state.plan.subtask(member.subtask) if member is not None else None
        return tuple(spec.acceptance) if spec is not None else ()

    def _red_error(self, what: str, red: Sequence[f.CheckRun]) -> NotTakenError:
        check = red[0]
        log = f"\nthe whole output: {self.folder.path / check.log}" if check.log else ""
        tail = "\n".join(map(printable, check.output.rstrip().splitlines()[-TAIL:]))
        return NotTakenError(f"{what}\n{check.criterion}: {check.command}\n{tail}{log}")


@dataclass(slots=True)
class _Recorder:
    """Takes what checks record outside of a run: flaky ones are reported to the user, nothing is journalled."""

    state: RunState
    say: Callable[[str], None]

    async def record(self, *facts: f.Fact) -> None:
        self.note(*facts)

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None:
        self.note(*facts(self.state))

    def note(self, *facts: f.Fact) -> None:
        for fact in facts:
            if isinstance(fact, f.WarningNoted):
                self.say(fact.text)


def _red(state: RunState, runs: Sequence[f.CheckRun]) -> list[f.CheckRun]:
    """The checks that count against a commit; those that were red before the run began count against none."""
    before = {check.command for check in state.red_base}
    return [run for run in runs if not run.fine and run.command not in before]


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


async def _named(store: Store, run: str, commit: Sha) -> str:
    message = (await store.repository.commit(commit)).message.decode("utf-8", "replace")
    member = member_of(commit, message, run)
    subject = printable(message.partition("\n")[0])
    return f"{commit[:12]} {subject}" + (f" ({member.subtask})" if member is not None else "")


async def _refuse_early(way: _Way) -> None:
    """Refuse a checkout with changes before anything is tested: nothing else may be in the way later."""
    checkout = await find_checkout(way.target, way.branch)
    if checkout is not None:
        await refuse_dirty(checkout, way.branch)
