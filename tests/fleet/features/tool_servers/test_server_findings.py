"""What the doctor finds about servers of the Model Context Protocol."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.features.tool_servers.configured import mcp_findings
from fleet.features.tool_servers.settings import ServerSection
from fleet.read.base_view import Finding

SERVER = Path(__file__).parents[3] / "agents" / "mcp_server.py"


async def look_at_servers(way: str, worker: str = "coder", **server: Any) -> list[Finding]:
    """What is found about one server that behaves like this."""
    server = {"command": f"{sys.executable} -S {SERVER} {way}", **server}
    config = default_config()
    workers = {**config.workers, worker: config.workers["coder"].model_copy(update={"mcp": ("it",)})}
    config = config.model_copy(update={"mcp": {"it": ServerSection(**server)}, "workers": workers})
    return [finding async for finding in mcp_findings(Wiring(config, {"PATH": os.environ["PATH"]}))]


@pytest.mark.parametrize(
    ("way", "says"),
    [("good", "it: 2 tools, declared, about "), ("many", "it: 60 tools, searched for, about ")],
)
async def test_a_server_is_shown_with_what_its_tools_cost(way: str, says: str) -> None:
    (finding,) = await look_at_servers(way)
    assert (finding.ok, finding.fix) == (True, "")
    assert finding.says.startswith(says)
    assert finding.says.endswith(" tokens in each prompt, used by coder")


async def test_a_server_that_can_not_be_used_says_why() -> None:
    (ended,) = await look_at_servers("complains")
    assert (ended.ok, ended.says) == (False, "it: no usable tools: it exited; stderr: no licence:")
    (unset,) = await look_at_servers("good", pass_environment=["NO_SUCH_TOKEN"])
    assert "mcp.it.pass_environment: NO_SUCH_TOKEN is not set; set it" in unset.fix
    (left_out,) = await look_at_servers("invalid")
    assert left_out.fix.startswith(
        "left out: 'choice': its schema has oneOf, anyOf, allOf or not at the top level; 'remote':"
    )


async def test_what_is_not_configured_is_no_finding() -> None:
    assert [finding async for finding in mcp_findings(Wiring(default_config(), {}))] == []
