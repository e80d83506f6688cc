"""Tool schemas from pydantic models, plain or for strict mode.

Strict mode compiles a grammar of bounded size: few optional fields, no unions, no free-form objects. So a field with a
default is required, a field that may be null is optional, and a free-form object is left out. Our parser is wider: it
accepts whatever the protocol allows.
"""

from functools import cache
from typing import Any

from pydantic import BaseModel

_KEPT = frozenset({"type", "enum", "const", "description", "items", "properties", "anyOf", "$ref", "format"})
_FORMATS = frozenset({"date-time", "date", "time", "uuid", "uri", "email"})


@cache
def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A schema that strict mode accepts. It is shared: don't change it."""
    schema = model.model_json_schema()
    defs = {name: _strict(part) for name, part in schema.get("$defs", {}).items() if not _is_free(part)}
    top = _strict(schema)
    return {**top, "$defs": defs} if defs else top


@cache
def plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A schema for a tool that is not strict."""
    schema = model.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    variants = [variant for variant in schema.get("anyOf", ()) if variant.get("type") != "null"]
    if len(variants) == 1:
        rest = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
        return _strict({**variants[0], **rest})
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if kept.get("format") not in _FORMATS:
        kept.pop("format", None)
    if "items" in kept:
        kept["items"] = _strict(kept["items"])
    if "anyOf" in kept:
        kept["anyOf"] = [_strict(variant) for variant in variants]
    if kept.get("type") == "object":
        fields = {name: field for name, field in schema.get("properties", {}).items() if not _is_free(field)}
        kept["properties"] = {name: _strict(field) for name, field in fields.items()}
        kept["required"] = [name for name, field in fields.items() if _is_required(field)]
        kept["additionalProperties"] = False
    return kept


def _is_required(field: dict[str, Any]) -> bool:
    return "default" not in field or field["default"] is not None


def _is_free(field: dict[str, Any]) -> bool:
    """An object with arbitrary keys, or a value of any type."""
    variants = [variant for variant in field.get("anyOf", ()) if variant.get("type") != "null"] or [field]
    return any(
        (part.get("type") == "object" and not part.get("properties"))
        or not ({"type", "enum", "const", "$ref", "anyOf"} & part.keys())
        for part in variants
    )
