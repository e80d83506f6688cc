"""What the terminal UI needs from outside: runs to read and to send requests to. It opens no journal itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fleet.core.history.follower import FactSource
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request


class FactFeed(FactSource, Protocol):
    """The facts of a run, as they are written or as they are replayed."""

    @property
    def alive(self) -> bool:
        """Whether a process is running it."""
        ...


class Feed(FactFeed, Protocol):
    """One run: its journal, its inbox, and its files."""

    @property
    def run(self) -> str: ...

    def close(self) -> None:
        """Release what it reads from. Afterwards only its files can be read."""
        ...

    def ask(self, request: Request) -> None:
        """Put a request into the inbox. The caller has checked that it is valid."""
        ...

    def last_words(self) -> str:
        """The last output of an engine in the background; empty if there is none."""
        ...

    def transcript(self, name: str, number: int) -> Path:
        """The file of a conversation; it may not exist."""
        ...

    def log(self, name: str) -> Path:
        """The file with a check's output; it may not exist."""
        ...

    async def diff(self, base: str, commit: str) -> str | None:
        """The patch between two commits; None if they are no longer in the store."""
        ...

    async def copy(self, commit: str, into: Path) -> str | None:
        """Check `commit` out into an empty folder; return an error message if that fails."""
        ...

    def resume(self) -> str | None:
        """Resume the run in the background; return an error message if that fails."""
        ...

    def read_plan(self, path: Path) -> Plan | str:
        """The plan in a file, or an error message."""
        ...

    def write_plan(self, plan: Plan, path: Path) -> None: ...


class Library(Protocol):
    """All runs of a state directory."""

    def names(self) -> Sequence[str]:
        """The names of all runs, the latest first."""
        ...

    def open(self, run: str) -> Feed:
        """It is closed with the library, unless whoever opened it has no more use for it earlier."""
        ...
