"""The metrics settings."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.ports.settings import Line, Section, Texts


class Metrics(Section):
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(("listen", "hosts"), "decides who can observe your fleet")

    listen: Annotated[Line, Field(pattern=r"^(?:\S*:)?\d{1,5}$|^$")]
    hosts: Texts
