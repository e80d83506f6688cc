"""The program itself: its version, its verbs, its completion, and what it serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProgramView:
    """The version of the program."""

    version: str
    """As `fleet --version` prints it."""


@dataclass(frozen=True, slots=True)
class VerbView:
    """A verb of the command line."""

    about: Literal["run", "part", "repository", "machine"]
    """What it is about, which decides the options that it takes."""
    changes: bool
    """Whether it changes a run that exists."""
    summary: str
    """The first line of its help."""


@dataclass(frozen=True, slots=True)
class VerbsView:
    """All verbs."""

    verbs: Mapping[str, VerbView]
    """Each verb by its name."""


@dataclass(frozen=True, slots=True)
class CompletionView:
    """The completion for a shell."""

    shell: str
    """`bash`, `zsh` or `fish`."""
    script: str
    """The script; empty if it was written to a file."""
    file: str
    """The file that was written; empty if none was."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """A server that runs until it is stopped."""

    url: str
    """Where it listens."""


@dataclass(frozen=True, slots=True)
class WebView:
    """The server for pages."""

    url: str
    """Where it listens."""
    link: str
    """Signs one browser in, once, within ten minutes."""


# ---- clean view ------------------------------------------------------------------------------------------------------
# What `fleet clean` deletes or would delete, and what it keeps.


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


# ---- finding ---------------------------------------------------------------------------------------------------------
# What the doctor found about this machine and the models' service.


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of this machine, or with `--live` of the models' service."""

    what: str
    """What was checked: `git`, `sandbox`, `model`, `gate` and so on; with `--live` also `live`, `settings`, `spent`."""
    ok: bool
    """Whether a run can work with it."""
    says: str
    """The result, for a person."""
    fix: str = ""
    """What to do about it; empty where nothing needs to be done."""
    dollars: float | None = None
    """What a call to the service cost; null where none was made."""


@dataclass(frozen=True, slots=True)
class ConfigValueView:
    """A key of the configuration as it applies here."""

    key: str
    """With dots, such as `run.workers`; a table such as `run` holds several."""
    value: object
    """Its value: a text, a number, true or false, null where none is set, a list or a table."""
    origin: str
    """Where the value comes from; empty for a table, whose keys may come from several places."""
