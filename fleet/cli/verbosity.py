"""How much a verb says beside its result: nothing with -q, log messages and the origin of errors with -v."""

import sys
import traceback
from typing import Literal

import typer

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
    """Print a line for a person on standard error: what is under way, where something is; no result and no problem."""
    if not is_quiet():
        typer.echo(text, err=True)


def show_origin(error: BaseException) -> None:
    """With -v, print where an error came from."""
    if _chosen[0] == "verbose":
        traceback.print_exception(error)
