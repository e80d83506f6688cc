"""Configuration of MCP servers for workers."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.ports.settings import Line, Section, Slug, Texts, Variable


class ServerSection(Section):
    """An MCP server that provides tools to workers."""

    refused: ClassVar[Mapping[str, str]] = {"": "runs a program as you and gives its tools to workers"}

    command: Annotated[Line, Field(min_length=1)]
    environment: dict[Variable, Line] = Field(default={})
    pass_environment: Annotated[tuple[Variable, ...], Field(strict=False)] | None = None
    tools: Texts | None = None
    timeout_s: float | None = Field(default=None, gt=0, le=3600)


Servers = dict[Slug, ServerSection]
