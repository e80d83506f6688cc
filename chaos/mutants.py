"""Puts mistakes into the product, one at a time, and checks that the kill suite detects each.

    python -m chaos.mutants                         every mistake
    python -m chaos.mutants no-pin landed-twice     these only

A mistake is detected if an invariant is violated in the run without a kill, or after a kill at one of the points.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.damage import DAMAGES, damage_at, moments
from chaos.forge import play, shares
from chaos.invariants import FOREIGN_TIP
from chaos.kill import Trial, open_trial
from chaos.repeatable_run import RUN
from chaos.scenarios import SCENARIOS
from fleet.app.fleet import Fleet
from fleet.core.base.ids import RunId, Sha, tip_ref
from fleet.core.facts import facts as f
from fleet.core.plans.plan import Criterion
from fleet.core.policy.effects import RunAttempt
from fleet.core.state.state import RunState
from fleet.engine import loop
from fleet.engine.attempts import Attempts
from fleet.engine.checks import Checks
from fleet.engine.landing import Lander
from fleet.engine.perform import Performer
from fleet.engine.reservations import RunBudget
from fleet.features.forge import tending
from fleet.runs.crash_points import reached
from fleet.runs.journal import Journal
from scripts.frame import Figure, Table, add_names, command_line, exit_with, temporary_folder
from worktrees.git.object_format import Person
from worktrees.git.program import Git
from worktrees.git.repository import Refs
from worktrees.leases import run_worktrees
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store import repair
from worktrees.store import store as stores
from worktrees.store.integrator import StoreIntegrator
from worktrees.store.store import Store
from worktrees.target.publish import Publisher
from worktrees.target.target import Target

SHARE = 12
"""Without named points, every 12th point is tried."""
MOMENTS = 4
"""Moments at which a run is damaged."""


def no_pin() -> None:
    """A finished attempt is not pinned."""

    async def pin(self: Refs, ref: str, commit: Sha) -> None:
        del self, ref, commit

    set_(Refs, "pin", pin)


def pin_ignored() -> None:
    """A resumed attempt starts over although its work is pinned."""

    async def pinned(self: RunWorktrees, run: RunId, subtask: str, attempt: int) -> None:
        del self, run, subtask, attempt

    set_(RunWorktrees, "pinned", pinned)


def published_first() -> None:
    """Record the outcome before its effect: the journal claims that the branch moved before it moves."""

    async def publish(self: Any, tip: Sha) -> None:
        async with self._publishing:
            await self._engine.record(f.Published(at=self._now(), tip=tip))
            await self._adapters.publish(self._engine.state.run, tip)

    set_(Performer, "_publish", publish)


def gate_skipped() -> None:
    """Merged work lands untested."""

    async def test(*_: Any, **__: Any) -> tuple[f.CheckRun, ...]:
        return ()

    set_(Lander, "_run_checks", test)


def another_tree_tested() -> None:
    """The checks run on the worker's tree, and the merged tree lands."""
    real = Checks.merged

    async def test(
        self: Any, number: int, state: RunState, members: Sequence[f.Member], *, sure: bool = False
    ) -> tuple[f.CheckRun, ...]:
        del number
        own: list[Criterion] = list(state.spec(members[-1].subtask).acceptance)
        commit = state.subtasks[members[-1].subtask].attempts[-1].commit or state.tip
        return await real(self.checks, commit, own, sure=sure)

    set_(Lander, "_run_checks", test)


def crash_counted() -> None:
    """A kill uses up the attempt it interrupts."""
    real = Attempts.run

    async def run(self: Any, command: RunAttempt) -> None:
        _, attempt = self.current(command.subtask)
        since = self.engine.state.engine_since or 0.0
        if attempt.started_at < since:
            await self.failed(command.subtask, command.number, f.Failure(kind="check", summary="interrupted"))
            return
        await real(self, command)

    set_(Attempts, "run", run)


def worktrees_left() -> None:
    """The worktrees of a run are never removed."""

    async def remove(store: Store, name: str) -> None:
        del store, name

    set_(run_worktrees, "remove_slots", remove)


def reported_before_written() -> None:
    """The engine continues before its facts are on disk."""
    real, held = Journal.append, list[Any]()

    def append(self: Journal, facts: Sequence[f.Fact], *, taken: Any = ()) -> None:
        if held:
            real(self, held)
        held[:] = facts
        if any(isinstance(fact, f.RunEnded) for fact in facts):
            real(self, held, taken=taken)
            held.clear()

    set_(Journal, "append", append)


