"""What a red try says is missing, and the recipe that adds it."""

import pytest

from fleet.features.recipes.lacking import private_files, ran_nothing, remedies, wants_network
from fleet.features.recipes.recipe import Recipe
from fleet.features.recipes.tree import Tree

GATE = Recipe("make", "make test", "Makefile has a target 'test'")


def first(output: str, tree: Tree, recipe: Recipe = GATE) -> Recipe:
    return next(iter(remedies(recipe, output, tree))).recipe


def test_a_module_below_a_folder_of_sources_gets_on_the_path() -> None:
    tree = Tree.of({"lib/calc/__init__.py": "", "tests/calc.py": ""})
    found = first("E   ModuleNotFoundError: No module named 'calc'", tree)
    assert found.environment["PYTHONPATH"].value == "lib"


def test_a_module_of_others_is_no_reason_for_a_path() -> None:
    assert list(remedies(GATE, "ModuleNotFoundError: No module named 'numpy'", Tree.of({"src/a.py": ""}))) == []


def test_ignored_files_that_the_output_names_are_copied() -> None:
    tree = Tree.of({}, ignored=("data/", "models/big.bin", "node_modules/", "build/", "x.o"))
    found = first("cannot open data/words.txt; build/a is missing; node_modules/x too", tree)
    assert [each.value for each in found.include] == ["/data/"]
    found = first("no models/big.bin", tree)
    assert [each.value for each in found.include] == ["/models/big.bin"]


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "server.key", "id_rsa", "secrets.toml", ".npmrc", "api_token.txt"]
)
def test_files_that_may_hold_secrets_are_never_copied(name: str) -> None:
    tree = Tree.of({}, ignored=(name,))
    assert list(remedies(GATE, f"{name} is missing: {name}: No such file", tree)) == []
    assert private_files(tree) == (name,)


def test_the_example_of_an_env_file_is_copied_where_the_output_asks_for_the_file() -> None:
    tree = Tree.of({".env.example": "A=1\n"})
    assert first("FileNotFoundError: '.env'", tree).setup == "cp .env.example .env"


def test_a_missing_variable_gets_the_value_of_the_example() -> None:
    tree = Tree.of({".env.example": "# where\nDATABASE_URL='sqlite://'\nexport PORT=80\nHOME_URL=$HOME\n"})
    found = [each.recipe for each in remedies(GATE, "KeyError: 'DATABASE_URL'", tree)]
    assert found[0].setup == "cp .env.example .env"
    assert {name: each.value for name, each in found[1].environment.items()} == {
        "DATABASE_URL": "sqlite://",
        "PORT": "80",
    }


def test_commits_in_tests_get_an_author() -> None:
    found = first("fatal: unable to auto-detect email address", Tree.of({}))
    assert found.environment["GIT_AUTHOR_NAME"].value == "fleet"


def test_what_was_not_built_is_built_first() -> None:
    tree = Tree.of({"package.json": '{"scripts": {"build": "tsc"}}'})
    recipe = Recipe("JavaScript with npm", "npm test", "a script")
    found = first("Error: Cannot find module '/repo/dist/index.js'", tree, recipe)
    assert found.gate == "npm run build && npm test"


def test_a_remedy_that_was_applied_is_not_offered_again() -> None:
    tree = Tree.of({}, ignored=("data/",))
    once = first("data/x", tree)
    assert list(remedies(once, "data/x", tree)) == []


@pytest.mark.parametrize(
    "output",
    [
        "npm error code EAI_AGAIN",
        "Could not resolve host: example.test",
        "dial tcp: lookup proxy.example.test: no such host",
        "Temporary failure in name resolution",
    ],
)
def test_a_missing_network_is_seen(output: str) -> None:
    assert wants_network(output)
    assert not wants_network("1 passed")


@pytest.mark.parametrize(
    "output",
    [
        "Ran 0 tests in 0.000s\n\nOK",
        "?   \tcalc\t[no test files]",
        "No tests were found!!!",
        "running 0 tests",
        "1..0\n# tests 0",
    ],
)
def test_a_command_that_ran_no_test_is_seen(output: str) -> None:
    assert ran_nothing(output)


@pytest.mark.parametrize(
    "output",
    [
        "Ran 3 tests in 0.1s",
        "running 0 tests\n\nrunning 2 tests",
        "ok  \tcalc\t0.01s\n?   \tcmd\t[no test files]",
        "all is well",
    ],
)
def test_a_command_that_ran_tests_or_says_nothing_is_believed(output: str) -> None:
    assert not ran_nothing(output)
