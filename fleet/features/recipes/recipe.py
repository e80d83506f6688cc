"""A recipe: the commands and settings that a project's tests need in the sandbox, each with a reason."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.config.toml import dump_toml

TOOLS = ".fleet-tools"
"""The folder in a worktree for tools that the setup command installs. It has a .gitignore that ignores it."""
ROOT = "/repo"
"""The path of the worktree in the sandbox."""
MAKE_TOOLS = f"mkdir -p {TOOLS} && echo '*' > {TOOLS}/.gitignore"
LONGEST_COMMAND = 2_000  # characters
_ASSIGNMENT = re.compile(r"\w+=")
_PROGRAM = re.compile(r"[A-Za-z][\w.+-]*")


class Reasoned(NamedTuple):
    """A value with a reason."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to test a project, or a folder of it."""

    kind: str
    gate: str
    why: str
    setup: str = ""
    setup_why: str = ""
    needs_network: bool = False
    """Whether the setup command downloads anything."""
    bin: tuple[str, ...] = ()
    """Folders in the worktree with programs that the gate calls by name."""
    provides: tuple[str, ...] = ()
    """Folders with programs that the setup command installs, for use by other gates."""
    include: tuple[Reasoned, ...] = ()
    environment: Mapping[str, Reasoned] = field(default_factory=dict)
    read_only: tuple[Reasoned, ...] = ()
    path: tuple[Reasoned, ...] = ()
    locks: tuple[str, ...] = ()
    """The lock files that the setup command reads."""
    only_builds: bool = False
    """Whether it only builds, without running tests."""

    @property
    def gate_command(self) -> str:
        """The gate, with its program folders in PATH."""
        if not self.bin:
            return self.gate
        places = ":".join(f"$PWD/{folder}" for folder in self.bin)
        return (
            f'PATH="{places}:$PATH" {self.gate}'
            if _is_plain(self.gate)
            else f'export PATH="{places}:$PATH"; {self.gate}'
        )

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that its commands call."""
        commands = re.split(r"&&|\|\||[;(){}|]", f"{self.setup} && {self.gate}")
        first = (next((word for word in command.split() if not _ASSIGNMENT.match(word)), "") for command in commands)
        return tuple(dict.fromkeys(word for word in first if _PROGRAM.fullmatch(word)))

    @property
    def identity(self) -> tuple[object, ...]:
        """The key of the recipe. Trials of two recipes with the same key have the same result."""
        names = tuple(sorted((name, each.value) for name, each in self.environment.items()))
        lists = tuple(tuple(each.value for each in listed) for listed in (self.include, self.read_only, self.path))
        return (self.gate_command, self.setup, names, *lists)

    def within(self, folder: str) -> "Recipe":
        """Return the recipe for a folder, with commands that run from the root of the repository."""
        if not folder:
            return self
        place = shlex.quote(folder)
        return replace(
            self,
            gate=f"(cd {place} && {self.gate_command})",
            bin=(),
            locks=tuple(f"{folder}/{each}" for each in self.locks),
            provides=tuple(f"{folder}/{each}" for each in self.provides),
            setup=f"(cd {place} && {self.setup})" if self.setup else "",
            include=tuple(Reasoned(f"/{folder}/{value.lstrip('/')}", why) for value, why in self.include),
        )


def together(recipes: Iterable[Recipe]) -> Recipe:
    """Combine recipes into one that runs all of them in sequence."""
    whole, *others = recipes
    for other in others:
        whole = replace(
            _with_needs(whole, other),
            kind=f"{whole.kind}, {other.kind}",
            gate=f"{whole.gate_command} && {other.gate_command}",
            why=f"{whole.why}, {other.why}",
            bin=(),
        )
    return whole


def with_needs_of(recipe: Recipe, others: Iterable[Recipe]) -> Recipe:
    """Add the setup and settings of other recipes to a recipe, without changing its gate."""
    for other in others:
        folders = dict.fromkeys((*recipe.bin, *other.bin, *other.provides))
        recipe = replace(_with_needs(recipe, other), bin=tuple(folders))
    return recipe


def is_command(text: str) -> bool:
    """Return whether a text from a file can be used as a command: one printable line of limited length."""
    return bool(text.strip()) and text.isprintable() and len(text) <= LONGEST_COMMAND


def install_tool(program: str, package: str) -> tuple[str, str]:
    """Return a command that installs a tool from PyPI for the setup only, and the path to call it."""
    place = f"/tmp/{program}"  # noqa: S108 - in the box
    return f"python3 -m venv {place} && {place}/bin/pip install -q --no-cache-dir {package}", f"{place}/bin/{program}"


def joined(*commands: str) -> str:
    return " && ".join(command for command in commands if command)


def _is_plain(command: str) -> bool:
    """Return whether a variable set in front of a command applies to the entire command."""
    return not any(sign in command for sign in "&|;()\n")


def _with_needs(recipe: Recipe, other: Recipe) -> Recipe:
    return replace(
        recipe,
        setup=joined(*dict.fromkeys((recipe.setup, other.setup))),
        setup_why=", ".join(dict.fromkeys(filter(None, (recipe.setup_why, other.setup_why)))),
        needs_network=recipe.needs_network or other.needs_network,
        locks=tuple(dict.fromkeys((*recipe.locks, *other.locks))),
        include=tuple(dict.fromkeys((*recipe.include, *other.include))),
        environment={**other.environment, **recipe.environment},
        read_only=tuple(dict.fromkeys((*recipe.read_only, *other.read_only))),
        path=tuple(dict.fromkeys((*recipe.path, *other.path))),
    )


# ---- document --------------------------------------------------------------------------------------------------------
# The text of `fleet.toml`: the settings of a recipe with a reason above each line, and commonly used keys.


HEAD = """\
# The configuration of fleet for this repository. To list all keys, run `fleet config show`. To try the setup command
# and the gate, run `fleet try`. fleet reads this file from your checkout. Settings for your machine (API keys, network,
# sandbox, other folders) are rejected here: set them in your own configuration file or on the command line.
"""
NO_GATE = "No test command found. Set one here."
RUN = """
[run]
# The maximum number of concurrent workers, and the budget of a run in dollars.
# workers = 16
# budget_dollars = 10.0
"""
NAMED = """
# Names for commands, for use in plans.
# [checks.named]
# lint = "ruff check ."
"""
NO_SETUP = """
# Prepares a worktree: a command that runs in the sandbox, and ignored files to copy from your checkout.
# [worktrees]
# setup = "make deps"
# include = ["data/sample.bin"]
"""
NO_BOX = """
# Ignored folders of the repository that its tests need. Workers can read them, but not change them.
# [box]
# read_only = ["{repo}/.venv"]
# path = ["{repo}/.venv/bin"]
"""
LONGEST_COMMENT = 118  # columns


def fleet_toml(
    recipe: Recipe | None, remarks: Iterable[str] = (), *, default_locks: frozenset[str] = frozenset()
) -> str:
    """Return the file for a recipe, or a template without a recipe. Each remark becomes a comment above the gate.

    `default_locks` are the lock files that the file does not need to list.
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
        needs = " It needs network access: set worktrees.setup_network in your own configuration."
        why = f"Runs in the sandbox before work starts: {recipe.setup_why}.{needs if recipe.needs_network else ''}"
        lines += [_comment(why), _line("setup", recipe.setup)]
    if recipe.setup and not default_locks.issuperset(recipe.locks):
        lines += [
            _comment("If one of these files changes, the setup command runs again."),
            _line("lock_files", list(recipe.locks)),
        ]
    lines += _list("include", recipe.include, "Copied from your checkout: ")
    return ["\n[worktrees]\n", *lines] if lines else []


def _box(recipe: Recipe) -> list[str]:
    lines = [
        *_list("read_only", recipe.read_only, "Read-only for workers: "),
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
    reasons = ", ".join(dict.fromkeys(each.why for each in values))
    return [_comment(f"{_sentence(before + reasons)}."), _line(key, [each.value for each in values])]


def _line(key: str, value: str | list[str]) -> str:
    data: Mapping[str, object] = {key: value}
    return dump_toml(data)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _comment(text: str) -> str:
    """Format a text as comment lines. Unprintable characters are replaced."""
    lines, line = list[str](), "#"
    for word in "".join(char if char.isprintable() else "?" for char in text).split():
        if len(line) + len(word) >= LONGEST_COMMENT and line != "#":
            lines.append(line)
            line = "#"
        line = f"{line} {word}"
    return "\n".join((*lines, line)) + "\n"
