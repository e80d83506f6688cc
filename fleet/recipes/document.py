"""The text of a `fleet.toml`: what a recipe needs, with a reason above each line, and the keys that most people set."""

from collections.abc import Iterable, Iterator, Mapping

from fleet.config.toml import dump_toml
from fleet.recipes.recipe import Reasoned, Recipe

HEAD = """\
# Configuration of fleet for this repository. `fleet config show` prints every key, `fleet try` tries set-up and gate.
# This file is read from your checkout. Keys that concern your machine (keys, network, sandbox, other folders) are
# refused here: put them into your own configuration file or on the command line.
"""
NO_GATE = "No test command was found: fill it in."
RUN = """
[run]
# How many workers may run at the same time, and how many dollars a run may cost.
# workers = 16
# budget_dollars = 10.0
"""
NAMED = """
# Names that plans may use instead of commands.
# [checks.named]
# lint = "ruff check ."
"""
NO_SETUP = """
# What prepares a worktree: a command that runs in the box, and files that git ignores, copied from your checkout.
# [worktrees]
# setup = "make deps"
# include = ["data/sample.bin"]
"""
NO_BOX = """
# Folders of the repository that git ignores but its tests need; workers can read but not change them.
# [box]
# read_only = ["{repo}/.venv"]
# path = ["{repo}/.venv/bin"]
"""
LONGEST_COMMENT = 118  # columns


def fleet_toml(
    recipe: Recipe | None, remarks: Iterable[str] = (), *, default_locks: frozenset[str] = frozenset()
) -> str:
    """The file for a recipe; without one, the file that a person fills in. Each remark becomes a comment at the gate.

    `default_locks` are the lock files that need not be named.
    """
    parts = [HEAD, *_checks(recipe, remarks), NAMED]
    if recipe is None:
        return "".join((*parts, RUN, NO_SETUP, NO_BOX))
    parts += _worktrees(recipe, default_locks) or [NO_SETUP]
    parts += _box(recipe) or [NO_BOX]
    return "".join((*parts, RUN))


def _checks(recipe: Recipe | None, remarks: Iterable[str]) -> Iterator[str]:
    yield "\n[checks]\n# The command that must pass on every tree that lands.\n"
    yield _comment(f"{recipe.kind}: {recipe.why}." if recipe else NO_GATE)
    yield from map(_comment, remarks)
    yield _line("gate", recipe.gate_command if recipe else "")


def _worktrees(recipe: Recipe, default_locks: frozenset[str]) -> list[str]:
    lines = list[str]()
    if recipe.setup:
        needs = " It needs the network: worktrees.setup_network, in your own configuration."
        why = f"Runs in the box before work begins: {recipe.setup_why}.{needs if recipe.needs_network else ''}"
        lines += [_comment(why), _line("setup", recipe.setup)]
    if recipe.setup and not default_locks.issuperset(recipe.locks):
        lines += [
            _comment("When one of these changes, the set-up runs again."),
            _line("lock_files", list(recipe.locks)),
        ]
    lines += _list("include", recipe.include, "Copied from your checkout: ")
    return ["\n[worktrees]\n", *lines] if lines else []


def _box(recipe: Recipe) -> list[str]:
    lines = [
        *_list("read_only", recipe.read_only, "Shown to workers, who can't change it: "),
        *_list("path", recipe.path, ""),
    ]
    variables = [part for item in recipe.environment.items() for part in _variable(*item)]
    return [*(["\n[box]\n", *lines] if lines else []), *(["\n[box.environment]\n", *variables] if variables else [])]


def _variable(name: str, value: Reasoned) -> Iterator[str]:
    yield _comment(f"{_sentence(value.why)}.")
    yield _line(name, value.value)


def _list(key: str, values: tuple[Reasoned, ...], before: str) -> list[str]:
    if not values:
        return []
    reasons = "; ".join(dict.fromkeys(each.why for each in values))
    return [_comment(f"{_sentence(before + reasons)}."), _line(key, [each.value for each in values])]


def _line(key: str, value: str | list[str]) -> str:
    data: Mapping[str, object] = {key: value}
    return dump_toml(data)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comment(text: str) -> str:
    """A text as comment lines. Names of files may be anything that can be printed."""
    lines, line = list[str](), "#"
    for word in "".join(char if char.isprintable() else "?" for char in text).split():
        if len(line) + len(word) >= LONGEST_COMMENT and line != "#":
            lines.append(line)
            line = "#"
        line = f"{line} {word}"
    return "\n".join((*lines, line)) + "\n"
