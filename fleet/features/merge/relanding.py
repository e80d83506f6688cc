"""Set up relandings: runs that land a result again, on top of a branch that has moved.

The work is already done. Each commit of the result is the finished first attempt at its subtask, so the run starts with
landing. Commits that conflict go to a resolver, and then up the same failure ladder as in any run.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet.config.environment import user
from fleet.core.base.ids import RunId, Sha, SubtaskId, attempt_ref, slug
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import WORKER_SUCCEEDED, Criterion, Plan, Subtask
from fleet.core.policy.budget import Budget, run_budgets
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.engine.adapters import Adapters
from fleet.engine.loop import Engine
from fleet.errors import FleetError
from fleet.ports.worktrees import Signature
from fleet.runs.run_folder import RunFolder, runs_by_start, runs_dir
from worktrees.base.fs import as_text
from worktrees.git.object_format import RUN, member_of, parse_trailers
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store.integrator import StoreIntegrator
from worktrees.store.replay import RelandingIntegrator, put_candidate

CARRIED = ("dollars", "tokens", "attempts")
"""The budgets that a run and its relandings share. Minutes are not shared, because a human waits for a relanding."""
LONGEST_STEM = 40  # characters of a name before its number
GOAL = 4_000
SERVICE_LOST_S = 60.0  # timeout for a question about a lost service; short, because a human waits
WORKER = "coder"


@dataclass(frozen=True, slots=True)
class RelandedPart:
    """One commit of a result with its subtask."""

    commit: Sha
    parent: Sha
    subtask: Subtask
    attempt: Attempt
    paths: tuple[str, ...]
    body: str


# ---- the commits of a result ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Origins:
    """Read the commits of a result, and the journals of the runs that made them."""

    state_dir: Path
    integrator: StoreIntegrator
    workers: frozenset[str]
    """The configured workers."""
    _states: dict[RunId, RunState | None] = field(default_factory=dict)

    async def pieces(self, commits: Iterable[Sha]) -> list[RelandedPart]:
        pieces, taken = list[RelandedPart](), set[SubtaskId]()
        for commit in commits:
            piece = await self._piece(commit)
            if piece.subtask.id in taken:
                id_ = f"commit-{commit[:12]}"
                piece = replace(piece, subtask=piece.subtask.model_copy(update={"id": id_}))
            taken.add(piece.subtask.id)
            pieces.append(piece)
        needed = {piece.subtask.id for piece in pieces}
        return [replace(piece, subtask=_among(piece.subtask, needed)) for piece in pieces]

    async def _piece(self, commit: Sha) -> RelandedPart:
        repository = self.integrator.repository
        stored = await repository.commit(commit)
        message, parent = stored.message.decode("utf-8", "replace"), stored.parents[0]
        paths = tuple(map(as_text, (await repository.diff(parent, commit)).paths))
        run = RunId(parse_trailers(message).get(RUN, ""))
        member, state = member_of(commit, message, run), self._state(run)
        spec = state.plan.subtask(member.subtask) if state is not None and member is not None else None
        if state is None or member is None or spec is None or member.attempt > len(state.subtasks[spec.id].attempts):
            return _made_by_hand(commit, parent, message, paths)
        made = state.subtasks[spec.id].attempts[member.attempt - 1]
        worker = spec.worker if spec.worker in self.workers else WORKER
        body = made.report.summary if made.report is not None else ""
        return RelandedPart(commit, parent, spec.model_copy(update={"worker": worker}), made, paths, body)

    def _state(self, run: RunId) -> RunState | None:
        if run not in self._states:
            self._states[run] = None
            with suppress(FleetError):
                folder = RunFolder(runs_dir(self.state_dir) / run)
                self._states[run] = folder.state() if run and folder.journal.is_file() else None
        return self._states[run]


def _among(subtask: Subtask, ids: set[SubtaskId]) -> Subtask:
    """Limit the dependencies of a subtask to these subtasks. Its other dependencies are already on the branch."""
    needs = tuple(need for need in subtask.depends_on if need in ids and need != subtask.id)
    return subtask.model_copy(update={"depends_on": needs, "not_before": None})


def _made_by_hand(commit: Sha, parent: Sha, message: str, paths: tuple[str, ...]) -> RelandedPart:
    """Return a piece for a commit without a known subtask, described by the commit message."""
    text = "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in message).strip()
    title, _, body = text.partition("\n")
    subtask = Subtask(
        id=f"commit-{commit[:12]}",
        title=" ".join(title.split()) or f"commit {commit[:12]}",
        goal=text[:GOAL] or "(the commit has no message)",
        acceptance=(Criterion(criterion=WORKER_SUCCEEDED, fails_before=False),),
        worker=WORKER,
    )
    attempt = Attempt(1, WORKER, None, parent, "first", "", started_at=0.0, commit=commit, paths=paths)
    return RelandedPart(commit, parent, subtask, attempt, paths, body.strip())


# ---- relanding run -------------------------------------------------------------------------------------------------


def relanding_name(state_dir: Path, run: RunId, branch: str) -> RunId:
    """Return an unused name made of the run and the branch."""
    stem = f"{run[:LONGEST_STEM].rstrip('.-_')}-on-{slug(branch, limit=16)}"
    names = (f"{stem}-{number}" for number in range(2, 1 << 20))
    return next(RunId(name) for name in (stem, *names) if not (runs_dir(state_dir) / name).exists())


def spent_budget(state: RunState) -> Budget | None:
    """Return a spent budget of the run, which leaves a resolver without a budget."""
    return next((each for each in run_budgets(state, time.time()) if each.unit in CARRIED and each.is_spent), None)


def relanding_policy(state: RunState, pieces: int, *, resolves: bool, dollars: float | None, gate: bool) -> Policy:
    """Return the limits of the original run with the rest of its budgets, or with a separate budget."""
    left: dict[str, float | int | None] = {f"budget_{unit}": None for unit in ("minutes", *CARRIED)}
    left["budget_dollars"] = dollars
    for budget in run_budgets(state, time.time()) if resolves and dollars is None else ():
        if budget.unit in CARRIED:
            limit = budget.remaining + (
                pieces if budget.unit == "attempts" else 0
            )  # each already counts as one attempt
            left[f"budget_{budget.unit}"] = limit if budget.unit == "dollars" else int(limit)
    return state.policy.model_copy(
        update={
            **left,
            "in_order": True,
            "publishes": False,
            "every_commit": True,
            "flat": False,
            "check_base": gate or state.policy.check_base,
            "answer_wait_s": 0.0,
            "service_lost_s": min(SERVICE_LOST_S, state.policy.service_lost_s),
            "review": False,
            "reviewing": "none" if state.policy.reviewing in {None, "none"} else "auto",
            **({} if resolves else {"max_attempts": 1}),
        }
    )


async def pin_candidates(
    integrator: StoreIntegrator, run: RunId, pieces: Sequence[RelandedPart]
) -> dict[SubtaskId, Sha]:
    """Pin each commit as a candidate of the run, and return the candidates by subtask."""
    found = dict[SubtaskId, Sha]()
    for piece in pieces:
        subtask, attempt = piece.subtask, piece.attempt
        signature = Signature(run, subtask.id, 1, subtask.title, piece.body, attempt.worker, attempt.model)
        found[subtask.id] = await put_candidate(integrator, piece.commit, signature)
        await integrator.repository.refs.pin(attempt_ref(run, subtask.id, 1), found[subtask.id])
    return found


def relanding_plan(state: RunState, pieces: Sequence[RelandedPart], goal: str) -> Plan:
    return Plan(plan_id=state.run, goal=goal, version=1, subtasks=tuple(piece.subtask for piece in pieces))


def finished_work(pieces: Sequence[RelandedPart], made: dict[SubtaskId, Sha], policy: Policy) -> Iterator[f.Fact]:
    """Return the facts before the run starts: the work is done and has passed its checks."""
    now = time.time()
    if policy.reviewing == "auto":  # it was approved in the original run
        yield f.PlanApproved(at=now, version=1, by=user(), subtasks=tuple(piece.subtask.id for piece in pieces))
    for piece in pieces:
        id_, attempt = piece.subtask.id, piece.attempt
        report = attempt.report or f.Report(status="done", summary=piece.subtask.title)
        yield f.AttemptStarted(
            at=now,
            subtask=id_,
            number=1,
            worker=attempt.worker,
            model=attempt.model,
            base=piece.parent,
            strategy="first",
        )
        yield f.AttemptCommitted(at=now, subtask=id_, number=1, commit=made[id_], paths=piece.paths, report=report)
        yield f.AttemptVerified(at=now, subtask=id_, number=1, checks=attempt.checks)


def candidates(state: RunState) -> frozenset[Sha]:
    """Return the commits of the result, which are the first attempts of a relanding."""
    ids = state.relanding.commits if state.relanding is not None else {}
    found = (state.subtasks[id_].attempts[0].commit for id_ in ids if id_ in state.subtasks)
    return frozenset(commit for commit in found if commit is not None)


def find_relanding(state_dir: Path, wanted: f.Relanding, onto: Sha) -> RunFolder | None:
    """Return the latest relanding of this result on this commit, if it resolves conflicts as requested."""
    for run in reversed(runs_by_start(state_dir)):
        if run.state is None or run.state.relanding is None or run.state.base != onto:
            continue
        known = run.state.relanding
        is_same = (known.run, known.since, known.result) == (wanted.run, wanted.since, wanted.result)
        if is_same and (known.resolves == wanted.resolves or run.folder.state().ending == "landed"):
            return run.folder
    return None


def has_landed_on(state_dir: Path, run: RunId, result: Sha, onto: Sha) -> bool:
    """Return whether an existing run has landed this result on this commit."""
    return any(
        each.state is not None
        and each.state.relanding is not None
        and (each.state.relanding.run, each.state.relanding.result, each.state.base) == (run, result, onto)
        and each.folder.state().ending == "landed"
        for each in runs_by_start(state_dir)
    )


def landed_line(state: RunState, commits: Iterable[Sha], members: Iterable[f.Member]) -> list[tuple[Sha, Sha]]:
    """Pair each commit of a relanding with the commit that names its author: the original, unless it was redone."""
    originals = state.relanding.commits if state.relanding is not None else {}
    by_commit = {member.commit: member for member in members}
    line = []
    for commit in commits:
        member = by_commit.get(commit)
        is_first = member is not None and member.attempt == 1 and member.subtask in originals
        line.append((originals[member.subtask] if member is not None and is_first else commit, commit))
    return line


async def relanding_adapters(engine: Engine, adapters: Adapters, worktrees: RunWorktrees) -> Adapters:
    """Return the adapters of a relanding."""
    return replace(adapters, integrator=RelandingIntegrator(worktrees.integrator, candidates(engine.state)))
