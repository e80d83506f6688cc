"""What workers that run a program share: where it is, one run of it in the box, its output without secrets."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from agents.base.text import redacted, well_formed
from agents.conversation.settings import WorkerSettings
from fleet.core.state.facts import Failure
from fleet.ports.agents import CommandResult, Dialogue, Workspace, WorkspaceError

EVIDENCE = 4_000  # characters of an output that go into a failure
MODEL_VARIABLES = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Where an agent may look for another model than the one it is given."""


def program_name(settings: WorkerSettings) -> str:
    """The program of a claude-code worker."""
    return settings.command[0] if settings.command else "claude"


def program_of(settings: WorkerSettings) -> Path | None:
    """The program on this machine, links followed; None if it is not installed."""
    path = shutil.which(program_name(settings))
    return Path(path).resolve() if path else None


async def run_program(
    script: str,
    settings: WorkerSettings,
    workspace: Workspace,
    *,
    read_only: tuple[str, ...],
    environment: Mapping[str, str],
    dialogue: Dialogue | None = None,
) -> CommandResult | Failure:
    """Run a script in the worker's box, which shows `read_only` and sets `environment` beyond the usual."""
    extras = settings.extras
    extras = replace(
        extras,
        read_only=(*extras.read_only, *read_only),
        environment={**extras.environment, **environment},
    )
    try:
        result = await workspace.run(script, timeout_s=settings.time_s, extras=extras, dialogue=dialogue)
    except WorkspaceError as error:
        return Failure(kind="tool", summary=str(error))
    return replace(result, output=well_formed(redacted(result.output, settings.secrets)))
