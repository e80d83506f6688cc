"""Verbs about the program itself: help, version."""

from typing import Annotated, Any

import typer

from fleet import __version__
from fleet.cli import common
from fleet.cli.common import AsJson
from fleet.cli.entry import unknown_verb
from fleet.cli.verb_table import VERBS
from fleet.read.base_view import ProgramView, VerbsView, VerbView


def help_(
    context: typer.Context,
    verb: Annotated[
        list[str] | None,
        typer.Argument(metavar="VERB", help="A verb, such as run or plans check.", autocompletion=lambda: [*VERBS]),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the help of a verb.

    With --json, lists all verbs and their summaries.

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
    """The settings of the root command for help."""
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
