"""A recipe: what one project needs so that its tests pass in the box, and why each part of it is there."""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
