"""The tests that a verdict rests on: which changed files judge the change, and which tests have to have run."""

import pytest

from fleet.core.base.paths import is_test
from fleet.core.facts.facts import RanTests
from fleet.core.plans.plan import Criterion
from fleet.core.verdicts.summaries import borrowed_tests, missing_tests, named_tests, starts_pytest

BEFORE = RanTests(ran=frozenset({"tests/test_a.py::tests.test_a::one", "tests/test_b.py::tests.test_b::two"}))
NONE = RanTests()


def judged(path: str, command: str, *touches: str) -> bool:
    criteria = [Criterion(criterion="it works", run=command)]
    return named_tests(criteria, borrowed_tests([path], touches)) == (path,)


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


def test_what_a_command_names_and_is_not_a_test_is_what_it_judges() -> None:
    assert not judged("src/roman.py", "ruff check src/roman.py")


@pytest.mark.parametrize(
    "path",
    [
        "tests/data.json",
        "test_a.py",
        "pkg/a_test.go",
        "web/a.spec.ts",
        "a.test.js",
        "src/FooTest.java",
        "spec/a.rb",
        "pkg/testdata/sums.txt",
        "ui/__snapshots__/a.html",
        "src/snapshots/a.snap",
    ],
)
def test_tests_are_known_by_name_or_place(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize(
    "path", ["src/latest.py", "src/contest/a.py", "attest.py", "docs/testing.md", "a/inspect.rb", "data/test.csv.py"]
)
def test_other_files_are_none(path: str) -> None:
    assert not is_test(path)


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "pytest -q tests/test_a.py",
        "python -m pytest -x",
        "cd sub && python3.11 -m pytest",
        ".venv/bin/python -B -m pytest",
        "FOO=1 timeout 60 uv run pytest -q",
        "ruff check . ; pytest",
    ],
)
def test_a_command_that_starts_pytest_owes_a_report(command: str) -> None:
    assert starts_pytest(command)


@pytest.mark.parametrize(
    "command",
    [
        "make test",
        "grep -q pytest pyproject.toml",
        "pip show pytest",
        "pytest --version",
        "pytest --junitxml=mine.xml",
        "PYTEST_ADDOPTS= pytest",
        "pytest -p no:junitxml",
        "python -m pytest_cov",
        "pytest-watch",
    ],
)
def test_others_owe_none(command: str) -> None:
    assert not starts_pytest(command)


def test_what_ran_before_has_to_pass_now() -> None:
    assert missing_tests(BEFORE, NONE, changed=(), touches=()) == tuple(sorted(BEFORE.ran))
    assert missing_tests(BEFORE, RanTests(passed=BEFORE.ran), changed=(), touches=()) == ()
    assert missing_tests(NONE, NONE, changed=(), touches=()) == ()


def test_files_that_were_changed_or_handed_over_may_lose_tests() -> None:
    two = ("tests/test_b.py::tests.test_b::two",)
    assert missing_tests(BEFORE, NONE, changed=("tests/test_a.py",), touches=()) == two
    assert missing_tests(BEFORE, NONE, changed=("sub/tests/test_a.py",), touches=()) == two, "pytest began in `sub`"
    assert missing_tests(BEFORE, NONE, changed=(), touches=("tests/test_a*",)) == two


def test_where_only_their_number_is_known_fewer_tests_are_missed() -> None:
    before, fewer = RanTests(count=3, failed=1), RanTests(count=2)
    assert missing_tests(before, fewer, changed=("lib.py",), touches=()) == ("3 tests ran before, 2 pass now",)
    assert missing_tests(before, RanTests(count=3), changed=("lib.py",), touches=()) == ()
    assert missing_tests(before, fewer, changed=("tests/test_a.py",), touches=()) == ()
    assert missing_tests(before, fewer, changed=("src/lib.rs",), touches=()) == (), "it holds tests of its own"
    assert missing_tests(before, RanTests(count=0), changed=("src/lib.rs",), touches=()) != ()
