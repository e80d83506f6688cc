"""The loop: records reports, makes decisions, and keeps the required effects running.

Uses only the core, a journal and a performer of commands. Independent of git and models.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anyio import CancelScope, Event, create_task_group, move_on_after, to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.facts import EngineStarted, EngineStopped, Fact, InstructionGiven, WarningNoted
from fleet.core.history.evolve import OnFact, Step, applied
from fleet.core.plans.plan import PLANNER
from fleet.core.policy.decide import RULES, Rule, next_wake
from fleet.core.policy.requests import Request, fact_of, is_unreviewed, request_problem
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Attempt
from fleet.engine.lanes import Bugs, Lanes, Perform
from fleet.errors import FleetError
from fleet.ports.journal import Clock, Journal
from fleet.ports.worktrees import NamedCommits, Recover, RecoveredCommits

INBOX_S = 0.2  # how long a request may wait in the inbox
LAST_FACTS_S = 5.0  # how long the last facts of a stopped engine may take


@dataclass(slots=True)
class _Proposal:
    """Facts that depend on the state at the moment of recording."""

    facts: Callable[[RunState], Sequence[Fact]]
    recorded: Event = field(default_factory=Event)
    error: Exception | None = None
    """Error that prevented these facts from being recorded."""


class Engine:
    """Executes one run, starting from a state replayed from its journal.

    `on_fact` receives each fact after it is on disk, so that a display in the same process does not apply facts twice.
    """

    def __init__(
        self,
        state: RunState,
        journal: Journal,
        clock: Clock,
        on_fact: OnFact | None = None,
        rules: Sequence[Rule] = RULES,
    ) -> None:
        self.state = state
        self._journal = journal
        self._clock = clock
        self._on_fact = on_fact
        self._proposals: list[_Proposal] = []
        self._awake = Event()
        self._instructed = Event()
        self._bugs = Bugs(clock, rules)
        self._stops_at: float | None = None
        """When work that is still running is stopped, once the run drains."""

    def begin_with(self, facts: Sequence[Fact]) -> None:
        """Record facts before the loop starts, without making decisions."""
        if facts:
            new = applied(self.state, facts)
            self._journal.append(facts)
            self._publish(new)

    # ---- what performers use

    async def record(self, *facts: Fact) -> None:
        """Return when the facts are on disk and in the state."""
        await self.propose(lambda _: facts)

    async def propose(self, facts: Callable[[RunState], Sequence[Fact]]) -> None:
        """Record facts computed from the current state, with no other fact in between. Errors are passed on."""
        proposal = _Proposal(facts)
        self._proposals.append(proposal)
        self._awake.set()
        await proposal.recorded.wait()
        if proposal.error is not None:
            raise proposal.error

    def note(self, *facts: Fact) -> None:
        """Record facts with the next transaction, without waiting for it: for lanes that are being cancelled."""
        self._proposals.append(_Proposal(lambda _: facts))
        self._awake.set()

    async def wait_instructed(self) -> None:
        """Return once a person has given an instruction, whichever subtask it is for."""
        await self._instructed.wait()

    def _wake(self) -> None:
        self._awake.set()

    # ---- the loop

    async def run(self, perform: Perform, started: EngineStarted) -> RunState:
        """Run until the run has ended or is drained.

        It is safe to stop at any time: the journal is sufficient to resume.
        """
        await self._commit([_Proposal(lambda _: [started])])
        lanes = Lanes(perform, self._bugs, on_end=self._wake)
        try:
            async with create_task_group() as tasks:
                while not self._finished(lanes):
                    await checkpoint_if_cancelled()  # a commit is shielded: lanes may have been stopped during it
                    lanes.reconcile(self.state, self._clock.now(), tasks)
                    await self._wait_changed()
                    await self._commit(self._take())
                    if self._is_stuck(lanes):
                        await self._end()
                tasks.cancel_scope.cancel()
        finally:
            if not self.state.ended:
                with move_on_after(LAST_FACTS_S, shield=True):
                    stopped = EngineStopped(at=self._clock.now(), why="drained" if self.state.draining else "stopped")
                    await self._commit([*self._take(), _Proposal(lambda _: [stopped])])
        return self.state

    def _finished(self, lanes: Lanes) -> bool:
        state, now = self.state, self._clock.now()
        if state.ended or not state.draining:
            return state.ended
        if self._stops_at is None:  # by our own clock: the time of the request is another process's
            self._stops_at = now + state.policy.drain_s
        return now >= self._stops_at or not (lanes or lanes.startable(state, now))

    async def _end(self) -> None:
        """End a run that can't continue because of internal errors. Stop the engine if the end can't be recorded."""
        await self._commit([_Proposal(lambda state: [self._bugs.ending(state)])])
        if not self.state.ended:
            raise FleetError(self._bugs.why(self.state))

    def _is_stuck(self, lanes: Lanes) -> bool:
        """Return whether internal errors left no work to do or to wait for, so that the run would never end."""
        state = self.state
        if not self._bugs or state.ended or state.draining or lanes or self._proposals:
            return False
        waits = self._bugs.guard("checked for pending questions and approvals", _waits_for_people, state)
        wake = self._bugs.guard("computed when to continue", next_wake, state, self._clock.now())
        return wake is None and not waits and not lanes.startable(state, self._clock.now())

    def _take(self) -> list[_Proposal]:
        taken, self._proposals = self._proposals, []
        return taken

    async def _wait_changed(self) -> None:
        now = self._clock.now()
        wake = self._bugs.guard("computed when to continue", next_wake, self.state, now)
        with move_on_after(INBOX_S if wake is None else min(INBOX_S, max(0.0, wake - now))):
            await self._awake.wait()
        self._awake = Event()

    async def _commit(self, proposals: list[_Proposal]) -> None:
        """Record proposals, requests and the resulting decisions in one transaction."""
        now, state, new = self._clock.now(), self.state, list[Step]()
        requests = self._bugs.guard("read the inbox", self._requests) or []
        answers = [_Proposal(_answer(request, now)) for _, request in requests]
        for proposal in (*proposals, *answers, _Proposal(lambda _: self._bugs.taken())):
            try:
                proposed = applied(state, proposal.facts(state))
            except Exception as error:  # noqa: BLE001 - it concerns the proposer, and no other facts
                proposal.error = error
            else:
                new += proposed
                state = new[-1][1] if new else state
        for answer in answers:
            if answer.error is not None:
                self._bugs.report("handled a request, which it ignores", answer.error)
        new += self._bugs.decide(state, now)
        if new or requests:
            taken = [id_ for id_, _ in requests]
            with CancelScope(shield=True):  # facts that were taken must be written, even if we are stopped
                await to_thread.run_sync(lambda: self._journal.append([fact for fact, _ in new], taken=taken))
        self._publish(new)
        for proposal in proposals:
            proposal.recorded.set()
        if any(isinstance(fact, InstructionGiven) for fact, _ in new):
            self._instructed.set()
            self._instructed = Event()

    def _publish(self, new: Sequence[Step]) -> None:
        """Take over the states after facts that are on disk now."""
        for fact, after in new:
            before, self.state = self.state, after
            if self._on_fact is not None:
                self._on_fact(before, fact, after)

    def _requests(self) -> list[tuple[int, Request]]:
        return self._journal.requests() if self._journal.changed() else []


def _waits_for_people(state: RunState) -> bool:
    is_reviewed = is_unreviewed(state) and state.policy.reviewing == "human"
    return state.paused or is_reviewed or any(not question.aside for question in state.open_questions())


def _answer(request: Request, now: float) -> Callable[[RunState], Sequence[Fact]]:
    def facts(state: RunState) -> Sequence[Fact]:
        problem = request_problem(state, request)
        if problem is not None:
            return [WarningNoted(at=now, text=f"refused: {problem}")]
        return [fact_of(state, request)]

    return facts


# ---- clock -----------------------------------------------------------------------------------------------------------
# The clock of a run: setting the machine's clock moves none of its waits, limits and budgets.


STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Also counts the seconds while the machine sleeps: a retry due at two o'clock starts then, if the machine is awake."""


