"""Imports what an entry of the table names, when it is used."""

from importlib import import_module
from typing import Any

BESIDE = ("agents", "dashboards", "worktrees")
"""The packages in which a feature may lie, other than this one."""


def load_part(place: str) -> Any:
    """What is at `feature.module:name`, or at `dashboards.feature.module:name`."""
    module, _, name = place.partition(":")
    is_whole = module.partition(".")[0] in BESIDE
    return getattr(import_module(module if is_whole else f"fleet.features.{module}"), name)
