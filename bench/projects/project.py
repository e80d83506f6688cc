"""A generated project: its files, its author's commands before the first commit, and the needs of a clone."""

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
    """Commands of the author before the first commit, such as writing a lock file. They may use the network."""
    tools: tuple[str, ...] = ()
    """Programs from PyPI that the author used."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Files that git ignores and a person has in the checkout."""
    needs_network: bool = False
    """Whether the setup command downloads something."""
