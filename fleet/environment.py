"""What the process was given: its environment and its user. Read here, handed down from here."""

import getpass
import os
from collections.abc import Mapping


def current() -> Mapping[str, str]:
    return dict(os.environ)


def user() -> str:
    """Who makes a request, for the journal."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"
