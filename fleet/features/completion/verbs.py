"""The verb that prints or installs the completion for a shell."""

from pathlib import Path
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined] # Typer exports it to no type checker

from fleet.cli import common
from fleet.cli.common import AsJson, Force
from fleet.config import environment
from fleet.core.base.ids import did_you_mean
from fleet.errors import FleetError, UsageError
from fleet.read.base_view import CompletionView

VARIABLE = "_FLEET_COMPLETE"
"""With this variable, Typer completes a command line instead of running it."""
PLACES = {
    "bash": ("~/.local/share/bash-completion/completions/fleet", "open a new shell to use it"),
    "zsh": ("~/.zfunc/_fleet", "add to ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ("~/.config/fish/completions/fleet.fish", "open a new shell to use it"),
}
"""The shells: where `--install` writes the script of each, and what else is needed."""


def script(shell: str) -> str:
    """What a shell loads for completion."""
    return f"{get_completion_script(prog_name='fleet', complete_var=VARIABLE, shell=shell)}\n"


def completion(
    shell: Annotated[
        str | None,
        typer.Argument(
            metavar="SHELL", help="bash, zsh or fish; default: the one you use.", autocompletion=lambda: [*PLACES]
        ),
    ] = None,
    install: Annotated[bool, typer.Option("--install", help="Write it to the place where the shell looks.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file: a script.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print or install the completion for a shell.

    It completes verbs, options, and the names of runs, subtasks, questions and plans.

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
        typer.echo(f"wrote {path}; {then}")


def _shell(given: str | None) -> str:
    """The shell that is named, or the person's own."""
    name = given or Path(environment.shell()[0]).name
    if name not in PLACES:
        near = did_you_mean(name, PLACES)
        raise UsageError(f"there is no completion for {name}{near}", hint=f"name one of {', '.join(PLACES)}")
    return name


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FleetError(f"{path} can't be made: {error.strerror}", hint="-o FILE writes it elsewhere") from error


def _is_ours(path: Path) -> bool:
    """Whether a file is a script that we wrote before."""
    try:
        return VARIABLE in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
