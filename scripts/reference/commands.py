"""Generates the reference of the command line from the program's help."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from fleet.cli.entry import app
from scripts.reference.page import code, table

NOT_RUN = "<!-- not run: an example of the program's own help; its verb and options are compared with the program -->"
GLOBAL = ("--color", "--quiet", "--verbose", "--help")
"""Options of every command. The page lists them once, by hand."""
COMMON = ("--run", "--repo", "--json", "--force", "--yes")
"""Options of many commands, with the same meaning everywhere. The page lists them once, by hand."""
_VALUES = {list[str]: "text", str: "text", int: "whole number", float: "number", Path: "path"}


def content() -> str:
    root: Any = typer.main.get_command(app)
    return "\n\n".join(_command(("fleet",), root))


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    yield f"{'#' * (len(path) + 1)} {' '.join(path)}"
    yield from _help(command.help or "")
    if not below:
        yield f"```text\n{' '.join((*path, *_usage(command)))}\n```"
    if arguments := [_argument(p) for p in command.params if p.param_type_name == "argument"]:
        yield table(("argument", "meaning"), arguments)
    options = {p.opts[0]: p for p in command.params if p.param_type_name == "option" and not p.hidden}
    if shown := [option for name, option in options.items() if name not in GLOBAL + COMMON]:
        yield table(("option", "value", "default", "meaning"), map(_option, shown))
    if common := [code(name) for name in COMMON if name in options]:
        yield f"[Common options](#common-options): {', '.join(common)}"
    for name, verb in below.items():
        yield from _command((*path, name), verb)


def _help(text: str) -> Iterator[str]:
    """Convert help text to Markdown: paragraphs, and examples as console blocks."""
    for part in inspect.cleandoc(text).replace("\b\n", "\b").split("\n\n"):
        if part.startswith("\bExamples:"):
            lines = [f"$ {_example(line)}" for line in part.splitlines()[1:]]
            yield "\n".join((NOT_RUN, "```console", *lines, "```"))
        elif part.startswith("\b"):
            yield f"```text\n{part[1:]}\n```"
        else:
            yield " ".join(part.split())


def _example(line: str) -> str:
    """Convert a line of examples: the explanation after a command becomes a shell comment."""
    match = re.match(r"(\S.*?\S)  +(\S.*)$", line.strip())
    return f"{match[1]}  # {match[2]}" if match else line.strip()


def _usage(command: Any) -> Iterator[str]:
    if any(p.param_type_name == "option" for p in command.params):
        yield "[OPTIONS]"
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            name = _name(parameter)
            yield name if parameter.required else f"[{name}]"


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name).upper().strip("[]")


def _argument(parameter: Any) -> tuple[str, str]:
    return code(_name(parameter)), parameter.help or ""


def _option(parameter: Any) -> tuple[str, str, str, str]:
    flags = ", ".join(code(name) for name in (*parameter.opts, *parameter.secondary_opts))
    kind = parameter.type_descriptor.annotation
    value = "" if kind is bool else _VALUES[kind]
    many = " (repeatable)" if parameter.multiple else ""
    default = parameter.default
    shown = "" if default in (None, False, (), []) or callable(default) else code(str(default))
    if parameter.required:
        shown = "required"
    return flags, value + many, shown, parameter.help or ""