def _zero() -> float:
    return time.time() - time.clock_gettime(STEADY)


@dataclass(frozen=True, slots=True)
class SystemClock:
    """The machine's time when this was made, plus the seconds that have passed since then."""

    zero: float = field(default_factory=_zero)

    def now(self) -> float:
        return self.zero + time.clock_gettime(STEADY)


# ---- recovery --------------------------------------------------------------------------------------------------------
# Before a run is resumed, the commits in the journal are compared with those in git.
#
# Independent of git: `Recover` lists the existing commits. This module decides the consequences for subtasks.


UNWRITTEN_S = 600.0  # objects written less than this long before the last fact may not have reached the disk


async def reconcile(state: RunState, recover: Recover, now: float) -> list[f.Fact]:
    """Return facts to record before a run is resumed. A run that never started has no commits yet."""
    if state.epoch == 0:
        return []
    lost = loss(state, await recover(named(state)), now)
    return [lost] if lost is not None else []


def named(state: RunState) -> NamedCommits:
    """The commits that the state of a run names."""
    finished, unfinished = dict[tuple[SubtaskId, int], Sha](), dict[tuple[SubtaskId, int], Sha]()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            if attempt.commit is not None and attempt.worker != PLANNER and not attempt.unchanged:
                (unfinished if attempt.kept else finished)[subtask.id, attempt.number] = attempt.commit
    tested = [each for each in state.subtasks.values() if each.has_own_commit and each.attempts[-1].tested]
    current = [(subtask.id, subtask.current.number) for subtask in state.subtasks.values() if subtask.current]
    was_killed = state.engine_since is not None
    return NamedCommits(
        run=state.run,
        base=state.base,
        tip=state.tip,
        attempts=finished,
        kept=unfinished,
        landed=tuple(subtask.landed for subtask in tested if subtask.landed is not None),
        underway=frozenset(current),
        published=state.published,
        written_since=state.last_at - UNWRITTEN_S if was_killed else None,
    )


