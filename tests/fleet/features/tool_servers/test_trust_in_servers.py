"""A repository names no program that runs as whoever runs the fleet."""

from pathlib import Path

import pytest

from fleet.config.load import load_config
from fleet.errors import UsageError


def test_a_repository_may_not_have_a_server_started(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("[mcp.x]\ncommand = 'evil'\n", encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"fleet\.toml:2: mcp\.x\.command can't be set by a repository: it runs a program as you"
    ):
        load_config(environ={}, user_file=None, repository=tmp_path)
