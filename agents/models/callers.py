"""What a conversation needs of those who make its calls, whether they are in this process or not."""

from typing import Protocol

from agents.base.transcripts import Transcript
from agents.models.answer import Answer, Request
from agents.models.calls import Clock
from agents.models.cost.lifetimes import Lifetimes
from agents.models.cost.prices import ModelLimits
from fleet.core.state.facts import Failure
from fleet.ports.agents import Meter


class Calls(Protocol):
    """Makes the calls of conversations. `Caller` makes them itself."""

    times: Lifetimes

    def available(self, model: str) -> str:
        """The model to begin a conversation with: `model`, or its fallback if the service no longer has it."""
        ...

    async def limits(self, model: str) -> ModelLimits: ...

    def touches(self, model: str) -> int:
        """How often the prompt of a conversation may be read, only to keep it in the cache."""
        ...

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """One answer. Raises `DrainingError` if the call would have to wait and the run is draining."""
        ...

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        """Read the prompt from the cache, so that it is kept for longer. Whether that was possible."""
        ...
