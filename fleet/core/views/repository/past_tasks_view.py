"""What a rehearsal for real shows: the commits that workers did again, what history's tests say, and the cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import SubtaskState


@dataclass(frozen=True, slots=True)
class RedoneCommit:
    """A commit of history that a worker did again from its message."""

    subtask: SubtaskId
    """The subtask."""
    commit: Sha
    """Its id in history."""
    title: str
    """The first line of its message."""
    tests: int
    """How many test files it changed, if the gate is red on its parent with them; 0: only the gate judges it."""
    tried: bool
    """Whether a worker began with it."""
    landed: bool
    """Whether a worker finished it and the gate was green on the result."""
    passed: bool | None
    """Whether the result passes history's tests; null: it did not land, or there are none."""
    attempts: int
    """Attempts at it."""
    worker: str | None
    """The worker of the last attempt; null: it was not tried."""
    model: str | None
    """Its model; null for a program."""
    dollars: float | None
    """What its attempts cost; null where the price of a model is not known."""
    seconds: float
    """How long they took."""
    why: str
    """Why it did not land, or what history's tests said of it."""
    result: Sha | None
    """The worker's commit, on history's parent: `fleet show SUBTASK` shows it."""


@dataclass(frozen=True, slots=True)
class WorkerScore:
    """What one worker with one model did."""

    worker: str
    """The worker."""
    model: str | None
    """The model; null for a program."""
    commits: int
    """Commits whose last attempt was its."""
    landed: int
    """Those of them that landed."""
    with_tests: int
    """Those of them that have tests of their own."""
    passed: int
    """Those of these that pass them."""
    attempts: int
    """All attempts at these commits."""
    dollars: float | None
    """What they cost; null where a price is not known."""
    seconds: float
    """How long they took."""


@dataclass(frozen=True, slots=True)
class LeftOutCommit:
    """A commit of history that could judge no worker here."""

    commit: Sha
    """Its id."""
    title: str
    """The first line of its message."""
    why: str
    """Why it was left out."""


@dataclass(frozen=True, slots=True)
class PastTasksView:
    """A rehearsal for real as a whole."""

    run: RunId
    rehearsal: bool
    """Always true."""
    for_real: bool
    """Always true: planner and workers did the commits again from their messages."""
    simulated: bool
    """Whether the model was the simulated one, which says nothing about any other."""
    repository: str
    """The repository."""
    base: Sha
    """The parent of the oldest commit that was done again."""
    head: Sha
    """The newest commit that was looked at."""
    gate: str
    """The gate."""
    redone: tuple[RedoneCommit, ...]
    """The commits that were to be done again, the oldest first."""
    left_out: tuple[LeftOutCommit, ...]
    """Those that could judge no worker."""
    tried: int
    """Commits that a worker began with."""
    landed: int
    """Commits that landed."""
    with_tests: int
    """Commits with tests of their own that were tried."""
    passed: int
    """Those of them whose result passes history's tests."""
    by_gate: int
    """Tried commits that only the gate can judge."""
    by_gate_landed: int
    """Those of them that landed."""
    workers: tuple[WorkerScore, ...]
    """By the worker and the model of the last attempt."""
    attempts: int
    """All attempts."""
    dollars: float | None
    """What everything cost; null where a price is not known."""
    planner_dollars: float | None
    """What the planner cost of it."""
    dollars_each: float | None
    """Of a commit that was tried, the planner's share included."""
    budget_dollars: float | None
    """The budget."""
    seconds: float
    """How long the run took, without the checks before and after it."""
    ending: f.Ending | None
    """How the run ended."""
    ending_why: str
    """Why."""


