"""The options that verbs have in common, in the program and in the reference: each difference in words."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

from fleet.cli.entry import app
from fleet.cli.verb_table import VERBS
from fleet.features.table import Verb

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "command-line.md"
COMMON = ("RUN", "--run", "--repo", "--json", "--output", "--force", "--yes")
KINDS = frozenset(
    "RUN SUBTASK QUESTION PLAN FILE DIR URL N N..M USD MINUTES SECONDS GB COMMIT BRANCH NAME NAME=VALUE TEXT EPIC PR "
    "TIME HOURS STATE WHEN HOST HOST:PORT PORT SHELL VERB COMMAND KEY".split(),
)
"""What a value can be, as its metavar says."""
COMPLETED = frozenset("RUN SUBTASK QUESTION PLAN VERB SHELL KEY".split())
"""Those whose values completion offers."""


@dataclass(frozen=True)
class Known:
    """A verb of the program."""

    name: str
    verb: Verb
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    """By their long names."""

    @property
    def takes(self) -> set[str]:
        """What it takes of what verbs have in common."""
        run = {"RUN"} if any(argument.metavar == "RUN" for argument in self.arguments) else set[str]()
        return run | (self.options.keys() & set(COMMON))


def known_verbs(root: Any = None) -> list[Known]:
    root = typer.main.get_command(app) if root is None else root
    return [known for name, command in root.commands.items() for known in _known(name, VERBS[name], command)]


def _known(name: str, verb: Verb, command: Any) -> Iterator[Known]:
    for below, command_below in getattr(command, "commands", {}).items():
        yield from _known(f"{name} {below}", verb, command_below)
    if not hasattr(command, "commands"):
        parameters = [parameter for parameter in command.params if not parameter.hidden]
        arguments = tuple(parameter for parameter in parameters if parameter.param_type_name == "argument")
        options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
        yield Known(name, verb, arguments, {_long(option): option for option in options})


def _long(option: Any) -> str:
    return str(next((name for name in option.opts if name.startswith("--")), option.opts[0]))


# ---- what must hold -------------------------------------------------------------------------------------------------


def inconsistencies(verbs: list[Known], page: str) -> list[str]:
    """Where a verb differs from the rules, two verbs from each other, or the reference from the program."""
    found = [f"fleet {verb.name}: {problem}" for verb in verbs for problem in _problems(verb)]
    return [*found, *_ambiguities(verbs), *_differences(verbs, page)]


def _problems(known: Known) -> Iterator[str]:
    takes, about = known.takes, known.verb.about
    wanted = {
        "run": {"RUN", "--run", "--repo"},
        "part": {"--run", "--repo"},
        "repository": {"--repo"},
        "machine": set(),
    }
    needed = wanted[about] | {"--json"} | ({"--yes"} if known.verb.changes else set())
    yield from (f"is about a {about} and lacks {name}" for name in sorted(needed - takes))
    unwanted = {"RUN", "--run", "--repo"} - wanted[about]
    yield from (f"is about a {about} and has {name}" for name in sorted(unwanted & takes))
    if "--output" in takes and "--force" not in takes:
        yield "has --output without --force"
    if "--color" not in known.options:
        yield "has no --color"
    for parameter in (*known.arguments, *known.options.values()):
        is_flag = getattr(parameter, "is_flag", False)
        if not is_flag and parameter.metavar not in KINDS and "|" not in str(parameter.metavar):
            yield f"{parameter.name} has the metavar {parameter.metavar}, which is no kind of value"
        if (parameter.metavar in COMPLETED) != (vars(parameter)["_custom_shell_complete"] is not None):
            yield f"{parameter.name} is a {parameter.metavar}, and completion does not offer what it should"
        if not parameter.help:
            yield f"{parameter.name} has no help"
    if known.name.count(" ") == 0 and any(argument.required for argument in known.arguments) and "RUN" in takes:
        yield "has RUN beside a required argument"


def _ambiguities(verbs: list[Known]) -> Iterator[str]:
    """One option with two meanings, or two for one letter."""
    meanings, letters = defaultdict[str, set[tuple[Any, ...]]](set), defaultdict[str, set[str]](set)
    for verb in verbs:
        for name, option in verb.options.items():
            subject = option.help.partition(":")[0] if name == "--output" else option.help
            meanings[name].add((tuple(sorted(option.opts)), option.metavar, subject if name in COMMON else ""))
            for letter in option.opts:
                if re.fullmatch("-[A-Za-z]", letter):
                    letters[letter].add(name)
    yield from (
        f"{name} has {len(found)} forms: {sorted(map(str, found))}"
        for name, found in meanings.items()
        if len(found) > 1
    )
    yield from (f"{letter} is short for {sorted(found)}" for letter, found in letters.items() if len(found) > 1)


# ---- the reference --------------------------------------------------------------------------------------------------


def _differences(verbs: list[Known], page: str) -> Iterator[str]:
    rows = dict(table_rows(page))
    for verb in verbs:
        row = rows.pop(verb.name, None)
        if row is None:
            yield f"the table of the reference lacks fleet {verb.name}"
        elif row != verb.takes:
            yield f"the reference says that fleet {verb.name} takes {sorted(row)}; it takes {sorted(verb.takes)}"
    yield from (f"the reference has fleet {name}, which there is not" for name in rows)
    above = page.partition("\n## Common options by command")[0]
    meanings = set(re.findall(r"^\| `(?:-\w(?: \w+)?`, `)?(RUN|--[a-z]+)[ `].*\| .*\S.* \|$", above, re.MULTILINE))
    yield from (f"the reference does not say what {name} means" for name in COMMON if name not in meanings)


def table_rows(page: str) -> Iterator[tuple[str, set[str]]]:
    """Each verb of the table with what it takes."""
    heads = ["RUN", "--run", "--repo", "--json", "--output", "--force", "--yes"]
    for name, *cells in re.findall(
        r"^\| `fleet ([a-z -]+)` " + r"\| *(yes|) *" * len(heads) + r"\|$", page, re.MULTILINE
    ):
        yield name, {head for head, cell in zip(heads, cells, strict=True) if cell}
