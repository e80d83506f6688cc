"""The start of a command: heavy libraries are loaded only where they are needed."""

import subprocess
import sys

import pytest
import typer.main

from fleet.cli.entry import app
from fleet.cli.verb_table import VERBS

HEAVY = ("anthropic", "textual", "git", "prometheus_client", "aiohttp")
EXTRAS = ("boto3", "botocore", "google", "mcp", "ray")
"""What optional dependencies import. Without a reason to load any, a start takes as long with them as without."""

_SCRIPT = """
import sys
sys.argv = ["fleet", *sys.argv[1:]]
from fleet.cli.entry import run_program
code = 0
try:
    run_program()
except SystemExit as end:
    code = end.code or 0
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
sys.exit(code)
"""


def loaded_by(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("argument", ["-h", "--help", "--version"])
def test_the_programs_own_help_loads_typer_and_no_verb(argument: str) -> None:
    assert loaded_by(argument) & {*HEAVY, *EXTRAS, "pydantic", "anyio"} == set()


def test_the_help_of_a_verb_loads_nothing_heavy() -> None:
    loaded = loaded_by("run", "--help")
    assert "typer" in loaded
    assert loaded & {*HEAVY, *EXTRAS} == set()


def test_the_summary_of_each_verb_is_the_first_line_of_its_help() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined] # a group
    assert {name: command.help.splitlines()[0] for name, command in commands.items()} == {
        name: verb.summary for name, verb in VERBS.items()
    }
