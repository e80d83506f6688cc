"""Rehearsals for real: planner and workers redo the repository's latest commits, and the original tests judge them.

Before anything is paid, the gate runs on history. A commit is only suitable if the gate passes on it and on its parent.
After the run, the tests of the original commit are copied over the landed result, and the gate runs on that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import sleep_forever

from fleet.core.base.ids import Sha
from fleet.core.base.paths import is_test, matches, path_problem
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Plan
from fleet.core.state.state import RunState
from fleet.engine.adapters import Adapters
from fleet.engine.checks import Checks, Gate, NodeTrust
from fleet.engine.this_machine import ThisMachine
from fleet.errors import UsageError
from fleet.features.rehearse.replay_plan import Described, past_subtask_id, task_plan
from fleet.ports.journal import Clock
from fleet.ports.worktrees import EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.git.diff import Diff
from worktrees.git.repository import Repository
from worktrees.leases.run_worktrees import PastWork, RunWorktrees, open_trial_worktrees
from worktrees.store.integrator import LineCommit, last_commits, merged_messages
from worktrees.store.store import open_store
from worktrees.target.target import Target, inspect

CAUSE = 200  # characters of the cause of a failed gate
REASONS = 3
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PastTasks:
    """The commits to redo, and those left out."""

    rehearsal: f.Rehearsal
    plan: Plan
    base: Sha
    """The parent of the oldest commit to redo."""


def for_real_policy(policy: Policy, tasks: int) -> Policy:
    """Return the limits of a rehearsal for real: no questions, no splits, and every result is tested separately."""
    return policy.model_copy(
        update={
            "publishes": False,
            "review": False,
            "reviewing": "none",
            "every_commit": True,
            "max_depth": 0,
            "max_subtasks": tasks,
            "max_areas": 0,
            "flat": False,
            "allow_red_base": False,
            "answer_wait_s": 0.0,
        }
    )


# ---- before the run --------------------------------------------------------------------------------------------------


async def read_tasks(
    settings: WorktreeSettings, gate: Gate, clock: Clock, repository: Path, *, last: int, worker: str, say: Progress
) -> PastTasks:
    """Read the suitable commits as a plan. Raises `UsageError` if there are none."""
    target = await inspect(repository)
    line = await _read_line(settings, target, last)
    history = _History(settings, gate, line, say)
    tasks, left_out = await history.judge(await inspect(repository, line[0].commit.parent), clock)
    if not tasks:
        reasons = "; ".join(list(dict.fromkeys(each.why for each in left_out))[:REASONS])
        raise UsageError(
            f"none of the last {len(line)} commits can be redone: {reasons}", hint="consider more commits with --last N"
        )
    read = {each.commit.id: each for each in line}
    described = [
        Described(task.subtask, read[task.commit].message, _touches(read[task.commit], settings.checks.protected))
        for task in tasks
    ]
    goal = f"Rehearsal for real: {len(tasks)} of the last {len(line)} commits of {target.base_name}"
    rehearsal = f.Rehearsal(for_real=True, head=target.base, tasks=tuple(tasks), left_out=tuple(left_out))
    plan = task_plan(described, gate=gate.criteria[0], worker=worker, goal=goal)
    return PastTasks(rehearsal, plan, tasks[0].parent)


@dataclass(frozen=True, slots=True)
class _ReadCommit:
    """A past commit with its changes."""

    commit: LineCommit
    message: str
    """The message; for a merge, also the messages of the merged commits."""
    diff: Diff
    added: frozenset[str]
    """The paths it adds."""


async def _read_line(settings: WorktreeSettings, target: Target, last: int) -> tuple[_ReadCommit, ...]:
    """Read the latest commits, the oldest first."""
    store = await open_store(settings.state_dir, target, target.base)
    try:
        commits = await last_commits(store.repository, target.base, last)
        if not commits:
            raise UsageError(f"{target.root} needs at least two commits to rehearse, up to {target.base[:12]}")
        return tuple([await _read(store.repository, commit) for commit in commits])
    finally:
        await store.close()


async def _read(repository: Repository, commit: LineCommit) -> _ReadCommit:
    message = await merged_messages(repository, commit) if commit.is_merge else commit.message
    diff, back = (
        await repository.diff(commit.parent, commit.id),
        await repository.diff(commit.id, commit.parent),
    )
    return _ReadCommit(commit, message, diff, frozenset(back.removed))


def _touches(read: _ReadCommit, protected: Sequence[str]) -> tuple[str, ...]:
    """Return the `touches` of a subtask: protected files and existing tests only if the original changed them."""
    named = [
        path
        for path in read.diff.paths
        if path_problem(path) is None and (matches(path, protected) or (is_test(path) and path not in read.added))
    ]
    return ("**", *named) if named else ()


@dataclass(frozen=True, slots=True)
class _History:
    """The past commits, to find those suitable for judging a worker."""

    settings: WorktreeSettings
    gate: Gate
    line: Sequence[_ReadCommit]
    say: Progress

    async def judge(self, target: Target, clock: Clock) -> tuple[list[f.PastTask], list[f.LeftOut]]:
        tasks, left_out = list[f.PastTask](), list[f.LeftOut]()
        async with open_trial_worktrees(target, self.settings, only_past=True) as worktrees:
            checks = _checks(worktrees, self.gate, clock, target)
            for number, read in enumerate(self.line, start=1):
                commit = read.commit
                title = commit.subject or commit.id[:12]
                found = await self._judge(checks, commit, read.diff, number)
                if isinstance(found, str):
                    left_out.append(f.LeftOut(commit=commit.id, title=title, why=found))
                    said = f"left out: {found}"
                else:
                    tasks.append(found)
                    said = "has its own tests" if found.tests else "can only be judged by the gate"
                self.say(f"{number} of {len(self.line)}: {commit.id[:12]} {said}")
        return tasks, left_out

    async def _judge(self, checks: Checks, commit: LineCommit, diff: Diff, number: int) -> f.PastTask | str:
        """Return a commit as a task, or the reason to leave it out."""
        if (reason := _unfit(commit, diff)) is not None:
            return reason
        try:
            if red := await self._red(checks, commit.parent):
                return f"the gate fails on its parent{_because(red)}"
            if red := await self._red(checks, commit.id):
                return f"the gate fails on it{_because(red)}"
            tests = tuple(path for path in diff.paths if is_test(path))
            if tests:
                with_tests = await checks.worktrees.put_back(commit.parent, commit.id, tests)
                tests = tests if await self._red(checks, with_tests) else ()
        except EffectError as error:
            return error.failure.summary
        id_ = past_subtask_id(number, commit.id)
        return f.PastTask(subtask=id_, commit=commit.id, parent=commit.parent, tests=tests)

    async def _red(self, checks: Checks, commit: Sha) -> tuple[f.CheckRun, ...]:
        return tuple(run for run in await checks.on(commit, self.gate.criteria) if not run.fine)


def _because(red: Sequence[f.CheckRun]) -> str:
    """Return the first relevant line of a failed gate's output."""
    lines = [line.strip() for run in red for line in (*run.causes, *run.output.splitlines()[-1:]) if line.strip()]
    return f": {lines[0][:CAUSE]}" if lines else ""


