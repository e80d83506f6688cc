"""The command line: the program, its verbs, and the screens of a run. May import everything; nothing else imports it.

The help and the version are literal text; the module of a verb is imported when the verb is called.
"""

import sys

from fleet import __version__
from fleet.cli.root_help import root_help
from fleet.own_packages import put_first

put_first()


def _wants_bold() -> bool:
    if not sys.stdout.isatty():
        return False
    from fleet.cli import color  # noqa: PLC0415 - only for a terminal

    return color.is_wanted()


def main() -> None:
    """Run the program."""
    match sys.argv[1:]:
        case ["-h" | "--help" | "help"]:
            sys.stdout.write(root_help(bold=_wants_bold()))
        case ["--version"]:
            sys.stdout.write(f"fleet {__version__}\n")
        case ["--complete", *arguments]:
            from fleet.cli.completion import print_completions  # noqa: PLC0415 - only for shells

            print_completions(arguments)
        case _:
            from fleet.cli.entry import run_program  # noqa: PLC0415 - Typer costs five times an empty Python

            run_program()
