"""Settings with other values: of a field, or of a key in one of the sections that they hold."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from agents.conversation.settings import AgentSettings
from fleet.ports.settings import Section
from worktrees.base.settings import WorktreeSettings

Settings = TypeVar("Settings", AgentSettings, WorktreeSettings)


def with_values(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """These settings with other values, by field, or by key with its section if two have it: `planner.model`."""
    for name, value in values.items():
        section, _, key = name.rpartition(".")
        held: dict[str, Any] = {each.name: getattr(settings, each.name) for each in fields(settings)}
        if name in held:
            settings = replace(settings, **{name: value})
            continue
        sections = [each for each, part in held.items() if isinstance(part, Section) and key in type(part).model_fields]
        at = section or sections[0]
        assert at in sections, f"no section has {name}"
        changed = {**dict(held[at]), key: _written(value)}
        settings = replace(settings, **{at: type(held[at])(**changed)})
    return settings


def _written(value: object) -> object:
    """A value as a file has it: paths are text."""
    return tuple(map(_written, value)) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
