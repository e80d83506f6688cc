"""Imports what an entry of the table names, when it is used."""

from importlib import import_module
from typing import Any


def load_part(place: str) -> Any:
    """What is at `feature.module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(f"fleet.features.{module}"), name)
