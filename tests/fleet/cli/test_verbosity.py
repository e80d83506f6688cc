"""-q and -v: what a verb says beside its result."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.cli import verbosity
from fleet.cli.engine import open_screen
from fleet.runs.run_folder import RunFolder
from tests.fleet.program import fleet, left_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return left_run(tmp_path)


def test_a_quiet_verb_prints_its_result_and_no_notes(run: RunFolder, tmp_path: Path) -> None:
    said, quiet = fleet("status", cwd=tmp_path), fleet("status", "-q", cwd=tmp_path)
    assert "is not in a git repository. Using" in said.stderr
    assert (quiet.returncode, quiet.stderr) == (0, "")
    assert quiet.stdout.splitlines()[0] == said.stdout.splitlines()[0]
    before = fleet("--quiet", "status", cwd=tmp_path)
    assert (before.stdout.splitlines()[0], before.stderr) == (quiet.stdout.splitlines()[0], "")
    assert run.run in quiet.stdout


def test_an_error_is_printed_also_by_a_quiet_verb_and_a_verbose_one_says_where_it_came_from(tmp_path: Path) -> None:
    quiet = fleet("status", "none", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stderr.count("\n")) == (2, 2)
    verbose = fleet("status", "none", "--verbose", cwd=tmp_path)
    assert "Traceback" in verbose.stderr
    assert "find_run" in verbose.stderr
    assert verbose.stderr.splitlines()[-2:] == quiet.stderr.splitlines()


@pytest.fixture
def _quiet() -> Iterator[None]:
    verbosity.choose("quiet")
    yield
    verbosity.choose("normal")


@pytest.mark.usefixtures("_quiet")
def test_a_quiet_run_leaves_what_a_person_decides_by(capsys: pytest.CaptureFixture[str]) -> None:
    with open_screen(live=True, as_json=False) as screen:
        screen.event("an agent began")
        screen.decision("the plan waits for approval")
    assert capsys.readouterr().out == "the plan waits for approval\n"
    with open_screen(live=False, as_json=True) as screen:
        screen.event("an agent began")
        screen.decision("the plan waits for approval")
    assert capsys.readouterr() == ("", "the plan waits for approval\n")


def test_log_messages_are_shown_only_by_a_verbose_program(tmp_path: Path) -> None:
    script = """
import logging, sys
from fleet.cli import verbosity
verbosity.choose(sys.argv[1])
logging.getLogger("fleet.x").info("one message")
logging.getLogger("fleet.x").debug("too much")
"""
    verbose, quiet = (fleet(mode, cwd=tmp_path, program=("-c", script)) for mode in ("verbose", "quiet"))
    assert verbose.stderr.endswith("INFO fleet.x: one message\n")
    assert quiet.stderr == ""
