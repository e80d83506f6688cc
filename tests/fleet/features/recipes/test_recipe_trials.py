"""Recipes tried in real boxes: red leads to the next candidate, what is missing is added, what needs a yes is asked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleet.config.load import load_config
from fleet.features.recipes.find import find_recipes
from fleet.features.recipes.recipe import Recipe
from fleet.features.recipes.trials import (
    Permission,
    Settled,
    Trials,
    TrialSettings,
    Tried,
    chain_of,
    config_with,
    read_project,
)
from tests.worktrees.conftest import git, make_repository

UNITTEST = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        {body}\n"
PASSES = UNITTEST.format(body="self.assertTrue(True)")


@dataclass
class Person:
    """Answers every question alike, and remembers what was asked and told."""

    answer: bool = False
    asked: list[tuple[Permission, str]] = field(default_factory=list)
    told: list[Tried] = field(default_factory=list)

    def ask(self, what: Permission, name: str, why: str) -> bool:
        assert why
        self.asked.append((what, name))
        return self.answer

    def report(self, tried: Tried) -> None:
        self.told.append(tried)


def no_tool_chain(program: str) -> str:
    assert program
    return ""


async def settle(
    folder: Path,
    files: Mapping[str, str],
    person: Person | None = None,
    *,
    beside: Mapping[str, str] = {},
    other: Callable[[str], str] = no_tool_chain,
) -> tuple[Settled, Trials]:
    """What comes of a repository with these files, and with these others that git ignores."""
    root = make_repository(folder / "project", dict(files))
    for name, text in beside.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    config = load_config(environ={}, user_file=None, flags={"state.dir": str(folder / "state")}).config
    tree = await read_project(root, lambda name: name in {"make", "python3"})
    person = person or Person()
    trials = Trials(TrialSettings(config, {}, root, no_tool_chain, other), tree, person.ask, person.report)
    return await trials.settle(find_recipes(tree)), trials


def verdicts(trials: Trials) -> list[tuple[str, str | None]]:
    return [(tried.recipe.gate, tried.verdict) for tried in trials.tried]


@pytest.mark.anyio
async def test_a_red_command_leads_to_the_next_one(tmp_path: Path) -> None:
    files = {
        "Makefile": "test:\n\tno-such-runner\n",
        ".gitlab-ci.yml": "t:\n  script:\n    - make test\n",
        "test_a.py": PASSES,
    }
    person = Person()
    settled, trials = await settle(tmp_path, files, person)
    assert verdicts(trials) == [("make test", "red"), ("python3 -m unittest", "green")]
    assert settled.recipe is not None
    assert settled.recipe.gate == "python3 -m unittest"
    red = trials.tried[0].trial
    assert red is not None
    assert any("no-such-runner" in line for line in red.causes)
    assert [tried.verdict for tried in person.told] == [None, "red", None, "green"]


@pytest.mark.anyio
async def test_files_that_git_ignores_are_copied_where_the_tests_name_them(tmp_path: Path) -> None:
    files = {"Makefile": "test:\n\ttest -f data/a.txt || { echo data/a.txt; false; }\n", ".gitignore": "data/\n"}
    settled, trials = await settle(tmp_path, files, beside={"data/a.txt": "a"})
    assert verdicts(trials) == [("make test", "red"), ("make test", "green")]
    assert settled.recipe is not None
    assert [each.value for each in settled.recipe.include] == ["/data/"]


@pytest.mark.anyio
async def test_variables_come_from_the_example_of_an_env_file(tmp_path: Path) -> None:
    body = "import os; self.assertEqual(os.environ['DATABASE_URL'], 'sqlite://')"
    files = {"test_a.py": UNITTEST.format(body=body), ".env.example": "DATABASE_URL=sqlite://\n"}
    settled, _ = await settle(tmp_path, files)
    assert settled.recipe is not None
    assert settled.recipe.environment["DATABASE_URL"].value == "sqlite://"


@pytest.mark.anyio
async def test_a_set_up_that_needs_the_network_is_not_tried_without_a_yes(tmp_path: Path) -> None:
    person = Person()
    files = {"requirements.txt": "no-such-package\n", "test_a.py": PASSES}
    settled, trials = await settle(tmp_path, files, person)
    assert person.asked == [("network", "")]
    assert [tried.verdict for tried in trials.tried] == ["not tried", "green"]
    assert settled.recipe is not None
    assert not settled.recipe.setup


@pytest.mark.anyio
async def test_a_command_that_runs_no_test_counts_only_if_nothing_better_is_there(tmp_path: Path) -> None:
    files = {"test_a.py": "import unittest\n", "Makefile": "check:\n\techo '2 passed'\n"}
    settled, trials = await settle(tmp_path / "a", files)
    assert verdicts(trials) == [("python3 -m unittest", "no tests"), ("make check", "green")]
    assert settled.recipe is not None
    assert settled.recipe.gate == "make check"
    settled, _ = await settle(tmp_path / "b", {"test_a.py": "import unittest\n"})
    assert settled.verdict == "no tests"


@pytest.mark.anyio
async def test_the_parts_of_a_monorepo_are_tried_each_and_then_together(tmp_path: Path) -> None:
    files = {
        "api/setup.cfg": "",
        "api/test_a.py": PASSES,
        "lib/Makefile": "test:\n\techo ok\n",
        "old/Makefile": "test:\n\tfalse\n",
    }
    settled, trials = await settle(tmp_path, files)
    assert settled.verdict == "green"
    assert settled.left_out == ("old",)
    assert settled.recipe is not None
    assert settled.recipe.gate == "(cd api && python3 -m unittest) && (cd lib && make test)"
    assert trials.tried[-1].recipe.gate == settled.recipe.gate


@pytest.mark.anyio
async def test_nothing_of_the_repository_runs_outside_of_the_box(tmp_path: Path) -> None:
    outside = tmp_path / "touched"
    files = {"Makefile": f"test:\n\techo x > {outside} || touch /repo/inside\n", "test_a.py": PASSES}
    files["Makefile"] = f"test: $(shell touch {outside})\n\ttrue\n"
    _, trials = await settle(tmp_path, files)
    assert trials.tried
    assert not outside.exists()
    assert git(tmp_path / "project", "status", "--porcelain") == ""


def test_a_tool_chain_of_the_home_is_known_by_the_program_that_the_box_lacks(tmp_path: Path) -> None:
    for name in (".cargo/bin/cargo", ".cargo/bin/rustc", ".rustup/settings.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    assert chain_of("cargo", tmp_path, lambda name: name == "make") == "rustup"
    assert chain_of("cargo", tmp_path, lambda name: name == "cargo") == ""
    assert chain_of("node", tmp_path, lambda name: name == "make") == ""


def test_what_was_allowed_is_in_the_configuration_of_a_try_and_nothing_else_is(tmp_path: Path) -> None:
    config = load_config(environ={}, user_file=None).config
    recipe = Recipe("make", "make test", "a target", setup="make deps")
    plain = config_with(config, recipe, tmp_path)
    assert (plain.worktrees.setup_network, plain.box.tool_chains, plain.box.network) == ("none", (), False)
    allowed = config_with(config, recipe, tmp_path, [("network", ""), ("tool chain", "rustup")])
    assert (allowed.worktrees.setup_network, allowed.box.tool_chains, allowed.box.network) == (
        "base",
        ("rustup",),
        False,
    )
    assert (allowed.checks.gate, allowed.worktrees.setup) == ("make test", "make deps")


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [True, False])
async def test_a_tool_chain_of_the_home_is_offered_where_the_machine_s_own_is_too_old(
    tmp_path: Path, answer: bool
) -> None:
    files = {"Makefile": "test:\n\t@echo 'error: package `x` requires rustc 1.80 or newer'; false\n"}
    person = Person(answer)
    _, trials = await settle(tmp_path, files, person, other=lambda program: "rustup" if program == "cargo" else "")
    assert person.asked == [("tool chain", "rustup")]
    assert [tried.verdict for tried in trials.tried] == ["red"] * (1 + answer)
