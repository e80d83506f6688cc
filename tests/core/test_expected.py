"""Which tests have to have run, and which commands are sure to say so."""

import pytest

from fleet.core.expected import missing, starts_pytest
from fleet.core.facts import RanTests

BEFORE = RanTests(ran=frozenset({"tests/test_a.py::tests.test_a::one", "tests/test_b.py::tests.test_b::two"}))
NONE = RanTests()


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
    assert missing(BEFORE, NONE, changed=(), touches=()) == tuple(sorted(BEFORE.ran))
    assert missing(BEFORE, RanTests(passed=BEFORE.ran), changed=(), touches=()) == ()
    assert missing(NONE, NONE, changed=(), touches=()) == ()


def test_files_that_were_changed_or_handed_over_may_lose_tests() -> None:
    two = ("tests/test_b.py::tests.test_b::two",)
    assert missing(BEFORE, NONE, changed=("tests/test_a.py",), touches=()) == two
    assert missing(BEFORE, NONE, changed=("sub/tests/test_a.py",), touches=()) == two, "pytest began in `sub`"
    assert missing(BEFORE, NONE, changed=(), touches=("tests/test_a*",)) == two
