"""Imports the parts listed in the table on first use."""

from importlib import import_module
from typing import Any

BESIDE = ("agents", "dashboards", "worktrees")
"""The packages in which a feature may lie, other than this one."""


def load_part(place: str) -> Any:
    """Import `feature.module:name` or `dashboards.feature.module:name`."""
    module, _, name = place.partition(":")
    is_whole = module.partition(".")[0] in BESIDE
    return getattr(import_module(module if is_whole else f"fleet.features.{module}"), name)
