"""Parameters of a plan: declared, set, filled in where they stand, and refused with all that is wrong."""

from typing import Any

import pytest

from fleet.core.parameters import Filled, declared, examples, fill, said
from fleet.core.plan import Plan
from fleet.core.planfile import read_plan

PARAMETERS: dict[str, Any] = {
    "version": {"help": "which version"},
    "replicas": {"type": "integer", "default": 2},
    "limit": {"type": "number", "default": 0.5},
    "careful": {"type": "boolean", "default": True},
    "strategy": {"type": "choice", "choices": ["blue_green", "rolling"], "default": "rolling"},
}


def document(**subtask: Any) -> dict[str, Any]:
    check = {"criterion": "c", "run": "x"}
    made = {"id": "a", "title": "Ship it", "goal": "Ship it.", "acceptance": [check], **subtask}
    return {"goal": "Ship {set:version}", "parameters": PARAMETERS, "subtasks": [made]}


def filled(data: dict[str, Any], **given: str) -> Plan:
    found = fill(data, {"version": "v1", **given})
    assert isinstance(found, Filled), found
    plan = read_plan(found.document)
    assert isinstance(plan, Plan), plan
    return plan


def problems(data: dict[str, Any], **given: str) -> list[str]:
    found = fill(data, given)
    assert isinstance(found, tuple)
    return [str(problem) for problem in found]


def test_values_stand_wherever_their_placeholders_stood() -> None:
    plan = filled(
        document(
            title="Ship {set:version} to {set:replicas}",
            touches=["src/{set:version}/**"],
            acceptance=[{"criterion": "{set:strategy}", "run": "check {set:version} --replicas {set:replicas}"}],
        ),
        replicas="3",
    )
    assert plan.goal == "Ship v1"
    assert plan.subtasks[0].title == "Ship v1 to 3"
    assert plan.subtasks[0].touches == ("src/v1/**",)
    assert plan.subtasks[0].acceptance[0].run == "check v1 --replicas 3"
    assert plan.subtasks[0].acceptance[0].criterion == "rolling"


def test_what_a_worker_is_handed_keeps_its_type_and_numbers_are_read_from_text() -> None:
    handed = {"n": "{set:replicas}", "deep": [{"b": "{set:careful}"}], "said": "{set:replicas} of {set:limit}"}
    checked = [{"criterion": "c", "run": "x", "timeout_s": "{set:limit}", "fails_before": "{set:careful}"}]
    one = filled(document(parameters=handed, acceptance=checked), limit="2.5", careful="false").subtasks[0]
    assert one.parameters == {"n": 2, "deep": [{"b": False}], "said": "2 of 2.5"}
    assert (one.acceptance[0].timeout_s, one.acceptance[0].fails_before) == (2.5, False)


def test_a_plan_without_parameters_is_taken_as_it_stands() -> None:
    braces = 'awk \'{print $1}\' {a,b} ${x} {{y}} {set:version} {"a": {"b": 1}}'
    data = document(acceptance=[{"criterion": "c", "run": braces}])
    del data["parameters"]
    assert fill(data, {}) == Filled(data)


def test_braces_of_shells_and_json_are_left_alone_beside_parameters() -> None:
    braces = "awk '{print $1}' {a,b} ${x} {{y}} {version} {\"set\": 1} %{http_code}"
    plan = filled(document(acceptance=[{"criterion": "c", "run": braces}]))
    assert plan.subtasks[0].acceptance[0].run == braces


