"""Mistakes that somebody could make in the product, each put in by name, and what of the kill suite tells of it.

    python -m tests.chaos.mutants [NAME ...]

A mutant is caught when an invariant does not hold in the run without a kill, or after a kill at one of the points.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleet import mending as recovery
from fleet.app import Fleet
from fleet.checking import Checks
from fleet.core import facts as f
from fleet.core.commands import Publish, RunAttempt
from fleet.core.ids import Sha, tip_ref
from fleet.core.plan import Criterion
from fleet.core.state import RunState
from fleet.journal import Journal
from fleet.landing import Lander
from fleet.meter import Purse
from fleet.perform import Performer
from fleet.points import reached
from tests.chaos.damage import DAMAGES, damaged, moments
from tests.chaos.invariants import BY_HAND
from tests.chaos.kill import Stage, staged
from tests.chaos.room import RUN
from tests.chaos.scenarios import SCENARIOS
from worktrees import mend as mending
from worktrees import store as stores
from worktrees import workshop as workshops
from worktrees.git import Git
from worktrees.integrator import StoreIntegrator
from worktrees.message import Person
from worktrees.publish import Publisher
from worktrees.refs import Refs
from worktrees.store import Store
from worktrees.target import Target
from worktrees.workshop import Workshop

SHARE = 12
MOMENTS = 4  # of a run that is damaged


def no_pin() -> None:
    """A finished attempt is not pinned."""

    async def pin(self: Refs, ref: str, commit: Sha) -> None:
        del self, ref, commit

    set_(Refs, "pin", pin)


def pin_ignored() -> None:
    """A resumed attempt begins again although its work is pinned."""

    async def pinned(self: Workshop, run: str, subtask: str, attempt: int) -> None:
        del self, run, subtask, attempt

    set_(Workshop, "pinned", pinned)


def published_first() -> None:
    """The outcome is recorded before its effect: the branch is said to be moved, and then moves."""

    async def publish(self: Any, command: Publish) -> None:
        async with self._publishing:
            await self._engine.record(f.Published(at=self._now(), tip=command.tip))
            await self._world.integrator.publish(self._engine.state.run, tip=command.tip)

    set_(Performer, "_publish", publish)


def gate_skipped() -> None:
    """What is merged lands without a test."""

    async def test(*_: Any, **__: Any) -> tuple[f.CheckRun, ...]:
        return ()

    set_(Lander, "_test", test)


def another_tree_tested() -> None:
    """The checks run on what the worker left, and the merged tree lands."""
    real = Checks.merged

    async def test(
        self: Any, number: int, state: RunState, members: Sequence[f.Member], *, sure: bool = False
    ) -> tuple[f.CheckRun, ...]:
        del number
        own: list[Criterion] = list(state.spec(members[-1].subtask).acceptance)
        commit = state.subtasks[members[-1].subtask].attempts[-1].commit or state.tip
        return await real(self.checks, commit, own, sure=sure)

    set_(Lander, "_test", test)


def crash_counted() -> None:
    """A kill uses up the attempt it interrupts."""
    real = Performer._run_attempt

    async def run(self: Any, command: RunAttempt) -> None:
        _, attempt = self._attempt(command.subtask)
        since = self._engine.state.engine_since or 0.0
        if attempt.started_at < since:
            await self._failed(command.subtask, command.number, f.Failure(kind="check", summary="interrupted"))
            return
        await real(self, command)

    set_(Performer, "_run_attempt", run)


def worktrees_left() -> None:
    """Nobody removes the worktrees of a run."""

    async def remove(store: Store, run: str) -> None:
        del store, run

    set_(workshops, "remove_slots", remove)


def told_before_written() -> None:
    """The engine goes on before its facts are on the disk."""
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

    async def publish(self: Publisher, run: str, *, tip: Sha) -> str | None:
        await Git(self.target.git_dir)("read-tree", "HEAD")
        return await real(self, run, tip=tip)

    set_(Publisher, "publish", publish)


def silent_revert() -> None:
    """A candidate lands with its own tree, whatever landed since its base."""

    async def put(self: Any, tip: Sha, commit: Sha) -> Sha:
        made: Sha = await self._copy(commit, await self.git.line("rev-parse", f"{commit}^{{tree}}"), tip)
        return made

    set_(StoreIntegrator, "_put", put)


def doubt_forgotten() -> None:
    """What calls under way may cost is not written down before they are made."""

    async def cover(self: Purse) -> None:
        del self

    set_(Purse, "_cover", cover)


def store_in_place() -> None:
    """A store is made where it will be used, so that half of one can be taken for a whole."""

    async def create(store: Store, target: Target) -> None:
        await stores._clone(target, store.git_dir)
        reached("a store is made, and not in its place")
        await stores._make_ours(store.git)
        reached("a store is in its place")

    set_(stores, "_create", create)


def leftovers_kept() -> None:
    """What was left of a store that was never finished stays for ever."""

    def remove(home: object) -> None:
        del home

    set_(stores, "_remove_unfinished", remove)


def same_epoch() -> None:
    """A second life of the engine takes itself for the first."""
    real = Fleet._engine_started

    def started(self: Fleet, state: RunState) -> f.EngineStarted:
        return real(self, state).model_copy(update={"epoch": 1})

    set_(Fleet, "_engine_started", started)


def landed_twice() -> None:
    """After a crash what stands on the branch already is merged again, above itself, and the swap asks nothing."""
    real = Lander._merge

    async def nothing(self: StoreIntegrator, run: str, old: Sha) -> tuple[f.Member, ...]:
        del self, run, old
        return ()

    async def copied(self: Any, tip: str, members: Sequence[f.Member]) -> Any:
        del tip
        return await real(self, await self.integrator.tip(self.engine.state.run), members)

    async def put(self: Any, tip: Sha, commit: Sha) -> Sha:
        merged: Sha = (await self.git("merge-tree", "--write-tree", tip, commit, also_ok=(1,))).decode().split()[0]
        made: Sha = await self._copy(commit, merged, tip)
        return made

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        del old
        await self._git("update-ref", ref, new)
        reached("a branch was moved")
        return True

    set_(StoreIntegrator, "landed_since", nothing)
    set_(Lander, "_merge", copied)
    set_(StoreIntegrator, "_put", put)
    set_(Refs, "swap", swap)


def swap_asks_nothing() -> None:
    """A branch is moved without a look at where it stands."""
    real = Refs.swap

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        return await real(self, ref, new=new, old=await self._git.sha(ref) or old)

    set_(Refs, "swap", swap)


def objects_believed() -> None:
    """An object is taken for whole because there is a file of its name."""

    def drop(objects: object, since: float) -> int:
        del objects, since
        return 0

    set_(mending, "drop_damaged", drop)


def loss_unsaid() -> None:
    """What can't be had any more is looked for, and nobody tells the journal."""

    def loss(*_: object) -> None:
        return None

    set_(recovery, "loss", loss)


