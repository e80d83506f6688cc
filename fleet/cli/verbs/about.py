"""Verbs about the program itself: help, version, completion."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fleet import __version__
from fleet.cli import common
from fleet.cli.common import AsJson, Force
from fleet.cli.completion import PLACES, VARIABLE, script
from fleet.cli.entry import unknown_verb
from fleet.cli.verb_table import VERBS
from fleet.config import environment
from fleet.core.base.ids import did_you_mean
from fleet.errors import FleetError, UsageError
from fleet.read.program_view import CompletionView, ProgramView, VerbsView, VerbView


def help_(
    context: typer.Context,
    verb: Annotated[
        list[str] | None,
        typer.Argument(metavar="VERB", help="A verb, such as run or plans check.", autocompletion=lambda: [*VERBS]),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the help of a verb.

    With --json, all verbs with what they are about.

    \b
    Examples:
      fleet help run
      fleet help plans check
    """
    if as_json:
        verbs = {name: VerbView(kind.about, kind.changes, kind.summary) for name, kind in VERBS.items()}
        common.show_json(VerbsView(verbs))
        return
    command: Any = context.find_root().command
    path = ["fleet"]
    for name in verb or ():
        if name not in getattr(command, "commands", {}):
            raise unknown_verb(" ".join(path), name, list(getattr(command, "commands", {})))
        command, path = command.commands[name], [*path, name]
    with command.make_context(" ".join(path), [], resilient_parsing=True, **_settings(context)) as shown:
        typer.echo(command.get_help(shown))


def _settings(context: typer.Context) -> dict[str, Any]:
    """What help looks like everywhere."""
    root: Any = context.find_root()
    return {"help_option_names": root.help_option_names, "max_content_width": root.max_content_width}


def version(as_json: AsJson = False) -> None:
    """Print the version.

    \b
    Examples:
      fleet version --json | jq -r .version
    """
    if as_json:
        common.show_json(ProgramView(__version__))
    else:
        typer.echo(f"fleet {__version__}")


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
