"""An editor for tests: the official package's client over a pipe, which keeps and judges every message."""

import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
from acp.connection import StreamDirection, StreamEvent
from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    CancelElicitationResponse,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
)

from tests.protocols.acp_schema import Ledger

Choose = Callable[[Any, list[Any]], str]
"""The option for a permission that is asked; empty dismisses it."""


@dataclass
class Editor:
    """Satisfies the package's `Client`: shows nothing, and decides as the test wants."""

    choose: Choose = lambda _call, _options: ""
    fill: Callable[[str], str] = lambda _message: ""
    """The answer to a form; empty dismisses it."""
    said: list[str] = field(default_factory=list)
    plans: list[list[tuple[str, str]]] = field(default_factory=list)
    """Each plan that was sent: titles and statuses."""
    updates: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    messages: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.said)

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        del session_id
        self.updates.append(update)
        match update.session_update:
            case "agent_message_chunk":
                self.said.append(update.content.text)
            case "plan":
                self.plans.append([(each.content, each.status) for each in update.entries])

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        del session_id
        self.asked.append(tool_call)
        if chosen := self.choose(tool_call, options):
            return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        del mode
        self.forms.append(message)
        if answer := self.fill(message):
            return AcceptElicitationResponse(action="accept", content={"answer": answer})
        return CancelElicitationResponse(action="cancel")

    def on_connect(self, conn: Any) -> None:
        del conn

    def observe(self, event: StreamEvent) -> None:
        self.messages.append(event.message)
        self.ledger.take("client" if event.direction is StreamDirection.INCOMING else "agent", event.message)


@asynccontextmanager
async def edited(
    editor: Editor, *options: str, cwd: Path, env: Mapping[str, str], forms: bool = True
) -> AsyncIterator[Any]:
    """A connection of this editor with `fleet acp`, which ends with the block."""
    command = [sys.executable, "-P", "-m", "fleet", "acp", *options]
    client: Any = editor
    connecting: Any = acp.spawn_agent_process(
        client, *command, env=env, cwd=cwd, observers=[editor.observe], use_unstable_protocol=True
    )
    async with connecting as (agent, _process):
        elicitation = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
        started = await agent.initialize(1, ClientCapabilities(elicitation=elicitation))
        assert started.agent_capabilities.load_session
        yield agent


def words(*texts: str) -> Sequence[Any]:
    return [acp.text_block(text) for text in texts]


__all__ = ["Editor", "RequestError", "edited", "words"]