def loss(state: RunState, recovered: RecoveredCommits, now: float) -> f.WorkLost | None:
    """Return the work that must be repeated, or None if everything is intact."""
    land_again, do_again = list[SubtaskId](), list[SubtaskId]()
    for subtask in state.subtasks.values():
        last = subtask.last
        if last is None or last.worker == PLANNER or last.unchanged:
            continue
        unlanded = subtask.has_own_commit and recovered.tip != state.tip and subtask.landed not in recovered.below
        if not unlanded and (subtask.landed is not None or subtask.current is None):
            continue  # its commit is intact, or it is closed
        if last.commit in recovered.gone or (not unlanded and _lost_its_base(state, last, recovered)):
            do_again.append(subtask.id)
        elif unlanded:
            land_again.append(subtask.id)
    if not (recovered.gone or land_again or do_again) and recovered.shown:
        return None
    landed = [id_ for batch in state.landing.tested for id_ in batch.landed]  # dependencies come first
    order = {id_: place for place, id_ in enumerate(landed)}
    return f.WorkLost(
        at=now,
        tip=recovered.tip,
        commits=tuple(sorted(recovered.gone)),
        reland=tuple(sorted(land_again, key=lambda id_: order.get(id_, len(order)))),
        redo=tuple(do_again),
        unpublished=not recovered.shown,
    )


def _lost_its_base(state: RunState, attempt: Attempt, recovered: RecoveredCommits) -> bool:
    """Return whether an unfinished attempt started from a tip that has disappeared from the branch."""
    moved_back = recovered.tip != state.tip
    return attempt.commit is None and moved_back and attempt.base not in {state.base, *recovered.below}
