"""Determines the commands in files of the repository: Makefiles, scripts, package scripts and configurations.

Reads the base of a change, and only the text of files, without running them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from posixpath import dirname

from fleet.core.base.output import parse_json
from fleet.core.verdicts.commands import (
    LONGEST,
    LONGEST_LOOP,
    MOST_LOOPS,
    MOST_TURNS,
    CommandReading,
    CommandSource,
    reading,
    resolved,
)

MOST_TARGETS = 200
RULE = re.compile(r"^([^\s#:=][^:=#]*)::?(?!=)([^#]*)")
VARIABLE = re.compile(r"^(?:export\s+)?([\w.-]+)\s*[:?+]{0,2}=\s*(.*)$")
INCLUDE = re.compile(r"^(?:-|s)?include\s+(.*)$")
REFERENCE = re.compile(r"(?<!\$)\$[({]([\w.-]+)[)}]")
FOREACH = re.compile(
    r"\$\(foreach\s+(\w+)\s*,((?:[^(),]|\([^()]{0,500}\)){0,2000}),((?:[^()]|\([^()]{0,500}\)){0,2000})\)"
)
FUNCTION = re.compile(r"\$\((?:wildcard|sort|strip|abspath|realpath|firstword|lastword)\s+([^()$]*)\)")
SHELL = re.compile(r"\$\(shell\s+([^()]*)\)")
PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*\.\w{1,8}")
IMPORTS = re.compile(r"^\s*(?:from\s+\.*([\w.]+)\s+import\b|import\s+([\w., ]+))", re.MULTILINE)
LOADS = re.compile(r"(?:\brequire\s*\(\s*|\bfrom\s+|\bimport\s*\(?\s*)[\"'](\.{1,2}/[\w./@+-]+)[\"']")
LONGEST_PATH = 300
MOST_NAMES = 400  # of one file: more are not looked at
STRING = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'")
SETS_UP = re.compile(
    r"\b(?:setup\w*|global\w*|testEnvironment|reporters?|transform|runner|resolver|testRunner|testSequencer|require"
    r"|import|preset|snapshotSerializers|environment|file|spec)\b[\"']?\s*[:=]?\s*"
    r"(\[[^\]]*\]|\{[^}]*\}|\"[^\"]*\"|'[^']*'|- \S+)"
)


def reading_of(source: CommandSource, path: str, text: str) -> CommandReading:
    """Return the files that a source at this path runs and reads."""
    return READERS[source.kind](text, dirname(path), source.names)


def _shell(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    """A script names files from where it is started, which is nearly always the root."""
    del names
    first = text.partition("\n")[0]
    is_shell = not first.startswith("#!") or re.search(r"\b(?:ba|da|z|k|a)?sh\b", first) is not None
    return (reading(text) | reading(text, folder)) if is_shell else CommandReading()


def _code(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    """Return the files that a program imports or names in strings."""
    del names
    modules = [name.strip() for pair in IMPORTS.findall(text) for name in "".join(pair).split(",")]
    paths = [f"{name.partition(' ')[0].replace('.', '/')}{end}" for name in modules for end in (".py", "/__init__.py")]
    paths += list(_modules("", LOADS.findall(text)))
    paths += [path for string in _strings(text) for path in PATH.findall(string[:LONGEST_PATH])]
    wanted = paths[:MOST_NAMES]
    return CommandReading(
        feeds=frozenset((*(resolved("", path) for path in wanted), *(resolved(folder, path) for path in wanted)))
    )


def _make(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    recipes, needs, variables, included, first = _parsed_makefile(text)
    found = CommandReading(judges=frozenset(resolved(folder, name) for name in included))
    for command in SHELL.findall(text)[:MOST_TARGETS]:
        output = reading(command, folder)
        found |= CommandReading(feeds=output.judges | output.feeds, sources=output.sources)
    for name in included:
        found |= CommandReading(sources=(CommandSource("make", (resolved(folder, name),), tuple(names)),))
    rules = (target for target in recipes if "%" in target)
    wanted, done = [*(names or ([first] if first else [])), *rules], set[str]()
    while wanted and len(done) < MOST_TARGETS:
        target = wanted.pop()
        if target in done:
            continue
        done.add(target)
        wanted += needs.get(target, [])
        found |= CommandReading(targets=frozenset({resolved(folder, target)}))
        lines = (_expand(line, variables).lstrip().lstrip("@-+") for line in recipes.get(target, []))
        found |= reading("\n".join(lines), folder)
    return found


def _parsed_makefile(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str], list[str], str]:
    recipes, needs, variables = dict[str, list[str]](), dict[str, list[str]](), {"MAKE": "make"}
    included, first, current = list[str](), "", list[str]()
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("\t"):
            for target in current:
                recipes.setdefault(target, []).append(line)
        elif match := INCLUDE.match(line):
            included += _expand(match[1], variables).split()
        elif match := VARIABLE.match(line):
            variables[match[1]] = match[2]
        elif match := RULE.match(line):
            current = _expand(match[1], variables).split()
            before, _, recipe = _expand(match[2], variables).partition(";")
            first = first or next((target for target in current if not target.startswith(".")), "")
            for target in current:
                needs.setdefault(target, []).extend(before.replace("|", " ").split())
                if recipe:
                    recipes.setdefault(target, []).append(recipe)
    return recipes, needs, variables, included, first


def _expand(text: str, variables: dict[str, str]) -> str:
    for _ in range(5):  # depth of variables that refer to other variables; stops at cycles
        text = FUNCTION.sub(r"\1", FOREACH.sub(_unroll, text, count=MOST_LOOPS)[:LONGEST])
        text = REFERENCE.sub(lambda match: variables.get(match[1], ""), text)[:LONGEST]
    return text.replace("$$", "$")


def _unroll(match: re.Match[str]) -> str:
    """Return the text of a `foreach` of make with its variable replaced by each value."""
    variable, words, body = match.groups()
    return re.sub(rf"\$[({{]{variable}[)}}]", lambda _: words[:LONGEST_LOOP], body, count=MOST_TURNS)


def _package(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    try:
        scripts = parse_json(text).get("scripts", {})
        lines = [scripts[name] for name in names if isinstance(scripts.get(name), str)]
    except (ValueError, AttributeError):
        return CommandReading()
    return reading("\n".join(lines), folder)


def _javascript(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    """Return the files that a test runner's configuration loads."""
    del names
    values = (value for match in SETS_UP.finditer(text) for value in _strings(match[1]))
    return CommandReading(judges=frozenset(_modules(folder, values)))


