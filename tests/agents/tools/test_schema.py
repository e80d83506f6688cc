"""Strict mode compiles a grammar of bounded size: at most 24 optional fields and 16 unions, no free-form objects."""

from collections.abc import Iterator
from typing import Any

import pytest

from agents.planner import SubmitRevision
from agents.tools.registry import PLANNER_TOOLS
from agents.tools.report import ReportTool
from agents.tools.tool import strict_schema
from fleet.core.plans.revision import Revision
from tests.fleet.eyes import Files

SCHEMAS = [strict_schema(Revision), ReportTool().declaration["input_schema"]]


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from parts(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from parts(value)


def objects(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in parts(schema) if part.get("type") == "object"]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["revision", "report"])
def test_a_strict_schema_is_one_that_a_grammar_can_hold(schema: dict[str, Any]) -> None:
    assert all(part["additionalProperties"] is False and part["properties"] for part in objects(schema))
    optional = sum(len(part["properties"].keys() - set(part["required"])) for part in objects(schema))
    assert optional <= 24
    assert not [part for part in parts(schema) if "anyOf" in part or isinstance(part.get("type"), list)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["revision", "report"])
def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    wanted = {part["$ref"].removeprefix("#/$defs/") for part in parts(schema) if isinstance(part.get("$ref"), str)}
    assert wanted <= schema.get("$defs", {}).keys()


def test_a_subtask_asks_for_what_the_protocol_requires() -> None:
    subtask = strict_schema(Revision)["$defs"]["Subtask"]
    assert {"id", "title", "goal", "acceptance"} <= set(subtask["required"])
    assert "model" not in subtask["required"]


def test_what_ends_a_conversation_is_strict() -> None:
    async def submit(_revision: Revision) -> tuple[()]:
        return ()

    assert SubmitRevision(submit, repairs=1).declaration["strict"] is True
    assert ReportTool().declaration["strict"] is True
    assert ReportTool().declaration["input_schema"]["required"] == ["status", "summary"]


def test_the_planners_tools_have_the_names_of_the_protocol() -> None:
    assert PLANNER_TOOLS.keys() == {"list_files", "read_file", "search", "repo_map", "history"}
    for name, tool in PLANNER_TOOLS.items():
        assert tool(Files(), output_chars=10).declaration["name"] == name
