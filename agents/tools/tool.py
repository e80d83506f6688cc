"""The interface of tools: a declaration for the model, and a function with parsed arguments."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from agents.models.answer import Block
from agents.models.text import capped
from fleet.core.plans.parameters import parse
from fleet.core.plans.plan import Written
from fleet.ports.agents import NO_EXTRAS, Extras, PlannerRepository, Workspace

End_co = TypeVar("End_co", covariant=True)


class Arguments(Written):
    """The input of a tool. Unknown keys are rejected."""


Parsed = TypeVar("Parsed", bound=BaseModel)
Taken = TypeVar("Taken", bound=Arguments)


class ToolInputError(Exception):
    """Invalid input of a tool. The message is for the model."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call. A failing command also has a result."""

    text: str
    is_error: bool = False
    bad_input: bool = False


@dataclass(frozen=True, slots=True)
class ReportDone(Generic[End_co]):
    """Ends the conversation with this value."""

    value: End_co


class Tool(Protocol[End_co]):
    """A tool for models. Raises `ToolInputError`, and `WorkspaceError` for unusable files."""

    @property
    def name(self) -> str: ...

    @property
    def declaration(self) -> Block:
        """Return the declaration for the model."""
        ...

    async def run(self, raw: Mapping[str, Any]) -> "ToolResult | ReportDone[End_co]": ...


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of a worker's tools."""

    command_s: float
    output_chars: int
    extras: Extras = NO_EXTRAS
    """Additional paths and permissions in the sandbox of commands."""
    secrets: tuple[str, ...] = ()
    """Values in the sandbox that are redacted for models."""
    hosts: tuple[str, ...] = ()
    """The hosts that `fetch` may access."""
    background: str = field(default="", repr=False)
    """Untrusted texts about the subtask."""


@dataclass(frozen=True)
class WorkerTool:
    """A tool that works in a workspace."""

    workspace: Workspace
    options: ToolOptions


class ReadOnlyTool(Generic[Taken]):
    """A read-only tool for the repository. Subclasses define its name, its arguments and its function."""

    name: str
    description: str
    takes: type[Taken]

    def __init__(self, repository: PlannerRepository, *, output_chars: int) -> None:
        self._repository = repository
        self._output_chars = output_chars

    @property
    def declaration(self) -> Block:
        return {"name": self.name, "description": self.description, "input_schema": plain_schema(self.takes)}

    async def run(self, raw: Mapping[str, Any]) -> ToolResult:
        text = await self.look(self._repository, parse_arguments(self.takes, raw))
        return ToolResult(capped(text, self._output_chars) or "(nothing)")

    async def look(self, repository: PlannerRepository, arguments: Taken) -> str:
        raise NotImplementedError


def strict_declaration(name: str, description: str, model: type[BaseModel]) -> Block:
    return {"name": name, "description": description, "strict": True, "input_schema": strict_schema(model)}


def parse_arguments(model: type[Parsed], raw: Mapping[str, Any]) -> Parsed:
    """Parse `raw` as a `model`. Raises `ToolInputError` with every problem."""
    parsed = parse(model, dict(raw), at="")
    if isinstance(parsed, tuple):
        raise misfit(*map(str, parsed))
    return parsed


def misfit(*problems: str) -> ToolInputError:
    return ToolInputError("Invalid input:\n" + "\n".join(f"- {problem}" for problem in problems))


# ---- schema ----------------------------------------------------------------------------------------------------------
# Tool schemas from pydantic models, plain or for strict mode.
#
# Strict mode compiles a grammar of limited size: few optional fields, no unions, no free-form objects. Fields with a
# default are therefore required, nullable fields are optional, and free-form objects are omitted. Fleet's parser
# accepts everything that the protocol allows.


_KEPT = frozenset({"type", "enum", "const", "description", "items", "properties", "anyOf", "$ref", "format"})
_FORMATS = frozenset({"date-time", "date", "time", "uuid", "uri", "email"})


@cache
def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a schema for strict mode. It is shared: don't modify it."""
    schema = model.model_json_schema()
    defs = {name: _strict(part) for name, part in schema.get("$defs", {}).items() if not _is_free(part)}
    top = _strict(schema)
    return {**top, "$defs": defs} if defs else top


@cache
def plain_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a schema for a tool without strict mode."""
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
    """Whether a field is an object with arbitrary keys or a value of any type."""
    variants = [variant for variant in field.get("anyOf", ()) if variant.get("type") != "null"] or [field]
    return any(
        (part.get("type") == "object" and not part.get("properties"))
        or not ({"type", "enum", "const", "$ref", "anyOf"} & part.keys())
        for part in variants
    )


# ---- hosts -----------------------------------------------------------------------------------------------------------
# The allowed hosts of `fetch`. Pure: names are not resolved here.


PORTS = {"http": 80, "https": 443}
_ENTRY = re.compile(r"(\*\.)?([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class ToolHost:
    """An entry of the list of hosts."""

    entry: str
    name: str
    port: int | None
    below: bool
    """Whether the entry matches all subdomains, but not the name itself."""

    def matches(self, name: str, port: int, scheme: str) -> bool:
        same = name.endswith(f".{self.name}") if self.below else name == self.name
        return same and port == (PORTS[scheme] if self.port is None else self.port)


def read_host(entry: str) -> ToolHost | None:
    """Parse an entry of the list; None if it is malformed."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return None
    return ToolHost(entry, match[2].lower().rstrip("."), int(match[3]) if match[3] else None, bool(match[1]))


def host_problem(hosts: Sequence[str]) -> str | None:
    """Return why a list is invalid, for the operator, or None."""
    if not hosts:
        return 'hosts is missing. List the allowed hosts, such as ["docs.python.org", "*.example.org", "127.0.0.1:80"]'
    wrong = next((entry for entry in hosts if read_host(entry) is None), None)
    if wrong is None:
        return None
    return f"hosts: {wrong!r} is not a host. Use a name, *.name or an address, optionally with a port"


# ---- servers ---------------------------------------------------------------------------------------------------------
# Tools of MCP servers in a conversation.


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools of servers."""

    tools: tuple[Tool[Any], ...] = ()
    servers: Mapping[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    """The number of tools of each server, and why others were omitted."""


class ToolServers(Protocol):
    async def offered(self, names: Sequence[str], output_chars: int) -> Offered:
        """Return the tools of these servers, which are started if necessary."""
        ...


OpenServers = Callable[[], AbstractAsyncContextManager[ToolServers]]
