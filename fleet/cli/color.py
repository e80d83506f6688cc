"""Whether and how to print in colour: on a terminal, unless NO_COLOR, TERM=dumb or --color says otherwise."""

import sys
from typing import Literal, TextIO

from fleet.config import environment

Mode = Literal["auto", "always", "never"]
MODES: tuple[Mode, ...] = ("auto", "always", "never")
_chosen: list[Mode] = ["auto"]  # --color, of the one command that a process runs


def choose(mode: Mode) -> None:
    _chosen[0] = mode


def is_wanted(stream: TextIO | None = None) -> bool:
    """Whether a stream, by default standard output, takes colours."""
    if _chosen[0] != "auto":
        return _chosen[0] == "always"
    is_terminal = (sys.stdout if stream is None else stream).isatty()
    return is_terminal and environment.wants_color() and environment.can_move_cursor()
