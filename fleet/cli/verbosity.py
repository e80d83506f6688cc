"""How much a verb prints in addition to its result: nothing with -q, logs and tracebacks with -v."""

import sys
import traceback
from typing import Literal, TextIO

import typer

from fleet.config import environment

Verbosity = Literal["quiet", "normal", "verbose"]
_chosen: list[Verbosity] = ["normal"]  # of the one command that a process runs


def choose(verbosity: Verbosity) -> None:
    _chosen[0] = verbosity
    if verbosity == "verbose":
        import logging  # noqa: PLC0415 - `fleet --help` needs none of it

        logging.basicConfig(
            stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
        )


def is_quiet() -> bool:
    return _chosen[0] == "quiet"


def is_normal() -> bool:
    return _chosen[0] == "normal"


def show_note(text: str) -> None:
    """Print a note on standard error. It is neither a result nor a problem, so -q hides it."""
    if not is_quiet():
        typer.echo(text, err=True)


def show_origin(error: BaseException) -> None:
    """With -v, print the traceback of an error."""
    if _chosen[0] == "verbose":
        traceback.print_exception(error)


# ---- color -----------------------------------------------------------------------------------------------------------
# Colors are used on a terminal, unless NO_COLOR, TERM=dumb or --color disables them.


Mode = Literal["auto", "always", "never"]
MODES: tuple[Mode, ...] = ("auto", "always", "never")
_chosen_color: list[Mode] = ["auto"]  # --color, of the one command that a process runs


def choose_color(mode: Mode) -> None:
    _chosen_color[0] = mode


def is_wanted(stream: TextIO | None = None) -> bool:
    """Whether to print colors to a stream, by default standard output."""
    if _chosen_color[0] != "auto":
        return _chosen_color[0] == "always"
    is_terminal = (sys.stdout if stream is None else stream).isatty()
    return is_terminal and environment.wants_color() and environment.can_move_cursor()