def hand_on_the_tip() -> None:
    """Somebody moves the integration branch just before the run does, once."""
    real, moved = Refs.swap, list[bool]()

    async def swap(self: Refs, ref: str, *, new: Sha, old: Sha) -> bool:
        if ref == tip_ref(RUN) and not moved:
            moved.append(True)
            tree = await self._git.line("rev-parse", f"{old}^{{tree}}")
            who = {**Person("a hand", "hand@example.org").author(), **Person("a hand", "hand@example.org").committer()}
            theirs = await self._git.line("commit-tree", tree, "-p", old, env=who, data=b"by hand\n")
            (self._git.git_dir.parent / BY_HAND).write_text(theirs)
            await self._git("update-ref", ref, theirs)
        return await real(self, ref, new=new, old=old)

    set_(Refs, "swap", swap)


def set_(where: object, name: str, what: object) -> None:
    """Put it in, in a process that ends soon."""
    if not hasattr(where, name):
        raise AttributeError(f"{where} has no {name} any more: mend this mutant")
    setattr(where, name, what)


@dataclass(frozen=True)
class Mutant:
    """A mistake, and the scenario and points at which it shows."""

    put_in: Callable[[], None]
    scenario: str = "plain"
    near: tuple[str, ...] = ()
    """Names of points to kill at; all, where none is named."""
    beside: Callable[[], None] | None = None
    """What goes on meanwhile, that a product without the mistake bears."""

    damage: str = ""
    """What is done to it after a kill, where a kill alone does not show the mistake."""

    def all_in(self) -> None:
        self.put_in()
        if self.beside is not None:
            self.beside()

    @property
    def says(self) -> str:
        return (self.put_in.__doc__ or "").strip()


PUBLISHING = ("facts are committed", "the result branch is about to move")
MUTANTS = {
    mutant.put_in.__name__.strip("_").replace("_", "-"): mutant
    for mutant in (
        Mutant(no_pin),
        Mutant(pin_ignored, near=("a commit is pinned",)),
        Mutant(published_first, near=PUBLISHING),
        Mutant(gate_skipped, "clash"),
        Mutant(another_tree_tested, "clash"),
        Mutant(crash_counted, near=("a command runs",)),
        Mutant(worktrees_left),
        Mutant(told_before_written, near=("a model has answered", "a model is about to be asked")),
        Mutant(users_index),
        Mutant(silent_revert),
        Mutant(doubt_forgotten, near=("a model has answered",)),
        Mutant(store_in_place, near=("a store is made, and not in its place",)),
        Mutant(leftovers_kept, near=("a store is made, and not in its place",)),
        Mutant(same_epoch, near=("a command runs",)),
        Mutant(landed_twice, near=("a branch was moved",)),
        Mutant(objects_believed, damage="objects-zeroed-all"),
        Mutant(loss_unsaid, damage="objects-emptied-and-none-published"),
        Mutant(swap_asks_nothing, near=("a branch was moved",), beside=hand_on_the_tip),
    )
}


def caught_by(stage: Stage, mutant: Mutant) -> tuple[str, str]:
    """Where it showed, and by what; twice nothing, where it did not."""
    stage.patch = None
    stage.refer()
    if mutant.beside is not None:
        stage.patch = mutant.beside
        if found := stage.refer():
            raise RuntimeError(f"{mutant.says} What goes on meanwhile is not borne without it: {found[0]}")
    stage.patch = mutant.all_in
    points, found = list(stage.points), stage.refer()
    stage.points = points
    if found:
        return "without a kill", found[0]
    if mutant.damage:
        stage.damaged = True
        for at in moments(stage, MOMENTS):
            if found := damaged(stage, DAMAGES[mutant.damage], at):
                return f"killed at point {at}, then {mutant.damage}", found[0]
        return "", ""
    for name, number in stage.chosen(1 if mutant.near else SHARE, mutant.near):
        if found := stage.killed_at((name, number)):
            return f"killed at {name}, {number}", found[0]
    return "", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MUTANTS))
    names = parser.parse_args().names or list(MUTANTS)
    escaped = 0
    for name in names:
        with staged(SCENARIOS[MUTANTS[name].scenario]) as stage:
            where, what = caught_by(stage, MUTANTS[name])
        escaped += not what
        verdict = f"caught by {' '.join(what.split())[:110]} ({where})" if what else "NOT CAUGHT"
        sys.stdout.write(f"{name:22} {MUTANTS[name].says}\n{'':22} {verdict}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(names) - escaped} of {len(names)} mistakes caught\n")
    sys.exit(1 if escaped else 0)


if __name__ == "__main__":
    main()
