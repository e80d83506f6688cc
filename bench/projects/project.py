"""A generated project: its files, what its author ran before the first commit, and what a clone of it needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Project:
    """A small project with one passing test, as a person would lay it out."""

    name: str
    kind: str
    files: Mapping[str, str]
    needs: tuple[str, ...] = ()
    """The programs of this machine without which it can't be tried."""
    author: tuple[tuple[str, ...], ...] = ()
    """What the author ran before the first commit, such as what writes a lock file. It may use the network."""
    tools: tuple[str, ...] = ()
    """Programs from PyPI that the author used."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Files that git ignores and a person has in the checkout."""
    needs_network: bool = False
    """Whether its set-up downloads something."""
