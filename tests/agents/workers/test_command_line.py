"""Placeholders: what a model wrote stays one argument; errors go to the operator or to the planner."""

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.workers.command import MissingValueError, line_problem, shell_line, values_of
from fleet.ports.agents import WorkerBrief


def filled(words: tuple[str, ...], **values: str) -> list[str]:
    """The arguments that a shell makes of the line."""
    line = shell_line(words, values)
    done = subprocess.run(
        ["sh", "-c", f"FLEET_REPORT=/r/x; for word in {line}; do printf '%s\\0' \"$word\"; done"],
        capture_output=True,
        check=True,
    )
    return [word.decode() for word in done.stdout.split(b"\0")[:-1]]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=0, max_size=40))
def test_any_value_stays_one_argument(goal: str) -> None:
    assert filled(("tool", "--goal={goal}!", "{goal}"), goal=goal) == ["tool", f"--goal={goal}!", goal]


def test_words_without_placeholders_stay_as_they_were_written() -> None:
    words = ("tool", "two words", "$HOME `id`", "{ goal }", "{}", '{"a": 1}', "", "--report={report}")
    assert filled(words) == ["tool", "two words", "$HOME `id`", "{ goal }", "{}", '{"a": 1}', "", "--report=/r/x"]


def test_parameters_of_the_plan_are_placeholders(brief: WorkerBrief) -> None:
    parameters = {"version": "1.2", "replicas": 3, "hosts": ["a", "b"], "dry": True}
    spec = brief.subtask.model_copy(update={"parameters": parameters})
    values = values_of(replace(brief, subtask=spec), model=None, subtask="/s.json", prompt="/p.md")
    words = tuple(f"{{parameters.{name}}}" for name in parameters)
    assert filled(words, **values) == ["1.2", "3", '["a", "b"]', "true"]


@pytest.mark.parametrize(
    ("words", "values", "message"),
    [
        (
            ("tool", "{parameters.version}"),
            {"parameters.dry": "x"},
            "requires parameters.version, but this subtask sets parameters.dry",
        ),
        (("tool", "{model}"), {}, "requires model, but this subtask sets none"),
        (("tool", "{goal}"), {"goal": "x" * 200_000}, "are too long"),
        (("tool", "{goal}"), {"goal": "a\0b"}, "contains a NUL"),
    ],
)
def test_a_value_that_the_subtask_does_not_set_is_an_error(
    words: tuple[str, ...], values: dict[str, str], message: str
) -> None:
    with pytest.raises(MissingValueError, match=message):
        shell_line(words, values)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "command is missing"),
        (("tool", "{gaol}"), "unknown placeholder {gaol}; did you mean 'goal'?"),
        (("{goal}", "x"), "the program itself can't be a placeholder"),
        (("sh", "-c", "echo {goal}"), "inside a script would be executed"),
        (("env", "A=1", "/bin/bash", "-lc", "echo {title}"), "inside a script would be executed"),
        (("python3", "-c", "print('{parameters.x}')"), "inside a script would be executed"),
    ],
)
def test_a_line_that_can_not_be_used_is_an_error(words: tuple[str, ...], message: str) -> None:
    assert message in (line_problem(words) or "")


@pytest.mark.parametrize(
    "words",
    [
        ("tool", "{goal}", "{parameters.x}"),
        ("sh", "-c", 'tool "$1" < {subtask}', "sh", "{goal}"),
        ("tool", "-c", "model={model}"),
    ],
)
def test_a_usable_line_is_accepted(words: tuple[str, ...]) -> None:
    assert line_problem(words) is None
