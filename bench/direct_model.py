"""The simulated service without HTTP, on a loop with a simulated clock: an hour of waiting takes no time.

Requests are identical to those sent over HTTP, and all rules apply: a request that breaks one is counted and rejected.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from anyio import to_thread

from agents.models.answer import Answer, CallFault, OnBegin, Request, parameters_of
from agents.models.exchange import Exchange, Timeouts
from agents.simulated.admission import Rulebook
from agents.simulated.encoding import Envelope, answer_with, error_body, events, usage_of
from agents.simulated.prompt import RequestError, read_request
from agents.simulated.rules import dollars
from agents.simulated.script import parse_script
from agents.simulated.server import SimulatedModel
from tests.agents.timeless import TimelessLoop

Result = TypeVar("Result")
TIMEOUTS = Timeouts(silence_s=1e9, call_s=1e9)


@dataclass
class DirectModel:
    """Answers requests as the simulated service does."""

    script: dict[str, Any]
    answers_s: float = 20.0
    """Duration of a response."""
    refused: int = 0
    """Requests that broke a rule."""
    dollars: float = 0.0
    """Cost of all responses by the service's prices."""
    _rules: Rulebook = field(init=False)
    _model: SimulatedModel = field(init=False)
    _number: int = 0

    def __post_init__(self) -> None:
        script = parse_script(self.script)
        self._rules, self._model = Rulebook(script, anyio.current_time), SimulatedModel(script)

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        exchange = Exchange(TIMEOUTS, on_begin, lambda text: text)
        with exchange.receiving():
            await self._answer(request, exchange)
        return exchange.result()

    async def _answer(self, request: Request, exchange: Exchange) -> None:
        try:
            admitted = self._rules.admit({**parameters_of(request, frozenset()), "stream": True}, {})
        except RequestError as error:
            self.refused += 1
            exchange.refuse(error.status, error_body(error.status, str(error)), {})
            return
        turn = self._model.turn(read_request(admitted.body))
        answer = answer_with(turn.message, admitted, self._model.script.thinking_tokens)
        self._number += 1
        envelope = Envelope(f"msg_simulated_{self._number}", admitted.rules.id, admitted.prompt)
        self.dollars += dollars(admitted.rules, usage_of(answer, admitted.prompt))
        first, *rest = events(answer, envelope)
        await anyio.sleep(self.answers_s / 2)
        admitted.prompt.begun()
        exchange.feed(first)
        await anyio.sleep(self.answers_s / 2)
        for frame in rest:
            exchange.feed(frame)


async def without_waiting(measure: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of `measure` on a loop with a simulated clock."""

    def run() -> Result:
        return anyio.run(measure, backend_options={"loop_factory": TimelessLoop})

    return await to_thread.run_sync(run)
