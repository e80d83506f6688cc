"""Which of the changed files judge the change."""

import pytest

from fleet.core.evidence import borrowed_tests, is_test, named_by
from fleet.core.plan import Criterion


def judged(path: str, command: str, *touches: str) -> bool:
    criteria = [Criterion(criterion="it works", run=command)]
    return named_by(criteria, borrowed_tests([path], touches)) == (path,)


@pytest.mark.parametrize(
    "command",
    [
        "pytest tests/test_roman.py",
        "pytest tests/test_roman.py::test_four -q",
        "pytest ./tests",
        "pytest tests/ && true",
        "python3 -m unittest tests.test_roman",
        "python3 -m unittest tests.test_roman.Roman.test_four",
        "cd . && pytest 'tests/test_roman.py'",
    ],
)
def test_a_test_is_known_by_every_way_a_command_names_it(command: str) -> None:
    assert judged("tests/test_roman.py", command)


@pytest.mark.parametrize("command", ["pytest tests/test_romance.py", "make test", "pytest", "pytest tests/test_rom"])
def test_a_command_that_does_not_name_it_judges_by_others(command: str) -> None:
    assert not judged("tests/test_roman.py", command)


def test_what_the_plan_handed_over_may_be_changed() -> None:
    assert not judged("tests/test_roman.py", "pytest tests", "tests/test_roman.py")
    assert not judged("tests/test_roman.py", "pytest tests", "tests/**")
    assert judged("tests/test_roman.py", "pytest tests", "src/**")


def test_what_a_command_names_and_is_no_test_is_what_it_judges() -> None:
    assert not judged("src/roman.py", "ruff check src/roman.py")


@pytest.mark.parametrize(
    "path",
    ["tests/data.json", "test_a.py", "pkg/a_test.go", "web/a.spec.ts", "a.test.js", "src/FooTest.java", "spec/a.rb"],
)
def test_tests_are_known_by_name_or_place(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", ["src/latest.py", "src/contest/a.py", "attest.py", "docs/testing.md", "a/inspect.rb"])
def test_other_files_are_none(path: str) -> None:
    assert not is_test(path)
