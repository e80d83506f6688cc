"""A hundred independent subtasks whose worker takes a second: the whole engine against a shell script with plain git.

Ours: a plan that is given, the engine with its journal, real hands and boxes, checks before and after the work, landing
and the user's branch; only the worker is a stand-in, that runs one command at its desk. The script: `git worktree add`
one after the other, the work and the commits side by side, then one `git merge` after the other, with `test -f` behind
each commit and each merge. Run it alone: python -m tests.benchmarks.hundred [FILES ...]
"""

import argparse
import os
import subprocess
import time
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from fleet.checking import Gate
from fleet.core import facts as f
from fleet.core.ids import result_branch
from fleet.core.plan import Criterion, Plan, Subtask
from fleet.core.policy import Policy
from fleet.core.state import RunState
from fleet.core.views import commits_tested
from fleet.engine import Engine
from fleet.journal import Journal, replay
from fleet.perform import Performer
from fleet.ports import Desk, Meter, PlannerBrief, Repository, WorkerBrief
from fleet.world import World
from tests.benchmarks.side_by_side import (
    HEAD,
    KINDS,
    Cost,
    Costs,
    Figure,
    Ground,
    Limits,
    Stopwatch,
    Variant,
    git,
    ground,
    interleave,
    plain,
    ratios,
    say,
    sized,
)
from worktrees.settings import HandSettings, LeaseKind
from worktrees.target import inspect
from worktrees.workshop import Workshop, open_workshop

SUBTASKS = 100
TINY = 20  # files
WANTED: Limits = {"overlay": {TINY: 1.0, 10_000: 0.25}}
SCRIPT = """\
set -eu
project=$1 work=$2 round=$3 base=$(git -C "$1" rev-parse HEAD)
git -C "$project" worktree add --quiet -b "into-$round" "$work/into" "$base"
names=$(seq 0 99)
for name in $names; do
    git -C "$project" worktree add --quiet -b "s$round-$name" "$work/s$name" "$base"
done
for name in $names; do
    (
        cd "$work/s$name"
        sleep 1
        mkdir -p done
        echo "s$name" > "done/s$name"
        git add -A
        git commit --quiet -m "s$name"
        test -f "done/s$name"
    ) &
done
wait
for name in $names; do
    git -C "$work/into" merge --quiet --no-ff -m "s$name" "s$round-$name"
    test -f "$work/into/done/s$name"
done
"""


class RealClock:
    def now(self) -> float:
        return time.time()


@dataclass(frozen=True)
class OneCommand:
    """A worker that is one command: it takes a second and writes a file."""

    model: str | None = None

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> f.Report | f.Failure:
        del meter
        name = brief.subtask.id
        done = await desk.run(f"sleep 1 && mkdir -p done && echo {name} > done/{name}", timeout_s=120)
        if done.exit_code:
            return f.Failure(kind="tool", summary=f"exit code {done.exit_code}", evidence=done.output)
        return f.Report(status="done", summary="wrote it")


class NoPlanner:
    async def plan(self, brief: PlannerBrief, repository: Repository, *_: object) -> f.Failure | None:
        del repository
        return f.Failure(kind="other", summary=f"call {brief.call}: nothing should have to be planned")


def given_plan(count: int) -> Plan:
    return Plan(
        subtasks=tuple(
            Subtask(
                id=name,
                title=f"Write {name}",
                goal=f"Write done/{name}.",
                acceptance=(Criterion(criterion="it is there", run=f"test -f done/{name}"),),
                worker="command",
            )
            for name in (f"s{number}" for number in range(count))
        )
    )