def _modules(folder: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        path = resolved(folder, value)
        yield path
        yield from (f"{path}.{ending}" for ending in ("js", "ts", "mjs", "cjs"))


def _pytest(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    """The plugins that options in a configuration load."""
    del names
    plugins = re.findall(r"(?:^|[\s\"',\[])-p[\s\"',=]+([A-Za-z_][\w.]*)", text)
    return CommandReading(judges=frozenset(resolved(folder, f"{plugin.replace('.', '/')}.py") for plugin in plugins))


def _tox(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    del names
    blocks = re.findall(r"^commands\w*\s*=(.*(?:\n[ \t]+.*)*)", text, re.MULTILINE)
    return reading("\n".join(blocks), folder)


def _nox(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    del names
    calls = re.findall(r"\.run(?:_always)?\(([^)]*)\)", text)
    return reading("\n".join(" ".join(_strings(call)) for call in calls), folder)


def _just(text: str, folder: str, names: Sequence[str]) -> CommandReading:
    """All recipes: which ones a recipe needs is not worth a parser."""
    del names
    lines = (line.strip().lstrip("@-") for line in text.splitlines() if line[:1] in {" ", "\t"})
    return reading("\n".join(lines), folder)


def _strings(text: str) -> list[str]:
    found = ["".join(pair) for pair in STRING.findall(text)]
    return found or re.findall(r"- (\S+)", text)


READERS: dict[str, Callable[[str, str, Sequence[str]], CommandReading]] = {
    "shell": _shell,
    "code": _code,
    "make": _make,
    "package": _package,
    "javascript": _javascript,
    "pytest": _pytest,
    "tox": _tox,
    "nox": _nox,
    "just": _just,
}
