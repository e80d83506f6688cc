"""The servers of `[mcp]` that workers name, as their settings: commands as words, variables with their values."""

import shlex
from collections.abc import Mapping
from importlib.util import find_spec

from agents.tools.mcp_catalog import ServerSettings
from fleet.config.schema import Config, McpServer
from fleet.core.base.ids import did_you_mean
from fleet.errors import UsageError
from worktrees.sandbox.overlay_mount import TAG, this_manager

INSTALL = "pip install 'worktree-fleet[mcp]'"
TIMEOUT_S = 60.0
GIVEN = ("PATH", "HOME", "LANG")


def has_packages() -> bool:
    """Whether the extra `mcp` is installed."""
    return find_spec("mcp") is not None


def servers_of(config: Config, environ: Mapping[str, str]) -> dict[str, ServerSettings]:
    """The servers that some worker names. Raises `UsageError` with the key that is wrong."""
    named: dict[str, str] = {}
    for worker, settings in config.workers.items():
        for name in settings.mcp:
            if name not in config.mcp:
                hint = did_you_mean(name, config.mcp).lstrip("; ") or f"set its command: [mcp.{name}]"
                raise UsageError(f"workers.{worker}.mcp: there is no server {name!r}", hint=hint)
            named.setdefault(name, worker)
    if named and not has_packages():
        worker = next(iter(named.values()))
        raise UsageError(f"workers.{worker}.mcp: servers need more packages", hint=INSTALL)
    return {name: server_settings(name, config.mcp[name], environ) for name in named}


def server_settings(name: str, server: McpServer, environ: Mapping[str, str]) -> ServerSettings:
    """The settings of one server, tagged so that it is ended if this process is killed. Raises `UsageError`."""
    key, wanted = f"mcp.{name}", server.pass_environment or ()
    if missing := ", ".join(each for each in wanted if each not in environ):
        raise UsageError(f"{key}.pass_environment: {missing} is not set", hint="set it, or remove it from the list")
    try:
        words = tuple(shlex.split(server.command))
    except ValueError as error:
        raise UsageError(f"{key}.command: {server.command!r} can't be split into words: {error}") from error
    if not words:
        raise UsageError(f"{key}.command: is empty")
    passed = {each: environ[each] for each in wanted}
    usual = {each: environ[each] for each in GIVEN if each in environ}
    return ServerSettings(
        name=name,
        command=words,
        environment={**usual, **server.environment, **passed, TAG: this_manager().tag("mcp")},
        secrets=tuple(passed.values()),
        tools=server.tools or (),
        timeout_s=server.timeout_s or TIMEOUT_S,
    )
