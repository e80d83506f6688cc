"""Detection over generated trees: what is found first for each kind of project. No tool need be installed."""

import pytest

from fleet.features.recipes.find import find_recipes
from fleet.features.recipes.recipe import Recipe, together
from fleet.features.recipes.tree import Tree
from tests.fleet.features.recipes.cases import CASES, PYTEST, UNITTEST, Case, package


def first(case: Case) -> Recipe:
    found = find_recipes(Tree.of(case.files, ignored=case.ignored, programs=case.programs))
    assert len(found.parts) == 1
    return found.parts[0].recipes[0].within(found.parts[0].folder)


@pytest.mark.parametrize("name", CASES)
def test_the_first_recipe_of_a_project(name: str) -> None:
    case = CASES[name]
    recipe = first(case)
    assert recipe.gate_command == case.gate
    assert case.setup in recipe.setup
    assert bool(recipe.setup) == bool(case.setup)
    assert {key: each.value for key, each in recipe.environment.items()} == case.environment


@pytest.mark.parametrize("name", CASES)
def test_every_part_of_a_recipe_has_a_reason(name: str) -> None:
    recipe = first(CASES[name])
    assert recipe.kind
    assert recipe.why
    assert bool(recipe.setup) == bool(recipe.setup_why)
    listed = (*recipe.include, *recipe.read_only, *recipe.path, *recipe.environment.values())
    assert all(each.why for each in listed)


def test_twenty_kinds_of_projects_are_known() -> None:
    kinds = {first(case).kind for case in CASES.values()}
    assert len(kinds) >= 20


def test_a_checkouts_virtual_environment_is_shown_read_only() -> None:
    recipe = first(CASES["a virtual environment in the checkout"])
    assert [each.value for each in recipe.read_only] == ["{repo}/.venv"]
    assert [each.value for each in recipe.path] == ["{repo}/.venv/bin"]


def test_a_monorepo_has_a_part_for_each_project_and_its_own_command_first() -> None:
    files = {
        "Makefile": "test:\n\tx\n",
        "api/requirements.txt": "pytest\n",
        "api/tests/test_a.py": PYTEST,
        "web/package.json": package(scripts={"test": "node --test"}),
        "web/node_modules/x/package.json": package(scripts={"test": "x"}),
        "tool/go.mod": "module a\n",
        "docs/package.json": package(scripts={"test": "x"}),
    }
    found = find_recipes(Tree.of(files))
    assert [part.folder for part in found.parts] == ["api", "tool", "web"]
    assert [recipe.gate for recipe in found.whole] == ["make test", "make test"]
    prepared = found.whole[1]
    assert prepared.gate_command == 'PATH="$PWD/api/.venv/bin:$PATH" make test'
    assert prepared.setup.startswith("(cd api && python3 -m venv .venv")
    whole = together(part.recipes[0].within(part.folder) for part in found.parts)
    assert whole.gate == (
        "(cd api && .venv/bin/python -m pytest -q) && (cd tool && go test ./...) && (cd web && npm test)"
    )


def test_a_folder_with_only_a_makefile_is_a_part_where_nothing_tests_everything() -> None:
    files = {"web/package.json": package(scripts={"test": "x"}), "native/Makefile": "test:\n\tx\n"}
    assert [part.folder for part in find_recipes(Tree.of(files)).parts] == ["web", "native"]
    found = find_recipes(Tree.of({**files, "Makefile": "test:\n\tx\n"}))
    assert [part.folder for part in found.parts] == [""]
    assert [recipe.gate for recipe in found.parts[0].recipes] == ["(cd web && npm test)", "make test"]


def test_two_kinds_at_the_root_are_two_parts() -> None:
    files = {
        "manage.py": "DJANGO_SETTINGS_MODULE",
        "app/tests.py": UNITTEST,
        "package.json": package(scripts={"test": "jest"}),
    }
    found = find_recipes(Tree.of(files))
    assert [part.recipes[0].gate for part in found.parts] == ["python3 manage.py test", "npm test"]


def test_what_a_workspace_covers_is_no_part_of_its_own() -> None:
    files = {
        "package.json": package(workspaces=["packages/*"], scripts={"test": "x"}),
        "packages/a/package.json": package(scripts={"test": "x"}),
        "packages/a/CMakeLists.txt": "",
    }
    found = find_recipes(Tree.of(files))
    assert [part.folder for part in found.parts] == [""]


def test_the_lock_files_that_a_set_up_reads_are_known() -> None:
    files = {"web/package.json": package(scripts={"test": "x"}, dependencies={"a": "1"}), "web/package-lock.json": "{}"}
    assert first(Case(files, "")).locks == ("web/package-lock.json",)


def test_nothing_is_found_where_nothing_is() -> None:
    assert find_recipes(Tree.of({"README.md": "make test\n", "src/main.c": ""})).parts == ()
    assert find_recipes(Tree.of({})).parts == ()
