"""Views are values with typed fields, and their dump is JSON."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import pytest

from fleet import read as views
from fleet.core.facts.facts import Report
from fleet.read.base_view import SCHEMA_VERSION, dump_view


def all_views() -> Iterator[type]:
    for module in walk_packages(views.__path__, f"{views.__name__}."):
        for kind in vars(import_module(module.name)).values():
            if isinstance(kind, type) and is_dataclass(kind) and kind.__module__ == module.name:
                yield kind


@pytest.mark.parametrize("view", [*all_views()], ids=lambda view: view.__name__)
def test_a_view_is_frozen_and_no_field_holds_just_anything(view: type) -> None:
    parameters: Any = view.__dict__["__dataclass_params__"]
    assert parameters.frozen
    assert [field.name for field in fields(view) if "Any" in str(field.type)] == []


@dataclass(frozen=True, slots=True)
class _Inner:
    class_: str


@dataclass(frozen=True, slots=True)
class _Outer:
    inner: tuple[_Inner, ...]
    by_name: dict[str, _Inner]
    report: Report


def test_a_dump_has_the_version_and_the_views_in_it() -> None:
    report = Report(status="done", summary="did it", needs=("a key",))
    dumped = dump_view(_Outer((_Inner("check"),), {"a": _Inner("bounds")}, report))
    assert dumped == {
        "schema_version": SCHEMA_VERSION,
        "inner": [{"class": "check"}],
        "by_name": {"a": {"class": "bounds"}},
        "report": json.loads(report.model_dump_json()),
    }
