"""What the command line prints: colours, and errors as JSON."""

import json
import re
from pathlib import Path

import pytest

from fleet.errors import FleetError, read_error
from fleet.runs.run_folder import RunFolder
from tests.fleet.program import fleet, left_run, on_a_terminal


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return left_run(tmp_path)


@pytest.mark.parametrize("no_color", ["1", pytest.param("yes", marks=pytest.mark.thorough)])
def test_no_colour_is_no_colour_evenon_a_terminal(tmp_path: Path, run: RunFolder, no_color: str) -> None:
    assert run.journal.is_file()
    for arguments in (["status"], ["--help"], ["lnad"]):
        said = on_a_terminal(tmp_path, arguments, NO_COLOR=no_color, TERM="xterm-256color")
        assert said.strip()
        assert "\x1b[" not in said


@pytest.mark.parametrize(
    ("arguments", "variables", "colored"),
    [
        ((), {}, True),
        pytest.param((), {"TERM": "dumb"}, False, marks=pytest.mark.thorough),
        (("--color", "never"), {}, False),
        (("--color=always",), {"NO_COLOR": "1"}, True),
        pytest.param((), {"NO_COLOR": ""}, True, marks=pytest.mark.thorough),
    ],
    ids=["terminal", "dumb", "never", "always", "empty"],
)
def test_a_terminal_has_colours_unless_an_option_says_otherwise(
    tmp_path: Path, run: RunFolder, arguments: tuple[str, ...], variables: dict[str, str], colored: bool
) -> None:
    terminal = {"TERM": "xterm-256color", **variables}
    said = on_a_terminal(tmp_path, ["status", run.run, *arguments], **terminal)
    assert run.run in said
    assert ("\x1b[" in said) is colored


def test_a_pipe_has_colours_only_if_they_are_wanted(tmp_path: Path, run: RunFolder) -> None:
    plain = fleet("status", run.run, cwd=tmp_path, TERM="xterm-256color").stdout
    colored = fleet("status", run.run, "--color", "always", cwd=tmp_path).stdout
    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain != colored
    assert fleet("status", "--color", "alwyas", cwd=tmp_path).stderr.endswith("hint: did you mean 'always'?\n")


def test_the_hint_of_an_error_is_on_a_line_below_it(tmp_path: Path) -> None:
    lines = ["error: unknown verb 'stauts' for `fleet`", "hint: did you mean 'status'?"]
    assert fleet("stauts", cwd=tmp_path).stderr.splitlines() == lines


@pytest.mark.parametrize("hint", ["", "run `fleet doctor`"])
def test_an_error_of_another_process_is_read_back_with_its_hint(hint: str) -> None:
    read = read_error(FleetError("two\nlines", hint=hint).text)
    assert (read.message, read.hint) == ("two\nlines", hint)


def test_every_error_is_json_with_json(tmp_path: Path, run: RunFolder) -> None:
    for code, exit_code, arguments in (
        ("usage", 2, ["status", "--jsn", "--json"]),
        ("usage", 2, ["stauts", "--json"]),
        ("usage", 2, ["cancel", "--json"]),
        ("usage", 2, ["retry", "--json"]),
        ("usage", 2, ["merge", "shop-1", "--json"]),
        ("environment", 3, ["diff", "docs", "--run", "shop-1", "--json"]),
    ):
        done = fleet(*arguments, cwd=tmp_path)
        said = json.loads(done.stdout)
        assert (done.returncode, said["error"]["exit_code"], said["error"]["code"]) == (exit_code, exit_code, code)
        assert said["schema_version"] == 1
        assert said["error"].keys() == {"code", "message", "hint", "exit_code"}
        assert said["error"]["message"] in done.stderr
        assert said["error"]["hint"] in done.stderr
    assert run.journal.is_file()


_BUG = """
import sys
from fleet.cli.entry import run_program
from fleet.cli.verbs import look
from fleet.errors import FleetError
def fail(*_, **__):
    raise {bug}
look._read = fail
sys.argv = ["fleet", *sys.argv[1:]]
run_program()
"""


@pytest.mark.parametrize(
    ("bug", "code", "exit_code"),
    [("ZeroDivisionError('by zero')", "internal", 70), ("KeyboardInterrupt", "interrupted", 130)],
)
def test_a_bug_and_an_interruption_are_reported_with_their_codes(
    tmp_path: Path, run: RunFolder, bug: str, code: str, exit_code: int
) -> None:
    done = fleet("status", run.run, "--json", cwd=tmp_path, program=("-c", _BUG.format(bug=bug)))
    assert done.returncode == exit_code
    assert json.loads(done.stdout)["error"]["code"] == code
    assert ("Traceback" in done.stderr) is (code == "internal")
