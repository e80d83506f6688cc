"""Who may say who is told of a run."""

from pathlib import Path

import pytest

from fleet.config.load import REPOSITORY_FILE, load_config
from fleet.errors import UsageError


@pytest.mark.parametrize(
    "text", ["[notify.channels.x]\nkind = 'command'\ncommand = 'sh -c id'", "[notify]\nlink = 'https://evil.example'"]
)
def test_a_repository_says_nothing_about_it(tmp_path: Path, text: str) -> None:
    (tmp_path / REPOSITORY_FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="decides who is notified about your runs"):
        load_config(environ={"HOME": str(tmp_path)}, user_file=None, repository=tmp_path)
    load_config(environ={"HOME": str(tmp_path)}, user_file=None, config_file=tmp_path / REPOSITORY_FILE)
