"""The process's environment and its user. The only module that reads `os.environ`; other modules get values."""

import getpass
import os
import shlex
from collections.abc import Mapping


def current() -> Mapping[str, str]:
    return dict(os.environ)


def set_default(name: str, value: str) -> None:
    """Set a variable for this process and its children, unless it is set already."""
    os.environ.setdefault(name, value)


def user() -> str:
    """The name of the person who makes a request, for the journal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def editor() -> list[str]:
    """The command line of the person's editor."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def shell() -> list[str]:
    """The command line of the person's shell."""
    return shlex.split(os.environ.get("SHELL") or "sh")


def wants_color() -> bool:
    """Whether colours may be used. https://no-color.org: an empty variable forbids nothing."""
    return not os.environ.get("NO_COLOR")


def can_move_cursor() -> bool:
    """Whether the terminal can show more than lines, according to TERM."""
    return os.environ.get("TERM", "dumb") != "dumb"


def has_many_colours() -> bool:
    """Whether the terminal has more than 16 colours, according to COLORTERM and TERM."""
    kind = os.environ.get("TERM", "").rpartition("-")[2]
    return os.environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"} or kind in {"256color", "direct", "kitty"}
