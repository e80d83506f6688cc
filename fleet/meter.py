"""Between a mind and the journal: each call to a model becomes a fact, and the budget is asked before the next."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fleet.core import facts as f
from fleet.core.decide import over_budget
from fleet.core.state import RunState
from fleet.ports import Clock, ModelUse


class Record(Protocol):
    """What a performer needs of the engine."""

    state: RunState

    async def record(self, *facts: f.Fact) -> None: ...

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None: ...


class EngineMeter:
    """Records each call to a model, and asks the budget before the next."""

    def __init__(
        self,
        engine: Record,
        clock: Clock,
        role: f.Role,
        *,
        call: int | None = None,
        subtask: str | None = None,
        attempt: int | None = None,
    ) -> None:
        self._engine, self._clock, self._role = engine, clock, role
        self._call, self._subtask, self._attempt = call, subtask, attempt

    def may_call(self) -> bool:
        state = self._engine.state
        return not state.cancelled and over_budget(state, self._clock.now()) is None

    async def used(self, use: ModelUse) -> None:
        await self._engine.record(
            f.ModelCalled(
                at=self._clock.now(),
                role=self._role,
                model=use.model,
                usage=use.usage,
                dollars=use.dollars,
                seconds=use.seconds,
                call=self._call,
                subtask=self._subtask,
                attempt=self._attempt,
                turn=use.turn,
                doing=use.doing,
            )
        )