@pytest.mark.parametrize(
    ("given", "said_"),
    [
        ({}, "version: is missing: --set version=… (string: which version)"),
        ({"version": "1", "versoin": "1"}, "--set versoin: the plan has no such parameter; did you mean 'version'?"),
        ({"version": "1", "replicas": "many"}, "--set replicas: 'many' is no integer"),
        ({"version": "1", "replicas": "1.5"}, "--set replicas: '1.5' is no integer"),
        ({"version": "1", "limit": "inf"}, "--set limit: 'inf' is no number"),
        ({"version": "1", "careful": "yes"}, "--set careful: 'yes' is neither true nor false"),
        ({"version": "1", "strategy": "x"}, "--set strategy: 'x' is not one of blue_green, rolling"),
        ({"version": "a\nb"}, "--set version: holds a control character; a value is one line of text"),
        ({"version": "\x1b[31m"}, "--set version: holds a control character; a value is one line of text"),
        ({"version": "x" * 5000}, "--set version: has 5000 characters; at most 4000"),
    ],
)
def test_what_is_missing_unknown_or_of_another_type_is_refused(given: dict[str, str], said_: str) -> None:
    assert problems(document(), **given) == [said_]


def test_every_mistake_is_told_at_once() -> None:
    found = problems(document(title="{set:verison}"), replicas="x", other="1")
    assert [text.partition(":")[0] for text in found] == [
        "--set other",
        "version",
        "--set replicas",
        "subtasks[0].title",
    ]
    assert "declares no 'verison'; did you mean 'version'?" in found[3]


def test_a_value_never_changes_what_a_check_runs() -> None:
    quoted = document(acceptance=[{"criterion": "c", "run": 'grep "{set:version}" f'}])
    bare = document(acceptance=[{"criterion": "c", "run": "grep {set:version} f"}])
    hostile = "x; touch pwned"
    [problem] = problems(quoted, version=hostile)
    assert problem.startswith("subtasks[0].acceptance[0].run: {set:version}: 'x; touch pwned' could change what")
    assert filled(bare, version=hostile).subtasks[0].acceptance[0].run == "grep 'x; touch pwned' f"
    assert "could change" in problems(bare, version="-r")[0]


def test_a_command_with_placeholders_is_of_a_readable_length() -> None:
    endless = document(acceptance=[{"criterion": "c", "run": "sed {set:version}; " * 100_000}])
    assert "with placeholders at most 10000" in problems(endless, version="v1")[0]


def test_a_value_never_widens_what_may_be_changed() -> None:
    data = document(touches=["src/{set:version}/x.py"], context=["{set:version}"])
    assert [problem.partition(":")[0] for problem in problems(data, version="**")] == [
        "subtasks[0].touches[0]",
        "subtasks[0].context[0]",
    ]
    found = fill(data, {"version": "../.."})
    assert isinstance(found, Filled)
    assert isinstance(read_plan(found.document), tuple)


def test_a_value_is_no_placeholder_and_no_plan() -> None:
    assert filled(document(title="{set:version}"), version="{set:replicas}").subtasks[0].title == "{set:replicas}"


@pytest.mark.parametrize(
    ("table", "said_"),
    [
        (["a"], "parameters: is a table"),
        ({"a b": {}}, "parameters.a b: 1 to 64 letters"),
        ({"a": {"type": "date"}}, "parameters.a.type"),
        ({"a": {"kind": "string"}}, "parameters.a.kind: is no field here"),
        ({"a": {"type": "choice"}}, "parameters.a.choices"),
        ({"a": {"choices": ["x"]}}, "parameters.a.choices"),
        ({"a": {"type": "integer", "default": "2"}}, "parameters.a.default: '2' is no integer"),
        ({"a": {"type": "integer", "default": True}}, "parameters.a.default: 'True' is no integer"),
        ({"a": {"default": 3}}, "parameters.a.default: is no text"),
    ],
)
def test_a_declaration_that_can_not_be_meant_is_refused(table: object, said_: str) -> None:
    found = declared({"parameters": table})
    assert isinstance(found, tuple)
    assert [str(problem)[: len(said_)] for problem in found] == [said_]


def test_what_a_plan_takes_is_said_in_lines_and_can_be_tried_out() -> None:
    parameters = declared(document())
    assert isinstance(parameters, dict)
    assert said(parameters)[0] == "version (string; required): which version"
    assert said(parameters)[4] == "strategy (one of blue_green, rolling; default rolling)"
    assert isinstance(fill(document(), examples(parameters)), Filled)
