"""Views as JSON: the output of every `--json` is a dump of a dataclass, with the version of its shape.

Below are those that are not about one moment of a run: the program, its machine, and what became of a branch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.read.figures import FigureValues, figures_of

SCHEMA_VERSION = 1
"""Raised when a key is renamed or removed or changes its meaning; a new key does not raise it."""


class View(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def dump_view(view: View) -> dict[str, Any]:
    """The view with its `schema_version`, as values that JSON can hold."""
    return {"schema_version": SCHEMA_VERSION, **dict(_items(view))}


def shape_of(view: type[View] | None) -> dict[str, Any]:
    """The keys of a view as a JSON schema, for protocols that want one; None: of any view."""
    names = list(keys_of(view)) if view is not None else []
    properties = {"schema_version": {"const": SCHEMA_VERSION}} | {name: {} for name in names}
    return {"type": "object", "properties": properties, "required": ["schema_version"]}


def keys_of(view: type[View]) -> Iterator[str]:
    """Its keys in JSON; the figures of a status are keys beside the others."""
    for field in fields(view):
        if field.type is FigureValues:
            yield from (figure.name for figure in figures_of("json"))
        else:
            yield field.name.removesuffix("_")  # `class_` is the key `class`


def _items(view: View) -> Iterator[tuple[str, Any]]:
    for field in fields(view):
        value = getattr(view, field.name)
        if isinstance(value, FigureValues):
            yield from _plain(value).items()
        else:
            yield field.name.removesuffix("_"), _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "__dataclass_fields__"):
        return dict(_items(value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


# ---- program view ----------------------------------------------------------------------------------------------------
# The program itself: its version, its verbs, its completion, and what it serves.


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

    name: str
    """Its name."""
    deleted: bool
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
    total_bytes: int
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


# ---- merge view ------------------------------------------------------------------------------------------------------
# What became of a branch of the user's that took the result of a run.


How = Literal["up to date", "fast-forwarded", "relanded"]


@dataclass(frozen=True, slots=True)
class Redone:
    """A commit of a result that did not fit on the branch, and what took its place."""

    subtask: SubtaskId
    """The subtask that was done again, or a new one."""
    commit: Sha
    """Its commit on the branch."""
    why: str
    """Why the commit of the result did not fit."""


@dataclass(frozen=True, slots=True)
class MergeView:
    """How a branch took the result of a run."""

    run: RunId
    """The run whose result it is."""
    branch: str
    """The branch."""
    commit: Sha
    """Where the branch is now."""
    commits: int
    """How many commits it got."""
    how: How
    """`up to date`: the branch had all commits. `fast-forwarded`: the branch now ends with the run's commits.
    `relanded`: copies of the commits were tested and landed on top of the branch."""
    untested: int = 0
    """How many of them were tested only together with later ones: set `landing.every_commit` to have each tested."""
    relanding: RunId | None = None
    """The run that landed them again on what the branch had; null if there was no need."""
    redone: tuple[Redone, ...] = ()
    """The commits that did not fit and were done again: nobody but the checks has looked at them yet."""
    cost_dollars: float | None = None
    """What doing them again cost; null if nothing was landed again."""
