"""The tools that a server lists, as models may see them: named apart, in bounds, and without what a service refuses.

Pure. Everything here was written by a program that nobody has looked at: names, descriptions and schemas.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agents.models.text import capped, well_formed

PREFIX = "mcp__"
"""What no tool of ours begins with."""
MOST_TOOLS = 500
LONGEST_NAME = 64
LONGEST_DESCRIPTION = 1_000
LONGEST_SCHEMA = 10_000  # characters
DEEPEST_SCHEMA = 12
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a server."""

    server: str
    name: str
    """As the server calls it."""
    called: str
    """As models call it."""
    description: str
    schema: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """The same as long as the server says the same about it."""
        text = json.dumps([self.name, self.description, self.schema], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server offers."""

    tools: tuple[ServerTool, ...] = ()
    problems: tuple[str, ...] = ()
    """Why some tools, or all, are not offered to workers."""
    by_name: Mapping[str, ServerTool] = field(default_factory=dict)


def read_listing(server: str, listed: Sequence[object], wanted: Sequence[str]) -> Listing:
    """The tools of a list that workers may have, and why others are left out."""
    tools: dict[str, ServerTool] = {}
    problems = [f"{len(listed)} tools: only the first {MOST_TOOLS} are read"] if len(listed) > MOST_TOOLS else []
    for each in listed[:MOST_TOOLS]:
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(each, dict) or not isinstance(name, str) or not name:
            problems.append("a tool without a name")
            continue
        if wanted and not any(fnmatchcase(name, pattern) for pattern in wanted):
            continue
        called = called_by_models(server, name)
        schema = each.get("inputSchema")
        if called in tools:
            problems.append(f"{_shown(name)}: another tool has that name")
        elif not isinstance(schema, dict) or (why := schema_problem(schema)):
            problems.append(f"{_shown(name)}: {why if isinstance(schema, dict) else 'its schema is not an object'}")
        else:
            description = plain(each.get("description") or each.get("title") or "")
            tools[called] = ServerTool(server, name, called, capped(description, LONGEST_DESCRIPTION), schema)
    return Listing(tuple(tools.values()), tuple(problems), {tool.name: tool for tool in tools.values()})


def called_by_models(server: str, name: str) -> str:
    """A name that a service accepts, and that is not one of ours."""
    called = PREFIX + re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}__{name}")
    if len(called) <= LONGEST_NAME:
        return called
    mark = hashlib.sha256(called.encode()).hexdigest()[:8]
    return f"{called[: LONGEST_NAME - len(mark) - 1]}_{mark}"


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Why a model's service, or we, would not take a schema; empty if it is fine."""
    if schema.get("type") != "object":
        return "its schema is not one of an object"
    if any(key in schema for key in ("oneOf", "anyOf", "allOf", "not")):
        return "its schema has alternatives at the top"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(_KEY.fullmatch(key) for key in properties):
        return "its schema has a property without a plain name"
    try:
        if any(_depths(schema)):
            return f"its schema is more than {DEEPEST_SCHEMA} levels deep"
        text = json.dumps(schema)
    except (RecursionError, ValueError, TypeError):
        return "its schema is not JSON"
    if len(text) > LONGEST_SCHEMA:
        return f"its schema has {len(text)} characters; {LONGEST_SCHEMA} are the limit"
    if any(not str(target).startswith("#") for target in _targets(schema)):
        return "its schema refers to another document"
    return ""


def plain(value: object) -> str:
    """Text of a server without control characters, escapes and direction tricks."""
    text = well_formed(value if isinstance(value, str) else str(value))[: 4 * LONGEST_DESCRIPTION]
    return "".join(char if char == "\n" or unicodedata.category(char)[0] != "C" else " " for char in text).strip()


def _depths(value: object, depth: int = 0) -> Iterator[bool]:
    """Whether each branch is too deep."""
    if depth > DEEPEST_SCHEMA:
        yield True
        return
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from _depths(each, depth + 1)


def _targets(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (value[key] for key in ("$ref", "$dynamicRef") if key in value)
        for each in value.values():
            yield from _targets(each)
    elif isinstance(value, list):
        for each in value:
            yield from _targets(each)


def _shown(name: str) -> str:
    return repr(plain(name)[:_SHOWN])


# ---- settings --------------------------------------------------------------------------------------------------------
# One server as the operator configured it.


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A program that the manager runs, and what it may be used for."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    """All that it is given of variables, those with secrets included."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values in it that neither models nor transcripts may see."""
    tools: tuple[str, ...] = ()
    """Patterns of the tools that workers get. Empty: all."""
    timeout_s: float = 60.0
    """How long one call may take."""
