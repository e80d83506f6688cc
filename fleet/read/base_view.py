"""Views as JSON: the output of `--json` is a dump of a dataclass, with a schema version.

Also contains the views of the program, the machine, `fleet clean` and `fleet merge`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, InitVar, dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol

from pydantic import BaseModel

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.read.figures import FigureValues, figures_of

SCHEMA_VERSION = 1
"""Increased when a key is renamed, removed or changes its meaning. A new key does not increase it."""


class View(Protocol):
    """A view, which is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def dump_view(view: View) -> dict[str, Any]:
    """Convert a view to JSON values, with its `schema_version`."""
    return {"schema_version": SCHEMA_VERSION, **dict(_items(view))}


def shape_of(view: type[View] | None) -> dict[str, Any]:
    """The JSON schema of a view. None stands for any view."""
    names = list(keys_of(view)) if view is not None else []
    properties = {"schema_version": {"const": SCHEMA_VERSION}} | {name: {} for name in names}
    return {"type": "object", "properties": properties, "required": ["schema_version"]}


def keys_of(view: type[View]) -> Iterator[str]:
    """The JSON keys of a view. The figures of a status are top-level keys."""
    for each in fields(view):
        if each.type is FigureValues:
            yield from (figure.name for figure in figures_of("json"))
        else:
            yield each.name.removesuffix("_")  # `class_` is the key `class`


def _items(view: View) -> Iterator[tuple[str, Any]]:
    for each in fields(view):
        value = getattr(view, each.name)
        if isinstance(value, FigureValues):
            yield from _plain(value).items()
        else:
            yield each.name.removesuffix("_"), _plain(value)


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
# The program: its version, verbs, shell completion and servers.


@dataclass(frozen=True, slots=True)
class ProgramView:
    """The version of the program."""

    version: str
    """The version that `fleet --version` prints."""


@dataclass(frozen=True, slots=True)
class VerbView:
    """A verb of the command line."""

    about: Literal["run", "part", "repository", "machine"]
    """The kind of its argument, which determines its common options."""
    changes: bool
    """Whether it changes an existing run."""
    summary: str
    """The first line of its help."""


@dataclass(frozen=True, slots=True)
class VerbsView:
    """All verbs."""

    verbs: Mapping[str, VerbView]
    """The verbs by name."""


@dataclass(frozen=True, slots=True)
class CompletionView:
    """A shell completion script."""

    shell: str
    """`bash`, `zsh` or `fish`."""
    script: str
    """The script. Empty if it was written to a file."""
    file: str
    """The written file. Empty without one."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """A running server."""

    url: str
    """The address of the server."""


@dataclass(frozen=True, slots=True)
class WebView:
    """The server of the web UI."""

    url: str
    """The address of the server."""
    link: str
    """A link that signs in one browser. It works once and expires after ten minutes."""


# ---- clean view ------------------------------------------------------------------------------------------------------
# The files and refs that `fleet clean` deletes or keeps.


@dataclass(frozen=True, slots=True)
class PartView:
    """Files or refs of one kind."""

    kind: str
    """The name of the kind, in the plural."""
    number: int
    """Number of items."""
    bytes: int
    """Used disk space."""


@dataclass(frozen=True, slots=True)
class LeftoverView:
    """A run, a store or a branch."""

    name: str
    """The name."""
    deleted: bool
    """Whether it is deleted, or would be with `--apply`."""
    bytes: int
    """Disk space that can be freed."""
    kinds: tuple[PartView, ...]
    """Deletable items, by kind."""
    kept: str
    """Why a part of it is kept. Empty if no part is kept."""


@dataclass(frozen=True, slots=True)
class CleanView:
    """The disk space used by runs."""

    applied: bool
    """Whether files were deleted. Without `--apply`, the view is a preview."""
    bytes: int
    """Freed disk space."""
    total_bytes: int
    """Total used disk space."""
    kinds: tuple[PartView, ...]
    """Deleted items, by kind."""
    left: tuple[LeftoverView, ...]
    """All inspected runs, stores and branches."""


# ---- finding ---------------------------------------------------------------------------------------------------------
# The results of `fleet doctor`.


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check of this machine or, with `--live`, of the model service."""

    what: str
    """The subject of the check: `git`, `sandbox`, `gate` and so on; with `--live` also `live`, `settings`, `spent`."""
    ok: bool
    """Whether runs can work with the result: false for a failure."""
    says: str
    """The result as text."""
    fix: str = ""
    """The action that fixes it; empty if no action is needed."""
    dollars: float | None = None
    """The cost of a call to the service; null without a call."""
    warning: InitVar[bool] = False
    state: Literal["ok", "warning", "failure"] = field(init=False)
    """`ok`; `warning` if runs work but something is missing or disabled; or `failure`."""

    def __post_init__(self, warning: bool) -> None:
        object.__setattr__(self, "state", "failure" if not self.ok else "warning" if warning else "ok")


@dataclass(frozen=True, slots=True)
class ConfigValueView:
    """The effective value of a configuration key."""

    key: str
    """The dotted key, such as `run.workers`, or a table, such as `run`."""
    value: object
    """The value: a string, number, boolean, list or table. Null if it is not set."""
    origin: str
    """The source of the value. Empty for a table, whose keys can have different sources."""


# ---- merge view ------------------------------------------------------------------------------------------------------
# The result of `fleet merge`.


How = Literal["up to date", "fast-forwarded", "relanded"]


@dataclass(frozen=True, slots=True)
class Redone:
    """A commit of a result that did not apply to the branch, with its replacement."""

    subtask: SubtaskId
    """The subtask that was redone, or a new one."""
    commit: Sha
    """The commit on the branch."""
    why: str
    """Why the original commit did not apply."""


@dataclass(frozen=True, slots=True)
class MergeView:
    """The result of merging a run into a branch."""

    run: RunId
    """The merged run."""
    branch: str
    """The target branch."""
    commit: Sha
    """The new tip of the branch."""
    commits: int
    """Number of commits added to the branch."""
    how: How
    """`up to date`: the branch had all commits. `fast-forwarded`: the branch now ends with the run's commits.
    `relanded`: copies of the commits were tested and landed on top of the branch."""
    untested: int = 0
    """Number of commits only tested together with later ones. To test each commit, set `landing.every_commit`."""
    relanding: RunId | None = None
    """The run that landed the commits again on top of the branch. Null if that was not needed."""
    redone: tuple[Redone, ...] = ()
    """The redone commits. Only the checks have verified them. No one has reviewed them yet."""
    cost_dollars: float | None = None
    """Cost of redoing them in USD. Null if the commits were not landed again."""
