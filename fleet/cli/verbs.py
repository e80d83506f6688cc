"""The program: its verbs by what they are for, its exit codes, and what a person sees when something is wrong."""

import os
import sys
from typing import Annotated

import typer

from fleet import __version__
from fleet.cli import act, begin, evidence, look, plans, review, tools, watch
from fleet.errors import FleetError

INTERRUPTED = 130
HELP = """Plan an epic, run a hundred workers in worktrees, land what is green.

Your repository is read; nothing in it changes but one branch, fleet/RUN.

\b
Examples:
  fleet doctor                         what this machine has and lacks
  fleet run "Add a health endpoint"    plan it, build it, land it
  fleet run epic.md --workers 100 --budget 20
  fleet watch                          the run on the screen
  fleet status                         how the latest run is doing
  fleet merge RUN --into main          take the result
"""

app = typer.Typer(
    name="fleet",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for module in (begin, plans, watch, look, review, act, evidence, tools):
    module.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fleet {__version__}")
        raise typer.Exit


@app.callback()
def options(  # typer calls `_version` as soon as it sees the option
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Options that stand before a verb."""


def main() -> None:
    """Never a traceback for something a person can mend; a bug keeps its traceback."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # GitPython raises at import without git; we say it in words
    try:
        app(prog_name="fleet")
    except FleetError as error:
        sys.stderr.write(f"fleet: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("fleet: interrupted\n")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # `fleet logs x | head`
        sys.stderr.close()
        sys.exit(0)
