"""The whole output of a gate or a set-up command, from its log."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogView:
    """The log of the last run of the project's gate or of the set-up command."""

    of: str
    """`gate` or `setup`."""
    log: str
    """The file."""
    text: str
    """Its content: the command, its output (of a very long one, both ends), and how it ended."""
    earlier: tuple[str, ...]
    """The files of earlier runs, the first one first."""
