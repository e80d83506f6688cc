"""Which paths of a change could turn the verdict on it."""

import pytest

from fleet.core.plans.plan import Criterion
from fleet.core.verdicts.commands import CommandReading, reading
from fleet.core.verdicts.verdict_files import VerdictInfluence, influence, naming

BASE = frozenset(
    {
        "lib.py",
        "check.sh",
        "tests/test_a.py",
        "web/app.js",
        "pkg/__init__.py",
        "pkg/mod.py",
        "src/sums.py",
        "web/sum/index.js",
    }
)


def turned(
    *paths: str, touches: tuple[str, ...] = (), command: str = "pytest", base: frozenset[str] = BASE
) -> VerdictInfluence:
    return influence(paths, base, touches, reading(command), reading(command))


def test_judges_of_the_base_that_a_subtask_owns_are_its_own() -> None:
    assert turned("check.sh", "lib.py", command="sh check.sh").judges == ("check.sh",)
    assert turned("check.sh", command="sh check.sh", touches=("check.sh",)).judges == ()
    assert turned("tests/test_a.py").judges == ("tests/test_a.py",)
    assert turned("tests/test_a.py", touches=("tests/**",)).judges == ()


@pytest.mark.parametrize(
    "path",
    [
        "tests/test_b.py",
        "tests/helpers.py",
        "tests/__init__.py",
        "test_root.py",
        "web/app.test.js",
        "web/__mocks__/fs.js",
        "pkg/more_test.go",
        "__init__.py",
    ],
)
def test_code_that_joins_the_tests_is_judged_without(path: str) -> None:
    assert turned(path).tests == (path,)


@pytest.mark.parametrize(
    "path", ["new.py", "tests/data/case.json", "other/__init__.py", "src/testing/tool.py", "docs/test.md"]
)
def test_other_new_files_are_not(path: str) -> None:
    assert turned(path).tests == ()


def test_tests_that_it_may_add_are_left_out_too_unless_it_was_handed_old_ones() -> None:
    assert turned("tests/test_b.py", touches=("tests/test_b.py",)).tests == ("tests/test_b.py",)
    assert turned("tests/test_b.py", "tests/test_a.py", touches=("tests/**",)).tests == ()


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("json.py", "the module `json`"),
        ("unittest/__init__.py", "the module `unittest`"),
        ("tests/pytest.py", "the module `pytest`"),
        ("tests/test_a/__init__.py", "instead of tests/test_a.py"),
        ("lib/__init__.py", "instead of lib.py"),
        ("tests/lib.py", "instead of lib.py"),
        ("sums.py", "instead of src/sums.py"),
        ("lib.cpython-311-x86_64-linux-gnu.so", "instead of lib.py"),
        ("web/app.mjs", "instead of web/app.js"),
        ("web/sum.ts", "instead of web/sum/index.js"),
        ("web/node_modules/app/index.js", "installed packages"),
    ],
)
def test_what_takes_the_name_of_something_else_is_found(path: str, what: str) -> None:
    [(found, why)] = turned(path).shadows
    assert found == path
    assert what in why
    assert turned(path, touches=(path,)).shadows == (), "it owns the very file"
    assert turned(path, touches=("**",)).shadows != (), "a pattern does not name it"


@pytest.mark.parametrize(
    "path",
    ["pkg/json.py", "new/json.py", "web/app.d.ts", "web/other.ts", "docs/lib.md", "tests/test_json.py", "tool.py"],
)
def test_other_names_are_free(path: str) -> None:
    assert turned(path).shadows == ()


def test_a_module_that_becomes_a_package_takes_no_name() -> None:
    assert turned("lib.py", "lib/__init__.py").shadows == ()


@pytest.mark.parametrize("path", ["test", "test/README"])
def test_a_path_called_like_a_target_of_make_is_found(path: str) -> None:
    assert [found for found, _ in turned(path, command="make test").shadows] == [path]
    assert turned(path, command="make check").shadows == ()


def test_what_a_pattern_rule_would_make_is_noted() -> None:
    rules = CommandReading(targets=frozenset({"%.ok", "out/%", "%"}))
    for path, rule in (("add.ok", "%.ok"), ("out/sums", "out/%")):
        why = f"may be an output of the make rule `{rule}`, and is new"
        assert influence([path], BASE, (), rules, CommandReading()).noted == ((path, why),)
    assert influence(["add.sh"], BASE, (), rules, CommandReading()).noted == (), "a rule for everything says nothing"


def test_what_feeds_a_check_or_helps_tests_is_noted() -> None:
    assert turned("lib.py", command="python3 lib.py | grep 4").noted == (
        ("lib.py", "is used by a check, and was changed"),
    )
    base = BASE | {"helpers.py", "src/FakeClock.java"}
    notes = turned("helpers.py", "src/FakeClock.java", "lib.py", base=base).noted
    assert [path for path, _ in notes] == ["helpers.py", "src/FakeClock.java"]
    optional = influence(["local.sh"], BASE, (), CommandReading(judges=frozenset({"local.sh"})), CommandReading())
    assert optional.noted == (("local.sh", "is loaded by a check, and is new"),)


def test_a_criterion_names_a_new_test_by_file_module_or_new_folder() -> None:
    def named(command: str, *added: str) -> bool:
        return bool(naming([Criterion(criterion="it works", run=command)], added, BASE))

    assert named("pytest tests/test_b.py::test_it", "tests/test_b.py")
    assert named("python3 -m unittest tests.test_b", "tests/test_b.py")
    assert named("pytest tests/more/", "tests/more/test_m.py")
    assert named("cargo test --quiet --test more", "tests/more.rs")
    assert not named("cargo test --quiet", "tests/more.rs")
    assert not named("pytest tests", "tests/test_b.py")
    assert not named("pytest", "tests/test_b.py")
    assert not named("pytest tests/test_a.py", "tests/test_b.py")
