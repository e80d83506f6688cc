"""Configuration of notifications."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from fleet.features.notify.channels import Event, NotifyChannel
from fleet.ports.settings import DailyHours, Line, Section, Slug


class Notify(Section):
    refused: ClassVar[Mapping[str, str]] = {"": "decides who is notified about your runs"}

    events: Annotated[tuple[Event, ...], Field(strict=False)]
    incident_minutes: float = Field(gt=0)
    quiet_hours: DailyHours
    give_up_minutes: float = Field(gt=0)
    link: Annotated[Line, Field(pattern=r"^$|^https?://[^\s]+$")]
    channels: dict[Slug, NotifyChannel] = Field(default={})
