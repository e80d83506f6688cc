"""A recipe: what one project needs so that its tests pass in the box, and why each part of it is there."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleet.config.toml import dump_toml

TOOLS = ".fleet-tools"
"""The folder of a worktree where a set-up puts tools that this machine lacks. It ignores itself."""
ROOT = "/repo"
"""The worktree as commands in the box see it."""
MAKE_TOOLS = f"mkdir -p {TOOLS} && echo '*' > {TOOLS}/.gitignore"
LONGEST_COMMAND = 2_000  # characters
_ASSIGNMENT = re.compile(r"\w+=")
_PROGRAM = re.compile(r"[A-Za-z][\w.+-]*")


class Reasoned(NamedTuple):
    """A value, and why it is needed."""

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
    """Whether the set-up downloads something."""
    bin: tuple[str, ...] = ()
    """Folders of the worktree with programs that the gate calls by name."""
    provides: tuple[str, ...] = ()
    """Folders in which the set-up puts programs that another gate may call by name."""
    include: tuple[Reasoned, ...] = ()
    environment: Mapping[str, Reasoned] = field(default_factory=dict)
    read_only: tuple[Reasoned, ...] = ()
    path: tuple[Reasoned, ...] = ()
    locks: tuple[str, ...] = ()
    """The lock files that the set-up reads."""
    only_builds: bool = False
    """Whether it runs no test, only a build."""

    @property
    def gate_command(self) -> str:
        """The gate with the folders of programs that it needs."""
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
        """The programs that its commands begin with."""
        commands = re.split(r"&&|\|\||[;(){}|]", f"{self.setup} && {self.gate}")
        first = (next((word for word in command.split() if not _ASSIGNMENT.match(word)), "") for command in commands)
        return tuple(dict.fromkeys(word for word in first if _PROGRAM.fullmatch(word)))

    @property
    def identity(self) -> tuple[object, ...]:
        """What identifies it: two recipes with the same key would be one trial made twice."""
        names = tuple(sorted((name, each.value) for name, each in self.environment.items()))
        lists = tuple(tuple(each.value for each in listed) for listed in (self.include, self.read_only, self.path))
        return (self.gate_command, self.setup, names, *lists)

    def within(self, folder: str) -> "Recipe":
        """The same for a folder of the repository, from its root."""
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
    """One recipe that does what all of these do, one after another."""
    whole, *others = recipes
    for other in others:
        whole = replace(
            _with_needs(whole, other),
            kind=f"{whole.kind}, {other.kind}",
            gate=f"{whole.gate_command} && {other.gate_command}",
            why=f"{whole.why}; {other.why}",
            bin=(),
        )
    return whole


def with_needs_of(recipe: Recipe, others: Iterable[Recipe]) -> Recipe:
    """The same gate with everything that other recipes need before they can work."""
    for other in others:
        folders = dict.fromkeys((*recipe.bin, *other.bin, *other.provides))
        recipe = replace(_with_needs(recipe, other), bin=tuple(folders))
    return recipe


def is_command(text: str) -> bool:
    """Whether a text from a file may become a command: one printable line of a limited length."""
    return bool(text.strip()) and text.isprintable() and len(text) <= LONGEST_COMMAND


def install_tool(program: str, package: str) -> tuple[str, str]:
    """A set-up that installs a tool from PyPI for the set-up alone, and how to call it then."""
    place = f"/tmp/{program}"  # noqa: S108 - in the box
    return f"python3 -m venv {place} && {place}/bin/pip install -q --no-cache-dir {package}", f"{place}/bin/{program}"


def joined(*commands: str) -> str:
    return " && ".join(command for command in commands if command)


def _is_plain(command: str) -> bool:
    """Whether a variable in front of a command holds for all of it."""
    return not any(sign in command for sign in "&|;()\n")


def _with_needs(recipe: Recipe, other: Recipe) -> Recipe:
    return replace(
        recipe,
        setup=joined(*dict.fromkeys((recipe.setup, other.setup))),
        setup_why="; ".join(dict.fromkeys(filter(None, (recipe.setup_why, other.setup_why)))),
        needs_network=recipe.needs_network or other.needs_network,
        locks=tuple(dict.fromkeys((*recipe.locks, *other.locks))),
        include=tuple(dict.fromkeys((*recipe.include, *other.include))),
        environment={**other.environment, **recipe.environment},
        read_only=tuple(dict.fromkeys((*recipe.read_only, *other.read_only))),
        path=tuple(dict.fromkeys((*recipe.path, *other.path))),
    )


# ---- document --------------------------------------------------------------------------------------------------------
# The text of a `fleet.toml`: what a recipe needs, with a reason above each line, and the keys that most people set.


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
