"""What a run needs of features to be shown, and what it does without them."""

from pathlib import Path

import pytest

from fleet.cli.terminal_data import start_pages
from fleet.runs.run_folder import RunFolder


def test_a_run_without_the_feature_of_pages_says_so_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_pages(RunFolder(tmp_path / "r"), {})
    assert capsys.readouterr().err == "r: the web UI is not part of this installation\n"