def _unfit(commit: LineCommit, diff: Diff) -> str | None:
    if not diff.entries:
        return "the commit is empty"
    if diff.gitlinks:
        return "it moves a submodule, which workers are not allowed to do"
    if not commit.message.strip():
        return "its message is empty"
    return None


@dataclass(slots=True)
class _NoRun:
    """Satisfies `Recorder` for checks outside of a run. It discards all facts."""

    state: RunState

    async def record(self, *facts: f.Fact) -> None:
        del facts

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None:
        del facts

    def note(self, *facts: f.Fact) -> None:
        del facts

    async def wait_instructed(self) -> None:
        await sleep_forever()


def _checks(worktrees: RunWorktrees, gate: Gate, clock: Clock, target: Target) -> Checks:
    """Return checks for use outside of a run."""
    started = f.RunStarted(
        at=clock.now(),
        run="",
        goal="",
        repository=str(target.root),
        base=target.base,
        base_name=target.base_name,
        result_branch="",
        policy=Policy(),
    )
    run = _NoRun(evolve(None, started))
    return Checks(run, worktrees, worktrees, clock, gate, ThisMachine(worktrees.lease), NodeTrust(run, clock))


# ---- during the run --------------------------------------------------------------------------------------------------


def redoing(state: RunState, adapters: Adapters, worktrees: RunWorktrees) -> Adapters:
    """Return the adapters of a run whose workers redo past commits."""
    starts = frozenset(task.parent for task in _tasks(state))
    past = PastWork(worktrees, adapters.integrator, state.base, starts, worktrees.integrator.committer)
    return replace(adapters, worktrees=past, commits=past, integrator=past)


def _tasks(state: RunState) -> tuple[f.PastTask, ...]:
    return state.rehearsal.tasks if state.rehearsal is not None else ()


# ---- after the run ---------------------------------------------------------------------------------------------------


def unscored(state: RunState) -> tuple[f.PastTask, ...]:
    """Return the tasks with landed results that the original tests have not judged yet."""
    return tuple(
        task
        for task in _tasks(state)
        if task.tests and state.subtasks[task.subtask].has_own_commit and task.subtask not in state.scored
    )


async def score(
    state: RunState, settings: WorktreeSettings, gate: Gate, clock: Clock, record: Callable[[f.ResultScored], None]
) -> None:
    """Judge the landed results with the original tests, and record each verdict as it comes."""
    target = await inspect(Path(state.repository), state.base)
    async with open_trial_worktrees(target, settings, only_past=True) as worktrees:
        checks = _checks(worktrees, gate, clock, target)
        for task in unscored(state):
            record(await _score(state, task, checks, gate, clock))


async def _score(state: RunState, task: f.PastTask, checks: Checks, gate: Gate, clock: Clock) -> f.ResultScored:
    """Copy the tests of the original commit over the landed result, and run the gate."""
    result = state.subtasks[task.subtask].attempts[-1].commit or Sha("")
    commit, id_ = result, task.subtask
    try:
        commit = await checks.worktrees.put_back(result, task.commit, task.tests)
        runs = await checks.on(commit, gate.criteria)
        lost = await checks.lost(commit, task.commit, gate.criteria, changed=(), touches=())
    except EffectError as error:
        return f.ResultScored(at=clock.now(), subtask=id_, commit=commit, passed=False, failure=error.failure)
    names = tuple(name for tests in lost.values() for name in tests)
    passed = all(run.fine for run in runs) and not names
    return f.ResultScored(at=clock.now(), subtask=id_, commit=commit, passed=passed, checks=runs, lost=names)
