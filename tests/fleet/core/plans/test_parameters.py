"""Parameters of a plan: declared, set, filled in, and refused with everything that is wrong."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from fleet.core.plans.parameters import Filled, example_settings, fill, parameter_lines, read_parameters, read_plan
from fleet.core.plans.plan import Plan

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


def test_values_replace_their_placeholders_everywhere() -> None:
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


def test_a_plan_without_parameters_is_used_unchanged() -> None:
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
        ({}, "version: is required: pass --set version=… (string: which version)"),
        ({"version": "1", "versoin": "1"}, "--set versoin: is not a parameter of the plan; did you mean 'version'?"),
        ({"version": "1", "replicas": "many"}, "--set replicas: 'many' is not an integer"),
        ({"version": "1", "replicas": "1.5"}, "--set replicas: '1.5' is not an integer"),
        ({"version": "1", "limit": "inf"}, "--set limit: 'inf' is not a number"),
        ({"version": "1", "careful": "yes"}, "--set careful: 'yes' is neither true nor false"),
        ({"version": "1", "strategy": "x"}, "--set strategy: 'x' is not one of blue_green, rolling"),
        ({"version": "a\nb"}, "--set version: contains a control character. A value must be one line of text"),
        ({"version": "\x1b[31m"}, "--set version: contains a control character. A value must be one line of text"),
        ({"version": "x" * 5000}, "--set version: has 5000 characters, and the limit is 4000"),
    ],
)
def test_what_is_missing_unknown_or_of_another_type_is_refused(given: dict[str, str], said_: str) -> None:
    assert problems(document(), **given) == [said_]


def test_every_mistake_is_reported_at_once() -> None:
    found = problems(document(title="{set:verison}"), replicas="x", other="1")
    assert [text.partition(":")[0] for text in found] == [
        "--set other",
        "version",
        "--set replicas",
        "subtasks[0].title",
    ]
    assert "does not declare 'verison'; did you mean 'version'?" in found[3]


def test_a_value_never_changes_what_a_check_runs() -> None:
    quoted = document(acceptance=[{"criterion": "c", "run": 'grep "{set:version}" f'}])
    [problem] = problems(quoted, version="x; touch pwned")
    assert problem.startswith("subtasks[0].acceptance[0].run: {set:version}: 'x; touch pwned' could change the meaning")


HOSTILE = (
    *("x; touch pwned", "$(touch pwned)", "`touch pwned`", "x' ; touch pwned ; '", 'x" ; touch pwned ; "', "*", "a b"),
    *(
        "x\\' ; touch pwned #",
        "x && touch pwned",
        "{a,b}",
        "~",
        "$HOME",
        "!!",
        "x)touch pwned",
        "a[$(touch pwned)]",
        "",
    ),
    *("a,b", "-rf", "x|touch pwned", "x>pwned", "é"),
)
SHOWS = "printf '<%s>'"
COMMANDS = (
    *(f"{SHOWS} {{set:version}}", f'{SHOWS} "{{set:version}}"', f"{SHOWS} '{{set:version}}'"),
    *(f"{SHOWS} a{{set:version}}b", f'{SHOWS} "$(printf %s {{set:version}})"', "true # {set:version}"),
    *(f"{SHOWS} \\{{set:version}}", f"{SHOWS} $'{{set:version}}'", "cat <<E\n{set:version}\nE"),
    *(f"{SHOWS} `printf %s {{set:version}}`", "echo $(( {set:version} + 1 ))", "[[ {set:version} -eq 1 ]]"),
    *("sh -c {set:version}", "sh -c 'printf %s {set:version}'", "eval printf %s {set:version}", "read {set:version}"),
    *("printf -v {set:version} x", "test -v {set:version}", "export {set:version}", "unset {set:version}"),
    *(
        f"case x in x) {SHOWS} {{set:version}};; esac",
        "awk 'BEGIN {{ print \"{set:version}\" }}'",
        "tool --x={set:version}",
    ),
)


@pytest.mark.parametrize("run", COMMANDS)
def test_a_command_takes_a_value_of_plain_characters_anywhere_and_no_other(run: str, tmp_path: Path) -> None:
    data = document(acceptance=[{"criterion": "c", "run": run}])
    for hostile in HOSTILE:
        [problem] = problems(data, version=hostile)
        assert "could change the meaning of this command" in problem
    command = filled(data, version="v2.1.4/a_b@c%d+e=f:g-h").subtasks[0].acceptance[0].run
    assert command == run.replace("{set:version}", "v2.1.4/a_b@c%d+e=f:g-h")
    for shell in ("sh", "bash"):
        subprocess.run([shell, "-c", command], cwd=tmp_path, capture_output=True, check=False, timeout=10)
    assert list(tmp_path.iterdir()) == []


def test_a_value_in_a_command_is_one_word_and_no_variable(tmp_path: Path) -> None:
    command = filled(document(acceptance=[{"criterion": "c", "run": f"{SHOWS} {{set:version}}"}]), version="v1:a=b")
    line = command.subtasks[0].acceptance[0].run or ""
    shown = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=10)
    assert shown.stdout == "<v1:a=b>"
    variable = document(acceptance=[{"criterion": "c", "run": "echo ${set:version}"}])
    assert "can't follow a $" in problems(variable, version="v1")[0]


def test_only_what_the_author_listed_or_a_number_may_be_an_option() -> None:
    parameters = {"level": {"type": "integer"}, "flag": {"type": "choice", "choices": ["-q", "a b"]}}
    check = {"criterion": "c", "run": "tool {set:level} {set:flag}"}
    data = document(acceptance=[check]) | {"goal": "g", "parameters": parameters}
    plan = fill(data, {"level": "-3", "flag": "-q"})
    assert isinstance(plan, Filled)
    read = read_plan(plan.document)
    assert isinstance(read, Plan)
    assert read.subtasks[0].acceptance[0].run == "tool -3 -q"
    assert "'a b' could change" in problems(data, level="1", flag="a b")[0]


def test_many_placeholders_are_filled_in_quickly() -> None:
    many = document(acceptance=[{"criterion": "c", "run": "sed {set:version}; " * 100_000}])
    assert len(filled(many).subtasks[0].acceptance[0].run or "") == 800_000


def test_a_value_never_widens_what_may_be_changed() -> None:
    data = document(touches=["src/{set:version}/x.py"], context=["{set:version}"])
    assert [problem.partition(":")[0] for problem in problems(data, version="**")] == [
        "subtasks[0].touches[0]",
        "subtasks[0].context[0]",
    ]
    found = fill(data, {"version": "../.."})
    assert isinstance(found, Filled)
    assert isinstance(read_plan(found.document), tuple)


def test_a_placeholder_in_a_value_is_not_filled_in() -> None:
    assert filled(document(title="{set:version}"), version="{set:replicas}").subtasks[0].title == "{set:replicas}"


@pytest.mark.parametrize(
    ("table", "said_"),
    [
        (["a"], "parameters: must be a table"),
        ({"a b": {}}, "parameters.a b: must start with a letter"),
        ({"a": {"type": "date"}}, "parameters.a.type"),
        ({"a": {"kind": "string"}}, "parameters.a.kind: is not a field here"),
        ({"a": {"type": "choice"}}, "parameters.a.choices"),
        ({"a": {"choices": ["x"]}}, "parameters.a.choices"),
        ({"a": {"type": "integer", "default": "2"}}, "parameters.a.default: '2' is not an integer"),
        ({"a": {"type": "integer", "default": True}}, "parameters.a.default: 'True' is not an integer"),
        ({"a": {"default": 3}}, "parameters.a.default: is not text"),
    ],
)
def test_a_declaration_that_can_not_be_meant_is_refused(table: object, said_: str) -> None:
    found = read_parameters({"parameters": table})
    assert isinstance(found, tuple)
    assert [str(problem)[: len(said_)] for problem in found] == [said_]


def test_what_a_plan_takes_is_said_in_lines_and_can_be_tried_out() -> None:
    parameters = read_parameters(document())
    assert isinstance(parameters, dict)
    assert parameter_lines(parameters)[0] == "version (string; required): which version"
    assert parameter_lines(parameters)[4] == "strategy (one of blue_green, rolling; default rolling)"
    assert isinstance(fill(document(), example_settings(parameters)), Filled)
