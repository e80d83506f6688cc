"""Describes types, bounds and defaults of pydantic models in words."""

import json
import types
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NewType, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scripts.reference.page import code

_PLAIN: Mapping[object, str] = {
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    str: "text",
    type(None): "none",
    datetime: "date and time",
}


def type_text(field: FieldInfo, named: Mapping[type, str] | None = None) -> str:
    """Describe the type of a field, with its bounds. `named` are models with a separate heading."""
    return _kind(field.annotation, named or {}) + _bounds(field.metadata)


def default_text(field: FieldInfo) -> str:
    """Describe the default of a field."""
    return "required" if field.is_required() else value_text(field.get_default(call_default_factory=True))


def value_text(value: object) -> str:
    """Return a default as JSON. A long list is only counted."""
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "empty" if not value.model_dump(exclude_defaults=True) else code(json.dumps(value.model_dump()))
    if isinstance(value, tuple) and len(value) > 1:
        return f"{len(value)} entries"
    return code(json.dumps(value))


def _kind(annotation: Any, named: Mapping[type, str]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(code(str(value)) for value in arguments)
    if origin in {Union, types.UnionType}:
        return " or ".join(_kind(part, named) for part in arguments if part is not type(None))
    if origin is tuple:
        return f"list of {_kind(arguments[0], named)}"
    if origin is dict:
        return f"table of {_kind(arguments[1], named)}"
    if hasattr(annotation, "__metadata__"):
        return _kind(arguments[0], named) + _bounds(annotation.__metadata__)
    if isinstance(annotation, NewType):
        return _kind(annotation.__supertype__, named)
    if isinstance(annotation, type) and annotation in named:
        return named[annotation]
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    return "any value"


def _bounds(metadata: Any) -> str:
    """Describe numeric bounds: `1 to 1000`, `above 0`, `at least 1`."""
    low = next((m.ge for m in metadata if isinstance(m, annotated_types.Ge)), None)
    above = next((m.gt for m in metadata if isinstance(m, annotated_types.Gt)), None)
    high = next((m.le for m in metadata if isinstance(m, annotated_types.Le)), None)
    below = next((m.lt for m in metadata if isinstance(m, annotated_types.Lt)), None)
    if low is not None and high is not None:
        return f", {_number(low)} to {_number(high)}"
    words = [
        f"{word} {_number(bound)}"
        for word, bound in (("at least", low), ("above", above), ("at most", high), ("below", below))
        if bound is not None
    ]
    return "".join(f", {word}" for word in words)


def _number(bound: Any) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