def users_index() -> None:
    """Publishing goes through the user's index."""
    real = Publisher.publish

    async def publish(self: Publisher, run: RunId, tip: Sha) -> str | None:
        await Git(self.target.git_dir)("read-tree", "HEAD")
        return await real(self, run, tip)

    set_(Publisher, "publish", publish)


def silent_revert() -> None:
    """A candidate lands with its own tree, whatever landed since its base."""

    async def rebase(self: StoreIntegrator, tip: Sha, commit: Sha) -> Sha:
        tree = (await self.repository.commit(commit)).tree
        return await self.repository.copy_commit(commit, tree, tip, committer=self.committer)

    set_(StoreIntegrator, "rebase", rebase)


def doubt_forgotten() -> None:
    """The possible cost of a call is not recorded before the call."""

    async def record(self: RunBudget) -> None:
        del self

    set_(RunBudget, "record_reservations", record)


def store_in_place() -> None:
    """A store is created at its final place, so that half of one can be taken for a complete one."""

    async def create(store: Store, target: Target) -> None:
        await stores._fill(target, store.git_dir)
        reached("a store is made, and not in its place")
        await stores.make_ours(store.git)
        reached("a store is in its place")

    set_(stores, "_create", create)


def leftovers_kept() -> None:
    """The remains of an unfinished store are never removed."""

    def remove(home: object) -> None:
        del home

    set_(stores, "_remove_unfinished", remove)


def same_epoch() -> None:
    """A resumed engine starts with the epoch of the first."""
    real = Fleet._engine_started

    def started(self: Fleet, state: RunState) -> f.EngineStarted:
        return real(self, state).model_copy(update={"epoch": 1})

    set_(Fleet, "_engine_started", started)


def landed_twice() -> None:
    """After a crash, landed work is merged again on top of itself, and refs move without compare-and-swap."""
    real = Lander._merge

    async def nothing(self: StoreIntegrator, run: RunId, old: Sha) -> tuple[f.Member, ...]:
        del self, run, old
        return ()

    async def copied(self: Any, tip: Sha, members: Sequence[f.Member]) -> Any:
        del tip
        return await real(self, await self.integrator.tip(self.engine.state.run), members)

    async def rebase(self: StoreIntegrator, tip: Sha, commit: Sha) -> Sha:
        merged = await self.store.git("merge-tree", "--write-tree", tip, commit, also_ok=(1,))
        tree = Sha(merged.decode().split()[0])
        return await self.repository.copy_commit(commit, tree, tip, committer=self.committer)

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        del old
        await self._git("update-ref", ref, new)
        reached("a branch was moved")
        return True

    set_(StoreIntegrator, "landed_since", nothing)
    set_(Lander, "_merge", copied)
    set_(StoreIntegrator, "rebase", rebase)
    set_(Refs, "swap", swap)


def swap_without_compare() -> None:
    """A branch moves whatever its current commit."""
    real = Refs.swap

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        return await real(self, ref, new=new, old=await self._git.sha(ref) or old)

    set_(Refs, "swap", swap)


def objects_not_verified() -> None:
    """An object counts as intact if its file exists."""

    def drop(objects: object, since: float) -> int:
        del objects, since
        return 0

    set_(repair, "drop_damaged", drop)


def loss_not_recorded() -> None:
    """Search for lost work without recording the loss."""

    def loss(*_: object) -> None:
        return None

    set_(loop, "loss", loss)


def foreign_commit_on_the_tip() -> None:
    """Someone moves the integration branch just before the run does, once."""
    real, moved = Refs.swap, list[bool]()

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        if ref == tip_ref(RUN) and not moved:
            moved.append(True)
            tree = await self._git.line("rev-parse", f"{old}^{{tree}}")
            who = Person("a hand", "hand@example.org").environment()
            theirs = await self._git.line("commit-tree", tree, "-p", old, env=who, data=b"by hand\n")
            (self._git.git_dir.parent / FOREIGN_TIP).write_text(theirs)
            await self._git("update-ref", ref, theirs)
        return await real(self, ref, new=new, old=old)

    set_(Refs, "swap", swap)


def set_(owner: object, name: str, replacement: object) -> None:
    """Replace an attribute. The process ends with the engine, so the attribute is not restored."""
    if not hasattr(owner, name):
        raise AttributeError(f"{owner} has no {name} any more: update this mutant")
    setattr(owner, name, replacement)


