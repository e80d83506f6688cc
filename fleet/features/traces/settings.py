"""Configuration of traces."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.ports.settings import Line, Section


class Traces(Section):
    refused: ClassVar[Mapping[str, str]] = {"otlp": "decides where data about your runs is sent"}

    otlp: Annotated[Line, Field(pattern=r"^$|^https?://[^\s]+$")]
