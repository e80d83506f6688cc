"""What `fleet clean` deletes or would delete, and what it keeps."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartView:
    """Files or refs of one kind."""

    kind: str
    """Its name, as a plural."""
    number: int
    """How many there are."""
    bytes: int
    """The space that they use."""


@dataclass(frozen=True, slots=True)
class LeftoverView:
    """A run, a store or a branch."""

    of: str
    """Its name."""
    goes: bool
    """Whether it is deleted, or would be with `--apply`."""
    bytes: int
    """The space that can be freed."""
    kinds: tuple[PartView, ...]
    """What can be deleted, by kind."""
    kept: str
    """Why something of it is kept; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class CleanView:
    """The disk space that runs use."""

    applied: bool
    """Whether it was deleted; otherwise it would be with `--apply`."""
    bytes: int
    """The space that is freed."""
    of: int
    """The space that everything uses."""
    kinds: tuple[PartView, ...]
    """What is deleted, by kind."""
    left: tuple[LeftoverView, ...]
    """Every run, store and branch that was looked at."""