def marker_ignored() -> None:
    """A review thread is answered without a look for the answer that it may have."""
    set_(tending, "has_marker", lambda *_: False)


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the scenario and crash points at which it shows."""

    apply: Callable[[], None]
    scenario: str = "plain"
    near: tuple[str, ...] = ()
    """Names of crash points to kill at. Empty: all."""
    meanwhile: Callable[[], None] | None = None
    """An outside event that the product without the mistake survives."""
    damage: str = ""
    """Damage after the kill, if a kill alone does not show the mistake."""

    def apply_all(self) -> None:
        self.apply()
        if self.meanwhile is not None:
            self.meanwhile()

    @property
    def description(self) -> str:
        return (self.apply.__doc__ or "").strip()


PULLS, SAMPLE = "pull requests", (4, 8)
"""The scenario that `chaos.forge` plays: pull requests and kills of its sample."""
PUBLISHING = ("facts are committed", "the result branch is about to move")
MUTANTS = {
    mutant.apply.__name__.strip("_").replace("_", "-"): mutant
    for mutant in (
        Mutant(no_pin),
        Mutant(pin_ignored, near=("a commit is pinned",)),
        Mutant(published_first, near=PUBLISHING),
        Mutant(gate_skipped, "clash"),
        Mutant(another_tree_tested, "clash"),
        Mutant(crash_counted, near=("a command runs",)),
        Mutant(worktrees_left),
        Mutant(reported_before_written, near=("a model has answered", "a model is about to be asked")),
        Mutant(users_index),
        Mutant(silent_revert),
        Mutant(doubt_forgotten, near=("a model has answered",)),
        Mutant(store_in_place, near=("a store is made, and not in its place",)),
        Mutant(leftovers_kept, near=("a store is made, and not in its place",)),
        Mutant(same_epoch, near=("a command runs",)),
        Mutant(landed_twice, near=("a branch was moved",)),
        Mutant(objects_not_verified, damage="objects-zeroed-all"),
        Mutant(loss_not_recorded, damage="objects-emptied-and-none-published"),
        Mutant(marker_ignored, PULLS),
        Mutant(swap_without_compare, near=("a branch was moved",), meanwhile=foreign_commit_on_the_tip),
    )
}


def detect(trial: Trial, mutant: Mutant) -> tuple[str, str]:
    """Return where the mistake was detected and by which violation, or two empty texts."""
    trial.patch = None
    trial.run_reference()
    if mutant.meanwhile is not None:
        trial.patch = mutant.meanwhile
        if found := trial.run_reference():
            raise RuntimeError(f"{mutant.description} The product does not survive the outside event: {found[0]}")
    trial.patch = mutant.apply_all
    points, found = list(trial.points), trial.run_reference()
    trial.points = points
    if found:
        return "without a kill", found[0]
    if mutant.damage:
        trial.damaged = True
        for point in moments(trial, MOMENTS):
            if found := damage_at(trial, DAMAGES[mutant.damage], point):
                return f"killed at point {point}, then {mutant.damage}", found[0]
        return "", ""
    for name, number in trial.choose_points(1 if mutant.near else SHARE, mutant.near):
        if found := trial.kill_at((name, number)):
            return f"killed at {name}, {number}", found[0]
    return "", ""


def detect_in_pulls(mutant: Mutant) -> tuple[str, str]:
    """Do the same for a mistake in tending pull requests."""
    with temporary_folder() as room:
        (share,) = shares(room, *SAMPLE, seed=1, jobs=1)
        played = play(replace(share, patch=mutant.apply))
    return (f"after {played.killed} kills", played.wrong[0]) if played.wrong else ("", "")


def main() -> int:
    parser = command_line("chaos.mutants", __doc__)
    add_names(parser, "MUTANT", MUTANTS)
    args = parser.parse_args()
    table = Table("mistakes in the product that the kill suite detects")
    for name in args.names or list(MUTANTS):
        mutant = MUTANTS[name]
        if mutant.scenario == PULLS:
            where, violation = detect_in_pulls(mutant)
        else:
            with open_trial(SCENARIOS[mutant.scenario]) as trial:
                where, violation = detect(trial, mutant)
        evidence = f"{' '.join(violation.split())[:110]} ({where})" if violation else "no violation"
        figure = Figure(name, mutant.scenario, int(bool(violation)), wanted=1, at_least=True)
        table.add(figure, details=(mutant.description, evidence))
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
