"""How set-up and gate went on the base, before anything was done: why a run was refused, and what to do about it."""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from fleet.core.base.output import advice, key_lines
from fleet.core.facts.facts import CheckRun, Failure, SetupRun
from fleet.core.state.state import RunState


@dataclass(frozen=True, slots=True)
class BaseView:
    """How set-up and gate went on the base of a run, before anything was done."""

    setup: SetupRun | None
    """The last run of the set-up command; null if there was none."""
    gate: tuple[CheckRun, ...]
    """The project's gate on the base; empty if there is none, or it could not be run."""
    failure: Failure | None
    """Why the gate could not be run."""
    causes: tuple[str, ...]
    """If something failed: the lines of its output that matter."""
    advice: tuple[str, ...]
    """What to do about them."""


def base_view(state: RunState) -> BaseView:
    causes = _causes(state)
    return BaseView(state.setup, state.base_checks, state.base_failure, causes, advice(causes))


def _causes(state: RunState) -> tuple[str, ...]:
    if state.base_failure is not None:
        if state.setup is not None and not state.setup.check.passed:
            return state.setup.check.causes
        return key_lines(f"{state.base_failure.summary}\n{state.base_failure.evidence}")
    red = [check for check in state.base_checks if not check.fine]
    return tuple(line for check in red for line in (check.causes or key_lines(check.output)))


# ---- dump ------------------------------------------------------------------------------------------------------------
# Views as JSON: the output of every `--json` is a dump of a dataclass, with the version of its shape.


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
    names = [field.name.removesuffix("_") for field in fields(view)] if view is not None else []
    properties = {"schema_version": {"const": SCHEMA_VERSION}} | {name: {} for name in names}
    return {"type": "object", "properties": properties, "required": ["schema_version"]}


def _items(view: View) -> Iterator[tuple[str, Any]]:
    for field in fields(view):
        yield field.name.removesuffix("_"), _plain(getattr(view, field.name))  # `class_` is the key `class`


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
