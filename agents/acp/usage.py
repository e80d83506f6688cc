"""What an agent with an access of its own says that it has used: no one else knows, so it is believed within reason."""

from dataclasses import dataclass, field
from math import isfinite

import anyio

from agents.acp.schema import PromptResponse
from agents.conversation.guards import AttemptBudget
from fleet.core.base.usage import Usage
from fleet.core.state.facts import Failure
from fleet.ports.agents import ModelUse

MOST_DOLLARS = 10_000.0  # in one attempt: no agent costs as much, and a sum must stay a sum
MOST_TOKENS = 10_000_000_000
NOTHING = Usage()
STEP, SHARE = 0.01, 0.01
"""A cost is recorded once it has grown by so many dollars and by such a part: an agent may report it without end."""


@dataclass(slots=True)
class Claims:
    """Charges an attempt for what its agent says, and never less than it said before."""

    budget: AttemptBudget
    model: str | None
    agent: str = "acp"
    claimed: float = 0.0
    charged: float = 0.0
    turns: int = 0
    _since: float = field(default_factory=anyio.current_time)

    async def charge(self, dollars: float | None, agent: str, turn: PromptResponse | None) -> Failure | None:
        """Take the cost of the session so far, or the end of a turn. A failure if there is no budget for more."""
        if dollars is not None and isfinite(dollars):
            self.claimed = max(self.claimed, min(dollars, MOST_DOLLARS))
        usage = NOTHING
        if turn is not None:
            self.turns += 1
            usage = _usage(turn)
        self.agent = agent or self.agent
        if usage.total or turn is not None or self._due >= max(STEP, self.claimed * SHARE):
            await self.settle(usage)
        if self.budget.exhausted is not None:
            return Failure(kind="budget", summary=self.budget.exhausted)
        if not self.budget.may_call():
            return Failure(kind="spent", summary="the budget allows no further work")
        return None

    async def settle(self, usage: Usage = NOTHING) -> None:
        """Charge what is due, and these tokens. Their cost is unknown if the agent never says what it costs."""
        if not usage.total and not self._due:
            return
        now = anyio.current_time()
        use = ModelUse(
            self.model or self.agent, usage, self._due if self.claimed else None, now - self._since, self.turns, "works"
        )
        self.charged, self._since = self.claimed, now
        await self.budget.used(use)

    @property
    def _due(self) -> float:
        return self.claimed - self.charged


def _usage(turn: PromptResponse) -> Usage:
    """The tokens of a turn, where the agent counts them."""
    said = turn.usage
    if said is None:
        return NOTHING
    read, write = min(said.cached_read_tokens or 0, MOST_TOKENS), min(said.cached_write_tokens or 0, MOST_TOKENS)
    given, output = min(said.input_tokens, MOST_TOKENS), min(said.output_tokens, MOST_TOKENS)
    return Usage(input=given, output=output, cache_read=read, cache_write=write)
