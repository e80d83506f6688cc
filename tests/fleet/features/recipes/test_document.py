"""The `fleet.toml` that is written: it loads under the rules for repositories, and each line has a reason."""

from pathlib import Path

import pytest

from fleet.config.load import load_config
from fleet.features.recipes.find import find_recipes
from fleet.features.recipes.recipe import Reasoned, Recipe, fleet_toml
from fleet.features.recipes.tree import Tree
from tests.fleet.features.recipes.cases import CASES
from tests.fleet.features.recipes.test_find import first

ODD = 'sh "a\\b" \N{SNOWMAN}\N{GRINNING FACE} \' # [x]'


def load(folder: Path, text: str) -> dict[str, object]:
    (folder / "fleet.toml").write_text(text, encoding="utf-8")
    loaded = load_config(environ={}, repository=folder, user_file=None)
    return {key: value for section in loaded.config.model_dump().values() for key, value in section.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_recipe_makes_a_file_that_a_repository_may_have(name: str, tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    recipe = first(CASES[name])
    values = load(tmp_path, fleet_toml(recipe))
    assert values["gate"] == recipe.gate_command
    assert values["setup"] == recipe.setup
    assert values["environment"] == {key: each.value for key, each in recipe.environment.items()}
    assert values["include"] == tuple(each.value for each in recipe.include)


def test_each_line_has_a_reason_above_it() -> None:
    recipe = Recipe(
        "make",
        "make test",
        "Makefile has a target 'test'",
        setup="make deps",
        setup_why="it fetches",
        needs_network=True,
        include=(Reasoned("/data/", "the tests need it"),),
        environment={"CI": Reasoned("true", "no questions")},
        read_only=(Reasoned("{repo}/.venv", "your environment"),),
        path=(Reasoned("{repo}/.venv/bin", "its python3"),),
        locks=("web/package-lock.json",),
    )
    lines = fleet_toml(recipe, default_locks=frozenset({"uv.lock"})).splitlines()
    for key in ("gate", "setup", "lock_files", "include", "CI", "read_only", "path"):
        at = next(number for number, line in enumerate(lines) if line.startswith(f"{key} = "))
        assert lines[at - 1].startswith("# ")
    assert max(map(len, lines)) <= 120


def test_lock_files_stand_there_only_if_the_defaults_lack_one() -> None:
    recipe = Recipe("a", "b", "c", setup="d", setup_why="e", locks=("uv.lock",))
    assert "\nlock_files" not in fleet_toml(recipe, default_locks=frozenset({"uv.lock", "go.sum"}))
    assert "\nlock_files" in fleet_toml(recipe, default_locks=frozenset({"go.sum"}))


def test_odd_characters_reach_the_configuration_as_they_are(tmp_path: Path) -> None:
    text = fleet_toml(Recipe("a", ODD, "b\x1b[31m\nc"), ["x\ry"])
    assert load(tmp_path, text)["gate"] == ODD
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_file_without_a_recipe_is_one_to_fill_in(tmp_path: Path) -> None:
    text = fleet_toml(None)
    assert load(tmp_path, text)["gate"] == ""
    assert "No test command found" in text


def test_nothing_that_a_manifest_says_leaves_its_quotes(tmp_path: Path) -> None:
    files = {"web'; touch x; '/go.mod": "", 'lib"]\n[box]/go.mod': "", "requirements-dev.txt": ""}
    found = find_recipes(Tree.of(files, programs=("go",)))
    assert [part.folder for part in found.parts] == [""]
    [recipe, *_] = found.parts[0].recipes
    assert recipe.gate == """(cd 'web'"'"'; touch x; '"'"'' && go test ./...)"""
    assert load(tmp_path, fleet_toml(recipe))["gate"] == recipe.gate
