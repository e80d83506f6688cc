"""The configuration of notifications."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from fleet.config.schema import Command, DailyHours, Line, Section, Slug, Variable

Event = Literal["question", "review", "incident", "budget", "failed", "ended", "died"]


class NotifyChannel(Section):
    """Where notifications go."""

    kind: Literal["webhook", "command", "desktop"]
    url_env: Variable | None = None
    template: Command | None = None
    command: Line | None = None
    events: Annotated[tuple[Event, ...], Field(strict=False)] | None = None


class Notify(Section):
    refused: ClassVar[Mapping[str, str]] = {"": "decides who is told of your runs, and how"}

    events: Annotated[tuple[Event, ...], Field(strict=False)]
    incident_minutes: float = Field(gt=0)
    quiet_hours: DailyHours
    give_up_minutes: float = Field(gt=0)
    link: Annotated[Line, Field(pattern=r"^$|^https?://[^\s]+$")]
    channels: dict[Slug, NotifyChannel] = Field(default={})
