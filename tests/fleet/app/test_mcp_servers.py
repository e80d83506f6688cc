"""Servers as they are configured: what is wrong is said with its key, before anything is started."""

from typing import Any

import pytest

from fleet.app import mcp_servers
from fleet.app.mcp_servers import servers_of
from fleet.config.load import load_config
from fleet.config.schema import Config
from fleet.errors import UsageError

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
    assert it.environment == {"PATH": "/usr/bin", "HOME": "/home/you", "URL": "u", "TOKEN": ENVIRON["TOKEN"]}
    assert ENVIRON["TOKEN"] not in repr(it)


@pytest.mark.parametrize(
    ("named", "server", "why"),
    [
        (["its"], {"command": "x"}, r"workers\.coder\.mcp: there is no server 'its'; did you mean 'it'"),
        (
            ["other"],
            {"command": "x"},
            r"workers\.coder\.mcp: there is no server 'other'; set its command: \[mcp\.other\]",
        ),
        (["it"], {"command": "'x"}, r"mcp\.it\.command: \"'x\" can't be split into words"),
        (["it"], {"command": " "}, r"mcp\.it\.command: is empty"),
        (["it"], {"command": "x", "pass_environment": ["NONE"]}, r"mcp\.it\.pass_environment: NONE is not set; set it"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(named: list[str], server: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        servers_of(config(named, it=server), ENVIRON)


def test_without_the_packages_the_command_that_brings_them_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "has_packages", lambda: False)
    assert servers_of(config([], it={"command": "x"}), ENVIRON) == {}
    with pytest.raises(UsageError, match=r"servers need more packages; pip install 'worktree-fleet\[mcp\]'"):
        servers_of(config(["it"], it={"command": "x"}), ENVIRON)
