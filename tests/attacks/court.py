"""A project, and the verdict on a worker's change of it: the engine's own, on real worktrees and in real boxes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan, Subtask
from fleet.core.state.state import RunState
from fleet.engine.adapters import Adapters
from fleet.engine.checks import Checks, Gate, NodeTrust
from fleet.engine.perform import Performer
from fleet.engine.this_machine import ThisMachine
from fleet.ports.worktrees import Change
from tests.fleet.core.pretend import checks_of, subtask_of
from tests.fleet.fakes import FakePlanner
from tests.fleet.hands import Book, Clock
from tests.worktrees.conftest import RUN, Bench, sign

SECONDS = 100


def criteria(*runs: str, guards: Sequence[str] = ()) -> tuple[Criterion, ...]:
    """Criteria with these commands; the guards pass before the work, too."""
    return tuple(
        Criterion(criterion=f"adds{number or ''}", run=command, timeout_s=SECONDS, fails_before=number < len(runs))
        for number, command in enumerate((*runs, *guards))
    )


@dataclass(frozen=True)
class Court:
    """Judges changes of the project that is on the bench."""

    bench: Bench

    async def change(
        self, files: Mapping[str, str | None], *, links: Mapping[str, str] | None = None, touches: Sequence[str] = ()
    ) -> Change | f.Failure:
        """Commit a worker's change. None removes a file; each link leads to its target."""
        async with self.bench.worktrees.lease(self.bench.base) as lease:
            for path, target in (links or {}).items():
                await lease.workspace.run(f"ln -sfn {target} {path}", timeout_s=SECONDS)
            for path, content in files.items():
                if content is None:
                    await lease.workspace.run(f"rm {path}", timeout_s=SECONDS)
                else:
                    await lease.workspace.write(path, content.encode())
            return await lease.commit(sign("a"), touches)

    async def judge(
        self,
        change: Change,
        *runs: str,
        guards: tuple[str, ...] = (),
        touches: tuple[str, ...] = (),
        gate: str = "",
        base: str = "",
    ) -> RunState:
        """The state of a run after it has verified the change against these criteria."""
        start = Sha(base) or self.bench.base
        spec = Subtask(id="a", title="Add", goal="Add.", acceptance=criteria(*runs, guards=guards), touches=touches)
        begun = f.RunStarted(
            at=0.0,
            run=RUN,
            goal="the epic",
            repository="somewhere",
            base=start,
            base_name="main",
            result_branch=f"fleet/{RUN}",
            policy=Policy(),
            plan=Plan(subtasks=(spec,)),
        )
        book = Book(evolve(None, begun))
        book.note(
            f.AttemptStarted(at=0.1, subtask="a", number=1, worker="coder", model=None, base=start, strategy="first")
        )
        gate_check = Criterion(criterion="the gate", run=gate, timeout_s=SECONDS, fails_before=False)
        world = Adapters(
            planner=FakePlanner(),
            workers={},
            descriptions={},
            worktrees=self.bench.worktrees,
            commits=self.bench.worktrees,
            integrator=self.bench.worktrees.integrator,
            publish=self.bench.worktrees.publisher.publish,
            clock=Clock(),
            gate=Gate(criteria=(gate_check,) if gate else ()),
        )
        trust, node = NodeTrust(book, world.clock), ThisMachine(world.worktrees.lease)
        checks = Checks(book, world.worktrees, world.commits, world.clock, Gate(reruns=0), node, trust)
        before = await checks.on(start, spec.acceptance)
        book.note(f.WorkerStarted(at=0.2, subtask="a", number=1, before=before))
        book.note(
            f.AttemptCommitted(
                at=0.3,
                subtask="a",
                number=1,
                commit=change.commit,
                paths=change.paths,
                report=f.Report(status="done", summary="added"),
            )
        )
        await Performer(book, world)(checks_of("a", 1))
        return book.state


def failure(state: RunState) -> f.Failure | None:
    return subtask_of(state, "a").attempts[0].failure
