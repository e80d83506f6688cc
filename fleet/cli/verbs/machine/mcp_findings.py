"""What the doctor finds about MCP: whether its packages are there."""

from collections.abc import Iterator
from importlib.util import find_spec

from fleet.core.views.machine.finding import Finding

INSTALL = "pip install 'worktree-fleet[mcp]'"


def mcp_findings() -> Iterator[Finding]:
    if has_packages():
        yield Finding("mcp", ok=True, says="`fleet mcp` can serve other agents")
    else:
        yield Finding("mcp", ok=True, says="not installed: `fleet mcp` can't serve other agents", fix=INSTALL)


def has_packages() -> bool:
    return find_spec("mcp") is not None