def past_tasks_view(state: RunState, now: float) -> PastTasksView:
    """The whole result."""
    rehearsal = state.rehearsal or f.Rehearsal(for_real=True)
    redone = tuple(_redone(state, task, now) for task in rehearsal.tasks)
    tried = [each for each in redone if each.tried]
    tested = [each for each in tried if each.tests]
    gated = [each for each in tried if not each.tests]
    dollars = state.spent.dollars
    planner = sum((state.spend.get(role, Spend()) for role in ("planner", "sub_planner")), Spend())
    return PastTasksView(
        run=state.run,
        rehearsal=True,
        for_real=True,
        simulated=state.simulated,
        repository=state.repository,
        base=state.base,
        head=rehearsal.head,
        gate=state.gate_command or "",
        redone=redone,
        left_out=tuple(LeftOutCommit(each.commit, each.title, each.why) for each in rehearsal.left_out),
        tried=len(tried),
        landed=_count(tried, lambda each: each.landed),
        with_tests=len(tested),
        passed=_count(tested, lambda each: bool(each.passed)),
        by_gate=len(gated),
        by_gate_landed=_count(gated, lambda each: each.landed),
        workers=_by_worker(tried),
        attempts=state.attempts,
        dollars=_rounded(dollars),
        planner_dollars=_rounded(planner.dollars),
        dollars_each=_rounded(dollars / len(tried)) if dollars is not None and tried else None,
        budget_dollars=state.policy.budget_dollars,
        seconds=round(state.seconds(now), 1),
        ending=state.ending,
        ending_why=state.ending_why,
    )


def _redone(state: RunState, task: f.PastTask, now: float) -> RedoneCommit:
    subtask, score = state.subtasks[task.subtask], state.scored.get(task.subtask)
    last = subtask.last
    landed = subtask.has_own_commit
    return RedoneCommit(
        subtask=task.subtask,
        commit=task.commit,
        title=state.spec(task.subtask).title,
        tests=len(task.tests),
        tried=last is not None,
        landed=landed,
        passed=score.passed if score is not None and score.failure is None else None,
        attempts=len(subtask.attempts),
        worker=last.worker if last is not None else None,
        model=last.model if last is not None else None,
        dollars=_rounded(subtask.spend.dollars),
        seconds=round(state.seconds_at(subtask, now), 1),
        why=_score_text(score) if landed else _failure_text(subtask),
        result=last.commit if last is not None and landed else None,
    )


def _failure_text(subtask: SubtaskState) -> str:
    if subtask.unchanged:
        return "nothing was changed"
    failures = [attempt.failure for attempt in subtask.attempts if attempt.failure is not None]
    return failures[-1].summary if failures else subtask.dropped or ""


def _score_text(score: f.ResultScored | None) -> str:
    """The lines that matter of a red gate, or what is missing."""
    if score is None or score.passed:
        return ""
    if score.failure is not None:
        return f"it could not be judged: {score.failure.summary}"
    red = [run for run in score.checks if not run.fine]
    lines = [line for run in red for line in (run.causes or tuple(run.output.strip().splitlines()[-1:]))]
    return "\n".join(lines) or f"tests are missing: {', '.join(score.lost)}"


def _by_worker(tried: Sequence[RedoneCommit]) -> tuple[WorkerScore, ...]:
    kinds = sorted({(each.worker or "", each.model or "") for each in tried})
    return tuple(
        _of_worker(worker, model, [each for each in tried if (each.worker or "", each.model or "") == (worker, model)])
        for worker, model in kinds
    )


def _of_worker(worker: str, model: str, own: Sequence[RedoneCommit]) -> WorkerScore:
    prices = [each.dollars for each in own]
    known = [price for price in prices if price is not None]
    return WorkerScore(
        worker=worker,
        model=model or None,
        commits=len(own),
        landed=_count(own, lambda each: each.landed),
        with_tests=_count(own, lambda each: each.tests > 0),
        passed=_count(own, lambda each: bool(each.passed)),
        attempts=sum(each.attempts for each in own),
        dollars=_rounded(sum(known)) if len(known) == len(prices) else None,
        seconds=round(sum(each.seconds for each in own), 1),
    )


def _count(commits: Sequence[RedoneCommit], is_one: Callable[[RedoneCommit], bool]) -> int:
    return sum(map(is_one, commits))


def _rounded(dollars: float | None) -> float | None:
    return None if dollars is None else round(dollars, 6)
