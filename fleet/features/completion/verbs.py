"""The verb that prints or installs shell completion."""

from pathlib import Path
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # Typer exports it to no type checker

from fleet.cli import common
from fleet.cli.common import AsJson, Force
from fleet.config import environment
from fleet.core.base.ids import suggestion
from fleet.errors import FleetError, UsageError
from fleet.read.base_view import CompletionView

VARIABLE = "_FLEET_COMPLETE"
"""The variable that makes Typer complete a command line instead of running it."""
PLACES = {
    "bash": ("~/.local/share/bash-completion/completions/fleet", "To use it, open a new shell."),
    "zsh": ("~/.zfunc/_fleet", "Add to ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ("~/.config/fish/completions/fleet.fish", "To use it, open a new shell."),
}
"""The supported shells, with the path for `--install` and the next step."""


def script(shell: str) -> str:
    """Return the completion script of a shell."""
    return f"{get_completion_script(prog_name='fleet', complete_var=VARIABLE, shell=shell)}\n"


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(
            metavar="SHELL", help="bash, zsh or fish (default: your shell).", autocompletion=lambda: [*PLACES]
        ),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Install the script where the shell finds completions.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file: the script.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print or install shell completion.

    Completes verbs, options, and the names of runs, subtasks, questions and plans.

    \b
    Examples:
      fleet completion --install
      fleet completion zsh > ~/.zfunc/_fleet
    """
    name = _shell(shell)
    place, then = PLACES[name]
    path = Path(place).expanduser() if install and output is None else output
    if path is None:
        if as_json:
            common.show_json(CompletionView(name, script=script(name), file=""))
        else:
            typer.echo(script(name), nl=False)
        return
    if install:
        _make_folder(path.parent)
    common.check_output(path, force=force or (install and _is_ours(path)))
    common.write_file(path, script(name))
    if as_json:
        common.show_json(CompletionView(name, script="", file=str(path)))
    else:
        typer.echo(f"wrote {path}\n{then}")


def _shell(given: str | None) -> str:
    """Return the named shell, or the user's."""
    name = given or Path(environment.shell()[0]).name
    if name not in PLACES:
        near = suggestion(name, PLACES)
        raise UsageError(f"no completion for the shell {name!r}", hint=near or f"use one of {', '.join(PLACES)}")
    return name


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FleetError(
            f"can't create {path}: {error.strerror}", hint="use -o FILE to write the script elsewhere"
        ) from error


def _is_ours(path: Path) -> bool:
    """Whether a file is a script that fleet wrote before."""
    try:
        return VARIABLE in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
