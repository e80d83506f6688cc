"""The configuration of tending pull requests."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.ports.settings import Line, Section, Slug


class Tend(Section):
    refused: ClassVar[Mapping[str, str]] = {"": "decides whose review comments fleet acts on, and at which cost"}

    rounds: int = Field(ge=1, le=100)
    dollars: float = Field(gt=0)
    attempts: int = Field(ge=1, le=10)
    worker: Slug
    label: Line
    authors: Annotated[tuple[Line, ...], Field(strict=False)]
    poll_s: float = Field(ge=1, le=86_400)
