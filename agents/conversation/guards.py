"""Limits that end a conversation: turns, time, tokens, dollars, consecutive mistakes, loops."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from agents.models.answer import ToolCall
from fleet.core.base.usage import Cost, Spend
from fleet.core.facts.facts import Failure
from fleet.ports.agents import Meter, ModelUse, ServiceGate

Mistake = Literal["no_tool", "bad_input", "cut_off", "paused", "unknown_stop", "too_long", "refused"]

ALLOWED: dict[Mistake, int] = {
    "no_tool": 1,
    "bad_input": 2,
    "cut_off": 2,
    "paused": 3,
    "unknown_stop": 1,
    "too_long": 2,
    "refused": 2,
}
"""How many consecutive mistakes are answered with a message before the conversation ends."""
CYCLE = 4  # the most actions that form a loop


@dataclass(frozen=True, slots=True)
class Guards:
    """The limits of one conversation."""

    turns: int
    seconds: float
    repeats: int = 5
    """The same action, or the same cycle of actions, repeated this often is a loop."""
    closing: int = 3
    """The number of turns before the limit at which the model is asked to finish."""


@dataclass(slots=True)
class Conduct:
    """The consecutive mistakes and the latest actions of one conversation."""

    repeats: int
    _in_a_row: Counter[Mistake] = field(default_factory=Counter)
    _actions: list[str] = field(default_factory=list)
    """As many as the longest loop has."""

    def is_too_many(self, mistake: Mistake) -> bool:
        """Count a mistake, and return whether there were too many in a row."""
        self._in_a_row[mistake] += 1
        return self._in_a_row[mistake] > ALLOWED[mistake]

    def forgive(self, *mistakes: Mistake) -> None:
        for mistake in mistakes:
            del self._in_a_row[mistake]

    def loop(self, calls: tuple[ToolCall, ...]) -> list[str]:
        """Return the actions of the loop that these calls complete, or an empty list."""
        self._actions.append("\n".join(call.action for call in calls))
        del self._actions[: -self.repeats * CYCLE]
        for length in range(1, CYCLE + 1):
            latest = self._actions[-length * self.repeats :]
            if len(latest) == length * self.repeats and latest == latest[:length] * self.repeats:
                return latest[:length]
        return []


@dataclass(slots=True)
class AttemptBudget:
    """The run's meter with the limits of one attempt. Running calls are not interrupted."""

    meter: Meter
    tokens: int | None = None
    dollars: float | None = None
    spent: Spend = Spend()

    @property
    def exhausted(self) -> str | None:
        """Return a message about the limit that this attempt has reached, or None."""
        if self.tokens is not None and self.spent.usage.total >= self.tokens:
            return f"the attempt used {self.spent.usage.total} tokens (limit of its worker: {self.tokens})"
        if self.dollars is not None and self.spent.priced_dollars >= self.dollars:
            return f"the attempt cost ${self.spent.priced_dollars:.4f} (limit of its worker: ${self.dollars:g})"
        return None

    @property
    def service(self) -> ServiceGate:
        return self.meter.service

    @property
    def called(self) -> bool:
        return self.meter.called

    def may_call(self) -> bool:
        return self.exhausted is None and self.meter.may_call()

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        if self.exhausted is not None:
            return Failure(kind="budget", summary=self.exhausted)
        return await self.meter.reserve(model, cost)

    async def widen(self, most: Cost) -> float:
        return await self.meter.widen(most)

    def release(self, *, lost: bool = False) -> None:
        self.meter.release(lost=lost)

    async def used(self, use: ModelUse) -> None:
        self.spent = self.spent.plus(use.usage, use.dollars)
        await self.meter.used(use)