@dataclass
class Hundred:
    """The rounds of one kind on one repository, and what became of each."""

    on: Ground
    kind: LeaseKind
    landed: list[int]
    proven: list[bool]
    count: int = SUBTASKS
    label: str = ""

    async def prepare(self, stack: ExitStack, journal: Path) -> None:
        """What is done before anything is measured, and undone after it."""

    def journal(self, path: Path) -> Journal:
        return Journal.create(path)

    async def __call__(self, number: int) -> Cost:
        run, base = f"{self.label or self.kind}-{number}", self.on.line[-1]
        state_dir = self.on.folder / "state" / run
        settings = HandSettings(state_dir=state_dir, lease=self.kind, box_commands=self.count)
        path = state_dir / "runs" / run / "journal.db"
        async with AsyncExitStack() as stack:
            await self.prepare(stack.enter_context(ExitStack()), path)
            with Stopwatch() as watch:  # the script does not clean up in its time either
                target = await inspect(self.on.repository)
                workshop = await stack.enter_async_context(open_workshop(target, settings, run, base))
                journal = stack.enter_context(self.journal(path))
                state = await self._engine(run, journal, workshop)
            self.proven.append(await self._proven(workshop, run, state))
        self.landed.append(sum(subtask.landed is not None for subtask in state.subtasks.values()))
        return watch.cost

    async def _engine(self, run: str, journal: Journal, workshop: Workshop) -> RunState:
        clock = RealClock()
        start = f.RunStarted(
            at=clock.now(),
            run=run,
            goal="a hundred files",
            repository=str(self.on.repository),
            base=self.on.line[-1],
            base_name="main",
            result_branch=result_branch(run),
            policy=Policy(workers=self.count),
            plan=given_plan(self.count),
        )
        journal.append([start])
        state = replay(journal.facts())
        if state is None:
            raise RuntimeError("a run that started has no state")
        world = World(
            planner=NoPlanner(),
            workers={"command": OneCommand()},
            descriptions={"command": "runs one command"},
            worktrees=workshop,
            integrator=workshop,
            clock=clock,
            gate=Gate(),
        )
        engine = Engine(state, journal, clock)
        began = f.EngineStarted(at=clock.now(), epoch=1, pid=os.getpid(), host="here", version="1")
        return await engine.run(Performer(engine, world), began)

    async def _proven(self, workshop: Workshop, run: str, state: RunState) -> bool:
        """Whether history is one line of tested commits, one a subtask, and each tree passes all that landed below."""
        base, branch = self.on.line[-1], f"refs/heads/{result_branch(run)}"
        members = await workshop.landed_since(run, base)
        line = git(self.on.repository, "rev-list", "--reverse", "--first-parent", f"{base}..{branch}").split()
        merges = git(self.on.repository, "rev-list", "--min-parents=2", f"{base}..{branch}")
        due = set[str]()
        for member in members:
            due.add(member.subtask)
            there = git(self.on.repository, "ls-tree", "--name-only", member.commit, "done/").splitlines()
            if {f"done/{name}" for name in due} != set(there):
                return False
        tested = commits_tested(state) == len(members)
        return state.ending == "landed" and tested and not merges and line == [member.commit for member in members]


def script(on: Ground) -> Variant:
    """Plain git, as anyone would write it down."""

    def turn(number: int) -> Cost:
        work = on.folder / f"script-{number}"
        work.mkdir()
        command = ["sh", "-c", SCRIPT, "sh", str(on.repository), str(work), str(number)]
        with Stopwatch() as watch:
            subprocess.run(command, env=plain(), check=True, capture_output=True)
        if len(list(Path(work, "into", "done").iterdir())) != SUBTASKS:
            raise RuntimeError("the script did not land everything")
        subprocess.run(["rm", "-rf", str(work)], check=True)
        git(on.repository, "worktree", "prune")
        return watch.cost

    async def in_a_thread(number: int) -> Cost:
        return await to_thread.run_sync(turn, number)

    return in_a_thread


async def hundred(on: Ground, rounds: int, kinds: tuple[LeaseKind, ...] = KINDS) -> tuple[Costs, list[Figure]]:
    ours = {kind: Hundred(on, kind, [], []) for kind in kinds}
    variants: dict[str, Variant] = {"git": script(on), **{str(kind): run for kind, run in ours.items()}}
    costs = await interleave(variants, rounds, warm=0)
    proofs = []
    for kind, runs in ours.items():
        worst = min(runs.landed) if all(runs.proven) else 0
        note = f"landed {runs.landed}; linear, and every commit's tree passed: {all(runs.proven)}"
        measure, where = f"{SUBTASKS} of 1 s, {kind}: landed and proven", sized(on.files)
        proofs.append(Figure(measure, where, worst, wanted=SUBTASKS, at_least=True, note=note))
    return costs, proofs


def hundred_figures(files: int, costs: Costs, proofs: list[Figure]) -> list[Figure]:
    return [*ratios(f"{SUBTASKS} subtasks of 1 s", files, costs, wanted=WANTED), *proofs]


async def main(sizes: list[int], rounds: int) -> None:
    say(HEAD)
    for files in sizes:
        with ground(files, commits=1) as on:
            say(*hundred_figures(files, *await hundred(on, rounds)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=int, nargs="*", default=[TINY, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    anyio.run(main, given.files, given.rounds)
