"""Files of strangers: malformed, deep, huge and odd. Detection answers, and quickly enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.features.recipes import runners
from fleet.features.recipes.find import FAMILIES, find_recipes
from fleet.features.recipes.tree import DEEPEST, LONGEST_NAME, MOST_NAMES, Tree, strings, table, usable_names
from tests.effort import examples

MANIFESTS = (
    *(
        "pyproject.toml",
        "tox.ini",
        "setup.cfg",
        "noxfile.py",
        "manage.py",
        "Pipfile",
        "requirements.txt",
        "tests/test_a.py",
    ),
    *("package.json", "pnpm-workspace.yaml", "yarn.lock", "deno.json", "Cargo.toml", "Cargo.lock", "go.mod", "go.work"),
    *(
        "pom.xml",
        "build.gradle",
        "CMakeLists.txt",
        "meson.build",
        "configure.ac",
        "Gemfile",
        "Rakefile",
        "composer.json",
    ),
    *(
        "mix.exs",
        "Makefile",
        "justfile",
        "Taskfile.yml",
        "mise.toml",
        "test.sh",
        ".github/workflows/a.yml",
        ".env.example",
    ),
)
NASTY = {
    "deep JSON": "[" * 100_000,
    "deep tables": '{"scripts":' * 5_000,
    "deep keys": "a." * 50_000 + "b = 1",
    "a number of a million digits": '{"scripts": ' + "9" * 1_000_000 + "}",
    "wrong types": '{"scripts": [1], "dependencies": "x", "workspaces": {"packages": 3}, "packageManager": 7}',
    "wrong tables": "project = 1\ntool = [1]\nworkspace = 'x'\ndependency-groups = 3\n[tasks]\ntest = 1\n",
    "null characters": "\x00" * 1_000,
    "no line ends": "test: " * 40_000,
    "spaces": " " * 200_000,
    "many lines": "deps =\n" + "    x\n" * 50_000,
    "many targets": "a b c d e f:\n" * 20_000,
    "half a character": "\ud800\udc00 caf\u00e9 \ufffd",
}


@pytest.mark.parametrize("name", NASTY)
def test_hostile_files_raise_nothing(name: str) -> None:
    tree = Tree.of(dict.fromkeys(MANIFESTS, NASTY[name]))
    for part in find_recipes(tree).parts:
        assert all(recipe.gate and recipe.kind for recipe in part.recipes)


@pytest.mark.parametrize("family", [*FAMILIES, "ci", "runners"])
@given(texts=st.lists(st.text(max_size=200), min_size=1, max_size=5))
@examples(15)
def test_any_text_raises_nothing(family: str, texts: list[str]) -> None:
    detect = {**FAMILIES, "ci": runners.detect_ci, "runners": runners.detect}[family]
    files = {name: texts[number % len(texts)] for number, name in enumerate(MANIFESTS)}
    assert all(recipe.gate for recipe in detect(Tree.of(files)))


def test_only_usable_names_are_looked_at() -> None:
    deep = "/".join("a" * (DEEPEST + 2))
    assert usable_names(["a\nb", "x" * (LONGEST_NAME + 1), deep, "ok", "e\x1b"]) == ("ok",)
    many = usable_names([f"f{number}" for number in range(MOST_NAMES + 10)])
    assert len(many) == MOST_NAMES


def test_values_of_the_wrong_type_are_empty() -> None:
    assert table({"a": {"b": 1}}, "a", "b") == {}
    assert table([1]) == {}
    assert strings("abc") == ()
    assert strings(["a", 1, "", "b\n"]) == ("a",)
    tree = Tree.of({"a.json": "[1]", "b.json": "{", "a.toml": "x"})
    assert tree.json("a.json") == tree.json("b.json") == tree.toml("a.toml") == tree.json("none.json") == {}


def test_a_command_of_ci_is_one_printable_line() -> None:
    lines = f"  - run: make test \x1b[31m\n  - run: {'pytest ' * 1_000}\n  - run: make test-all\n"
    assert runners.commands(Tree.of({".gitlab-ci.yml": lines})) == (("make test-all", ".gitlab-ci.yml"),)
