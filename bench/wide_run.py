"""Generates the facts of a run of any width, wave by wave of concurrent agents, without running it.

One subtask in twenty fails first. Every second failure goes back to the planner, whose revision creates a new version
of the plan. The last wave is still running.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan, Subtask
from fleet.core.plans.revision import Retry, Revision
from fleet.runs.journal import Journal

RUN = "bench"
FAILING, TO_THE_PLANNER = 20, 40  # one subtask in so many
BATCH, WRITTEN = 10, 2_000  # members of a batch; facts of one transaction
LEAST = 4.5  # facts that a subtask needs at least: started twice, committed, verified, and its part of a batch


@dataclass(frozen=True)
class Width:
    """Size of a generated run."""

    subtasks: int
    facts: int
    """Approximate number of facts. Model calls make up the difference."""
    agents: int = 100
    """Number of running agents."""
    planned: int | None = None
    """Number of subtasks that one planner revision adds. None: the run was given its plan."""
    settled: bool = False
    """Whether the last wave has landed as well."""

    @property
    def turns(self) -> int:
        """Model calls of each attempt."""
        return max(0, round(self.facts / self.subtasks - LEAST))


def subtask_id(number: int) -> str:
    return f"subtask-{number:05}"


def spec(number: int) -> Subtask:
    check = Criterion(criterion="it exists", run=f"test -f src/part{number % 40}/file{number}.py")
    return Subtask(
        id=subtask_id(number),
        title=f"Write the file {number} of part {number % 40}",
        goal=f"Write src/part{number % 40}/file{number}.py with a function that returns {number}, and a docstring.",
        acceptance=(check,),
        touches=(f"src/part{number % 40}/file{number}.py",),
    )


def wide_facts(width: Width, *, at: float = 1_800_000_000.0) -> Iterator[f.Fact]:
    """All facts of the run, a second after each other in each wave."""
    plan = Plan(goal="a benchmark", subtasks=tuple(map(spec, range(width.subtasks))))
    yield f.RunStarted(
        at=at,
        run=RUN,
        goal="a benchmark",
        repository="nowhere",
        base="0" * 40,
        base_name="main",
        result_branch=f"fleet/{RUN}",
        policy=Policy(workers=max(width.agents, 1), max_planner_calls=100_000),
        plan=plan if width.planned is None else None,
    )
    yield f.EngineStarted(at=at, epoch=1, pid=os.getpid(), host="here", version="0")
    waves = _Waves(width, at)
    planned = width.subtasks if width.planned is None else 0
    for first in range(0, width.subtasks, width.agents):
        numbers = range(first, min(first + width.agents, width.subtasks))
        while planned < numbers.stop:
            new = range(planned, min(planned + (width.planned or 0), width.subtasks))
            yield from waves.plan(Revision(assessment="the next ones", add=tuple(map(spec, new))))
            planned = new.stop
        yield from waves.work(numbers, lands=width.settled or numbers.stop < width.subtasks)


class _Waves:
    """Generates the facts, and counts calls and batches."""

    def __init__(self, width: Width, at: float) -> None:
        self._width = width
        self._at = at
        self._calls = 0
        self._batches = 0
        self._tip = "0" * 40

    def plan(self, revision: Revision) -> Iterator[f.Fact]:
        self._calls += 1
        yield f.PlannerCalled(at=self._at, call=self._calls, why="reports")
        yield f.PlanRevised(at=self._at, call=self._calls, by="planner", revision=revision)

    def work(self, numbers: Sequence[int], *, lands: bool) -> Iterator[f.Fact]:
        self._at += 1
        yield from self._attempts(numbers, 1, turns=self._width.turns)
        if not lands:
            return
        failed = [number for number in numbers if number % FAILING == 0]
        for number in failed:
            yield from self._failure(number)
        yield from self._attempts(failed, 2, turns=1)
        for number in numbers:
            yield from self._done(number, 2 if number in failed else 1)
        for first in range(0, len(numbers), BATCH):
            yield from self._batch(numbers[first : first + BATCH])

    def _attempts(self, numbers: Sequence[int], attempt: int, *, turns: int) -> Iterator[f.Fact]:
        for number in numbers:
            name = subtask_id(number)
            yield f.AttemptStarted(
                at=self._at,
                subtask=name,
                number=attempt,
                worker="coder",
                model="claude-haiku-5-5",
                base=self._tip,
                strategy="first" if attempt == 1 else "retry",
            )
            yield f.WorkerStarted(at=self._at, subtask=name, number=attempt)
        for turn in range(1, turns + 1):
            self._at += 1
            yield from (model_call(number, attempt, turn, at=self._at) for number in numbers)

    def _failure(self, number: int) -> Iterator[f.Fact]:
        name, to_the_planner = subtask_id(number), number % TO_THE_PLANNER == 0
        red = f.Failure(kind="check", summary="1 failed", evidence=f"FAILED tests/test_{number}.py::test_it\n" * 20)
        yield f.AttemptFailed(at=self._at, subtask=name, number=1, failure=red)
        yield f.RemedyChosen(at=self._at, subtask=name, number=1, remedy="planner" if to_the_planner else "retry")
        if to_the_planner:
            retry = Retry(id=name, guidance="the test wants a docstring")
            yield from self.plan(Revision(assessment="again", retry=(retry,)))

    def _done(self, number: int, attempt: int) -> Iterator[f.Fact]:
        name = subtask_id(number)
        report = f.Report(status="done", summary=f"The file {number} is there, with its function and a docstring.")
        (path,) = spec(number).touches
        yield f.AttemptCommitted(
            at=self._at, subtask=name, number=attempt, commit=commit_of(number), paths=(path,), report=report
        )
        check = f.CheckRun(criterion="it exists", command=f"test -f {path}", passed=True, exit_code=0, seconds=0.01)
        yield f.AttemptVerified(at=self._at, subtask=name, number=attempt, checks=(check,))

    def _batch(self, numbers: Sequence[int]) -> Iterator[f.Fact]:
        self._batches, self._tip = self._batches + 1, commit_of(numbers[-1])
        members = tuple(
            f.Member(
                subtask=subtask_id(number),
                attempt=2 if number % FAILING == 0 else 1,
                commit=commit_of(number),
                tested=True,
            )
            for number in numbers
        )
        yield f.BatchFormed(at=self._at, number=self._batches, members=members)
        yield f.BatchTested(at=self._at, number=self._batches, tip=self._tip, landed=members)
        yield f.Published(at=self._at, tip=self._tip)


def commit_of(number: int) -> str:
    return f"{number:040x}"


def model_call(number: int, attempt: int, turn: int, *, at: float) -> f.ModelCalled:
    return f.ModelCalled(
        at=at,
        role="worker",
        model="claude-haiku-5-5",
        usage=Usage(input=900, output=120, cache_read=9_000),
        dollars=0.0012,
        seconds=1.5,
        subtask=subtask_id(number),
        attempt=attempt,
        turn=turn,
        doing=f"bash pytest -q tests/test_{number}.py",
    )


def write_journal(state_dir: Path, width: Width) -> int:
    """Write the journal of such a run into a state directory, and return the number of its facts."""
    path, count = state_dir / "runs" / RUN / "journal.db", 0
    waiting: list[f.Fact] = []
    with closing(Journal.create(path)) as journal:
        for fact in wide_facts(width):
            waiting.append(fact)
            count += 1
            if len(waiting) == WRITTEN:
                journal.append(waiting)
                waiting = []
        journal.append(waiting)
    return count
