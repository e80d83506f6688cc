"""The environment of the process and its user. Only this module reads `os.environ`."""

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
    """The name of the user who makes a request, for the journal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"


def editor() -> list[str]:
    """The command line of the user's editor."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")


def shell() -> list[str]:
    """The command line of the user's shell."""
    return shlex.split(os.environ.get("SHELL") or "sh")


def wants_color() -> bool:
    """Whether colors may be used. An empty NO_COLOR does not disable them (https://no-color.org)."""
    return not os.environ.get("NO_COLOR")


def can_move_cursor() -> bool:
    """Whether the terminal can move the cursor, according to TERM."""
    return os.environ.get("TERM", "dumb") != "dumb"


def has_many_colours() -> bool:
    """Whether the terminal has more than 16 colors, according to COLORTERM and TERM."""
    kind = os.environ.get("TERM", "").rpartition("-")[2]
    return os.environ.get("COLORTERM", "").lower() in {"truecolor", "24bit"} or kind in {"256color", "direct", "kitty"}
