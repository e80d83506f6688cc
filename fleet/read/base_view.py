"""Views as JSON: the output of every `--json` is a dump of a dataclass, with the version of its shape."""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

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
