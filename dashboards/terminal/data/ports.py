"""What the terminal UI needs of the world: runs to read from and to ask something of. It opens no journal itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fleet.core.facts import Fact
from fleet.core.plan import Plan
from fleet.core.requests import Request


class Feed(Protocol):
    """One run: what its journal says, and its inbox."""

    @property
    def run(self) -> str: ...

    @property
    def alive(self) -> bool:
        """Whether a process works on it now."""
        ...

    def read(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        """The facts after number `after`, with their numbers; at most `limit`."""
        ...

    def changed(self) -> bool:
        """Whether there may be something new since this was last asked."""
        ...

    def ask(self, request: Request) -> None:
        """Put a request into the inbox. It was found to make sense before."""
        ...

    def last_words(self) -> str:
        """What an engine in the background said before it stopped; empty where there is none."""
        ...

    def transcript(self, name: str, number: int) -> Path:
        """The file of a conversation, whether it exists or not."""
        ...

    def log(self, name: str) -> Path:
        """The file of all that a check printed."""
        ...

    async def diff(self, base: str, commit: str) -> str | None:
        """The patch between two commits; None where they are not kept any more."""
        ...

    async def copy(self, commit: str, into: Path) -> str | None:
        """Check `commit` out into an empty folder, or say why that can't be."""
        ...

    def resume(self) -> str | None:
        """Begin to work on it in the background, or say why that can't be."""
        ...

    def read_plan(self, path: Path) -> Plan | str:
        """The plan in a file, or what is wrong with it."""
        ...

    def write_plan(self, plan: Plan, path: Path) -> None: ...


class Library(Protocol):
    """All runs there are."""

    def names(self) -> Sequence[str]:
        """The latest first."""
        ...

    def open(self, run: str) -> Feed: ...
