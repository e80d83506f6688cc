"""Configuration of reviews."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.core.plans.plan import MOST_VOTES, Effort
from fleet.ports.settings import Command, Line, Section


class Reviewer(Section):
    refused: ClassVar[Mapping[str, str]] = {"": "decides how changes are reviewed"}

    look_for: Annotated[Command, Field(max_length=10_000)]
    model: Line
    effort: Effort | None = None
    votes: int = Field(ge=1, le=MOST_VOTES)
    batch: bool
    poll_s: float = Field(gt=0, le=3600)
    change_chars: int = Field(ge=1000, le=10_000_000)
    time_s: float = Field(gt=0, le=7200)
