"""The socket of an agent that hangs up at a bad moment."""

import asyncio
from unittest.mock import MagicMock

import pytest
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request

from agents.workers.relay import AgentGoneError
from agents.workers.relay_server import HttpReply

pytestmark = pytest.mark.anyio


async def test_an_agent_that_is_gone_before_its_answer_begins_is_known_to_be_gone() -> None:
    closed = StreamWriter(MagicMock(transport=None), asyncio.get_running_loop())
    reply = HttpReply(make_mocked_request("POST", "/v1/messages", writer=closed))
    with pytest.raises(AgentGoneError):
        await reply.begin(200, {"content-length": "0"})
