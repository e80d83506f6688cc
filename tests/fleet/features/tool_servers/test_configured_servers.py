"""Servers as they are configured: what is wrong is said with its key, before anything is started."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from fleet.config.load import load_config
from fleet.config.schema import Config
from fleet.errors import UsageError
from fleet.features.tool_servers.configured import servers_of
from worktrees.sandbox.overlay_mount import TAG, end_orphans, this_manager

ROOT = Path(__file__).parents[4]
PATIENCE_S = 300.0
MANAGER = """
import anyio, os, sys
from fleet.features.tool_servers.mcp_connection import open_line
from fleet.features.tool_servers.configured import server_settings
from fleet.features.tool_servers.settings import ServerSection

async def manage():
    settings = server_settings("it", ServerSection(command=sys.argv[1]), os.environ)
    async with open_line(settings.command, settings.environment):
        await anyio.sleep_forever()

anyio.run(manage)
"""
ENVIRON = {"PATH": "/usr/bin", "HOME": "/home/you", "TOKEN": "token-0123456789", "OTHER": "x"}


def config(named: list[str], **servers: dict[str, Any]) -> Config:
    flags = {"workers.coder": {"mcp": named}, **{f"mcp.{name}": server for name, server in servers.items()}}
    return load_config(environ={}, user_file=None, flags=flags).config


def test_a_server_that_a_worker_names_gets_what_it_is_to_get_and_no_more() -> None:
    server = {"command": "npx -y 'a b'", "environment": {"URL": "u"}, "pass_environment": ["TOKEN"], "tools": ["get_*"]}
    found = servers_of(config(["it"], it=server, unused={"command": "x"}), ENVIRON)
    assert found.keys() == {"it"}
    it = found["it"]
    assert (it.command, it.tools, it.timeout_s, it.secrets) == (
        ("npx", "-y", "a b"),
        ("get_*",),
        60.0,
        (ENVIRON["TOKEN"],),
    )
    given = {"PATH": "/usr/bin", "HOME": "/home/you", "URL": "u", "TOKEN": ENVIRON["TOKEN"]}
    assert it.environment == {**given, TAG: this_manager().tag("mcp")}
    assert ENVIRON["TOKEN"] not in repr(it)


@pytest.mark.parametrize(
    ("named", "server", "why"),
    [
        (["its"], {"command": "x"}, r"workers\.coder\.mcp: no server 'its' is configured; did you mean 'it'"),
        (
            ["other"],
            {"command": "x"},
            r"workers\.coder\.mcp: no server 'other' is configured; set `command` in \[mcp\.other\]",
        ),
        (["it"], {"command": "'x"}, r"mcp\.it\.command: invalid quoting in \"'x\""),
        (["it"], {"command": " "}, r"mcp\.it\.command is empty"),
        (["it"], {"command": "x", "pass_environment": ["NONE"]}, r"mcp\.it\.pass_environment: NONE is not set; set it"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(named: list[str], server: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        servers_of(config(named, it=server), ENVIRON)


def test_without_the_packages_the_command_that_brings_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert servers_of(config([], it={"command": "x"}), ENVIRON) == {}
    with pytest.raises(
        UsageError, match=r"servers require packages that are not installed; pip install 'worktree-fleet\[mcp\]'"
    ):
        servers_of(config(["it"], it={"command": "x"}), ENVIRON)


def test_a_server_that_ignores_the_end_of_its_input_is_ended_after_its_manager_was_killed(tmp_path: Path) -> None:
    written, named = tmp_path / "written", tmp_path / "pids"
    script = f"sleep 97541 & echo $$ $! >{written}; mv {written} {named}; exec sleep 97541"
    command = shlex.join(["sh", "-c", script])
    with subprocess.Popen([sys.executable, "-c", MANAGER, command], cwd=ROOT) as manager:
        try:
            wait_until(named.exists)
        finally:
            manager.kill()
    pids = [int(pid) for pid in named.read_text(encoding="utf-8").split()]
    try:
        end_orphans()
        wait_until(lambda: not any(map(runs, pids)))
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def runs(pid: int) -> bool:
    """Whether it is there, and no zombie that waits for a parent to look."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(done: Callable[[], bool]) -> None:
    until = monotonic() + PATIENCE_S
    while not done() and monotonic() < until:
        sleep(0.01)
    assert done()
