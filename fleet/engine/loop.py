"""The loop: what was reported is recorded, what follows is decided with it, and what should go on is kept going.

Knows neither git nor models, only the core, a journal and a performer of commands.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from anyio import CancelScope, Event, create_task_group, move_on_after, to_thread
from anyio.abc import TaskGroup

from fleet.core.commands import Command, TestBatch, begins, effects
from fleet.core.decide import decide, next_wake
from fleet.core.evolve import evolve
from fleet.core.facts import EngineStarted, EngineStopped, Fact, WarningNoted
from fleet.core.requests import Request, accept
from fleet.core.state import RunState
from fleet.ports import Clock

INBOX_S = 0.2  # how long a request may wait to be seen
LAST_WORDS_S = 5.0
Answer = TypeVar("Answer")


class Memory(Protocol):
    """What the engine needs of a journal."""

    def append(self, facts: Sequence[Fact], *, taken: Sequence[int] = ()) -> None: ...

    def changed(self) -> bool: ...

    def requests(self) -> list[tuple[int, Request]]: ...


@dataclass(slots=True)
class _Proposal:
    """Facts that depend on the state at the moment they are recorded."""

    facts: Callable[[RunState], Sequence[Fact]]
    recorded: Event = field(default_factory=Event)


class Engine:
    """Runs one run, from a state that was replayed from its journal."""

    def __init__(self, state: RunState, memory: Memory, clock: Clock) -> None:
        self.state = state
        self._memory = memory
        self._clock = clock
        self._proposals: list[_Proposal] = []
        self._lanes: dict[Command, CancelScope] = {}
        self._awake = Event()
        self._stops_at: float | None = None
        """When what still runs is stopped, once the run is drained."""

    # ---- what performers use

    async def record(self, *facts: Fact) -> None:
        """Returns when the facts are on disk and in the state."""
        await self.propose(lambda _: facts)

    async def propose(self, facts: Callable[[RunState], Sequence[Fact]]) -> None:
        """Record what `facts` makes of the state, with nothing in between."""
        proposal = _Proposal(facts)
        self._proposals.append(proposal)
        self._awake.set()
        await proposal.recorded.wait()

    def note(self, *facts: Fact) -> None:
        """Record facts with what comes next, without waiting for it: for last words of what is being stopped."""
        self._proposals.append(_Proposal(lambda _: facts))
        self._awake.set()

    # ---- the loop

    async def run(self, perform: Callable[[Command], Awaitable[None]], started: EngineStarted) -> RunState:
        """Until the run has ended, or is drained. Leaving early is safe anywhere: the journal knows how to go on."""
        await self._commit([_Proposal(lambda _: [started])])
        try:
            async with create_task_group() as lanes:
                while not self._finished():
                    self._reconcile(lanes, perform)
                    await self._wait_changed()
                    await self._commit(self._taken())
                lanes.cancel_scope.cancel()
        finally:
            if not self.state.ended:
                with move_on_after(LAST_WORDS_S, shield=True):
                    stopped = EngineStopped(at=self._clock.now(), why="drained" if self.state.draining else "stopped")
                    await self._commit([*self._taken(), _Proposal(lambda _: [stopped])])
        return self.state

    def _finished(self) -> bool:
        state, now = self.state, self._clock.now()
        if state.ended or not state.draining:
            return state.ended
        if self._stops_at is None:  # by our own clock: the request tells the time of whoever asked
            self._stops_at = now + state.policy.drain_s
        more = any(begins(state, command) for command in effects(state, now))
        return now >= self._stops_at or not (self._lanes or more)

    def _taken(self) -> list[_Proposal]:
        taken, self._proposals = self._proposals, []
        return taken

    async def _wait_changed(self) -> None:
        now = self._clock.now()
        wake = next_wake(self.state, now)
        with move_on_after(min(INBOX_S, INBOX_S if wake is None else max(0.0, wake - now))):
            await self._awake.wait()
        self._awake = Event()

    async def _commit(self, proposals: list[_Proposal]) -> None:
        """One transaction: all that was proposed and requested, and all that is decided because of it."""
        now, state, new = self._clock.now(), self.state, list[Fact]()
        requests = self._memory.requests() if self._memory.changed() else []
        waiting = [*(proposal.facts for proposal in proposals), *(_answer(request, now) for _, request in requests)]
        for proposed in waiting:
            for fact in proposed(state):
                state = evolve(state, fact)
                new.append(fact)
        while decisions := decide(state, now):
            for fact in decisions:
                state = evolve(state, fact)
                new.append(fact)
        if new or requests:
            taken = [id_ for id_, _ in requests]
            with CancelScope(shield=True):  # what was taken is written, whoever stops us meanwhile
                await to_thread.run_sync(lambda: self._memory.append(new, taken=taken))
        self.state = state
        for proposal in proposals:
            proposal.recorded.set()

    def _reconcile(self, lanes: TaskGroup, perform: Callable[[Command], Awaitable[None]]) -> None:
        wanted = effects(self.state, self._clock.now())
        for command in wanted:
            if command not in self._lanes and begins(self.state, command):
                self._lanes[command] = CancelScope()
                lanes.start_soon(self._lane, command, perform, name=str(command))
        for command in self._lanes.keys() - set(wanted):
            if (
                self.state.cancelled or self.state.undoing is not None or isinstance(command, TestBatch)
            ):  # another probe has answered it
                self._lanes[command].cancel()

    async def _lane(self, command: Command, perform: Callable[[Command], Awaitable[None]]) -> None:
        try:
            with self._lanes[command]:
                await perform(command)
        finally:
            del self._lanes[command]
            self._awake.set()


def _answer(request: Request, now: float) -> Callable[[RunState], Sequence[Fact]]:
    def facts(state: RunState) -> Sequence[Fact]:
        problem = accept(state, request)
        return [request] if problem is None else [WarningNoted(at=now, text=f"refused: {problem}")]

    return facts
