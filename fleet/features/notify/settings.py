"""The configuration of notifications."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.config.schema import DailyHours, Line, Section, Slug
from fleet.features.notify.channels import Event, NotifyChannel


class Notify(Section):
    refused: ClassVar[Mapping[str, str]] = {"": "decides who is told of your runs, and how"}

    events: Annotated[tuple[Event, ...], Field(strict=False)]
    incident_minutes: float = Field(gt=0)
    quiet_hours: DailyHours
    give_up_minutes: float = Field(gt=0)
    link: Annotated[Line, Field(pattern=r"^$|^https?://[^\s]+$")]
    channels: dict[Slug, NotifyChannel] = Field(default={})
