"""What the doctor finds about the Agent Client Protocol: whether its package is there."""

from collections.abc import Iterator

from agents.workers.acp_extra import ACP_EXTRA, has_acp
from fleet.core.views.machine.finding import Finding


def acp_findings() -> Iterator[Finding]:
    if has_acp():
        yield Finding("acp", ok=True, says="workers of the kind acp can work here, and `fleet acp` can serve editors")
    else:
        says = "not installed: no workers of the kind acp, and no `fleet acp` for editors"
        yield Finding("acp", ok=True, says=says, fix=ACP_EXTRA)
