"""Completion for shells: what may come at the cursor, a line each. `fleet --complete N WORD…` asks for word N.

Typer and the verbs are not imported: `completions.json` has their options and the kinds of their values, which a test
compares with the program. Only names that no shell would act on are offered; names of files are the shell's business.
"""

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleet.cli.root_help import VERBS
from fleet.config import environment
from fleet.runs.quick_look import NAME, question_ids, run_names, subtask_ids
from fleet.runs.repository import root_of

TABLE = Path(__file__).with_name("completions.json")
FILES, FOLDERS = ":files", ":folders"
"""Lines that ask the shell for names of files or folders."""
PLAN_FILES = (".toml", ".json")
MOST_PLANS = 200
STATES = ("running", "paused", "awaiting approval", "interrupted", "landed", "partial", "failed", "cancelled", "budget")


def print_completions(arguments: Sequence[str]) -> None:
    """Print the candidates for word N of a command line, each with its description behind a tab."""
    with suppress(ValueError, IndexError, OSError, json.JSONDecodeError):
        number, *words = arguments
        index = int(number)
        current = words[index] if index < len(words) else ""
        before = list(_joined([*words[1:index], *(["="] if current == "=" else [])]))
        for candidate in candidates(before, "" if current == "=" else current):
            sys.stdout.write(f"{candidate}\n")


def candidates(before: list[str], current: str) -> Iterator[str]:
    """What may stand for `current`, the word at the cursor, behind the words `before` it."""
    table: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    verb, words = _verb(before, table)
    if verb in table:
        yield from _in_verb(table[verb], words, current)
    elif not words:
        yield from _starting(current, _verbs_below(verb, table))


def _in_verb(known: Mapping[str, Any], words: list[str], current: str) -> Iterator[str]:
    options: Mapping[str, Any] = known["options"]
    waiting, positional = _parsed(words, options)
    name, equals, value = current.partition("=")
    if waiting is not None:
        yield from _of_kind(waiting, words, current)
    elif equals and name in options:
        found = _of_kind(options[name], words, value)
        yield from (f"{name}={candidate}" for candidate in found if not candidate.startswith(":"))
    elif current.startswith("-"):
        yield from _starting(current, dict.fromkeys((name for name in options if name.startswith("--")), ""))
    elif (arguments := known["arguments"]) and (positional < len(arguments) or known["many"]):
        yield from _of_kind(arguments[min(positional, len(arguments) - 1)], words, current)


def _of_kind(kind: str, words: list[str], current: str) -> Iterator[str]:
    """The values of a kind that start like this."""
    if "|" in kind:
        yield from _starting(current, dict.fromkeys(kind.split("|"), ""))
    elif kind in {"FILE", "EPIC", "COMMAND"}:
        yield FILES
    elif kind == "DIR":
        yield FOLDERS
    elif (offer := OFFERS.get(kind)) is not None:
        repository = Path(_value_of(("-C", "--repo"), words) or ".")
        yield from _starting(current, dict.fromkeys(offer(repository, _value_of(("--run",), words)), ""))
        if kind == "PLAN":
            yield FILES


def _starting(current: str, described: Mapping[str, str]) -> Iterator[str]:
    for name, description in described.items():
        if name.startswith(current):
            yield f"{name}\t{description}" if description else name


# ---- values ---------------------------------------------------------------------------------------------------------


def _plans(repository: Path, run: str | None) -> list[str]:
    """The plans of the library, and the runs, which stand for theirs."""
    root, found = root_of(repository), list[str]()
    for folder in ([root / ".fleet" / "plans"] if root else []) + [user_folder("CONFIG", ".config") / "plans"]:
        with suppress(OSError), os.scandir(folder) as entries:
            files = sorted(entry.name for entry in entries if entry.name.endswith(PLAN_FILES))
            found += (stem for file in files if NAME.fullmatch(stem := file.rpartition(".")[0]))
    return [*dict.fromkeys(found[:MOST_PLANS]), *(run_names(state_folder(), repository) if run is None else ())]


def _config_keys() -> list[str]:
    """Every key of the configuration, with its section, from the file that explains them."""
    package = Path(__file__).parents[1]
    file = next(path for path in (package / "config.toml", package.parent / "config.toml") if path.is_file())
    section, found = "", list[str]()
    for line in file.read_text(encoding="utf-8").splitlines():
        if header := re.fullmatch(r"\[([\w.]+)\]", line):
            section = header[1]
        elif key := re.match(r"(?:# )?([a-z_0-9]+) = ", line):
            found.append(f"{section}.{key[1]}")
    return found


OFFERS: Mapping[str, Callable[[Path, str | None], list[str]]] = {
    "RUN": lambda repository, _: run_names(state_folder(), repository),
    "SUBTASK": lambda repository, run: subtask_ids(state_folder(), run, repository),
    "QUESTION": lambda repository, run: question_ids(state_folder(), run, repository),
    "PLAN": _plans,
    "VERB": lambda *_: list(VERBS),
    "SHELL": lambda *_: ["bash", "zsh", "fish"],
    "KEY": lambda *_: _config_keys(),
    "STATE": lambda *_: [state for state in STATES if " " not in state],
}
"""The values of each kind, for a repository and the run that the command line names."""


def user_folder(kind: str, below_home: str) -> Path:
    """The user's folder of fleet, as platformdirs finds it on Linux."""
    variables = environment.current()
    chosen = variables.get(f"XDG_{kind}_HOME", "").strip()
    return Path(chosen) / "fleet" if chosen else Path(variables.get("HOME") or Path.home()) / below_home / "fleet"


def state_folder() -> Path:
    """The state directory, as `fleet.config.load` finds it; a test compares the two."""
    chosen = environment.current().get("FLEET_STATE_DIR", "").strip()
    if not chosen:
        with suppress(OSError, ValueError, AttributeError):
            file = user_folder("CONFIG", ".config") / "config.toml"
            chosen = str(tomllib.loads(file.read_text(encoding="utf-8")).get("state", {}).get("dir", ""))
    return Path(chosen).expanduser() if chosen else user_folder("STATE", ".local/state")


# ---- the command line -----------------------------------------------------------------------------------------------


def _joined(words: Sequence[str]) -> Iterator[str]:
    """The words with `--option`, `=` and the value as one again, which bash takes apart."""
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word.startswith("--") and waiting[:1] == ["="]:
            word = "".join([word, *waiting[:2]])
            del waiting[:2]
        yield word


def _verb(words: list[str], table: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The verb with the one below it, and the words behind; an empty verb if there is none yet."""
    rest = [word for word in words if not word.startswith("-")] if words and words[0].startswith("-") else list(words)
    if not rest:
        return "", []
    verb = rest.pop(0)
    if verb not in table and rest and f"{verb} {rest[0]}" in table:
        verb = f"{verb} {rest.pop(0)}"
    return verb, rest


def _verbs_below(verb: str, table: Mapping[str, Any]) -> Mapping[str, str]:
    if not verb:
        return {name: known.summary for name, known in VERBS.items()}
    return {name.removeprefix(f"{verb} "): "" for name in table if name.startswith(f"{verb} ")}


def _parsed(words: list[str], options: Mapping[str, Any]) -> tuple[str | None, int]:
    """The kind of value that the last option waits for, and how many arguments there were."""
    waiting, positional, literal = None, 0, False
    for word in words:
        if waiting is not None:
            waiting = None
        elif literal or not word.startswith("-") or word == "-":
            positional += 1
        elif word == "--":
            literal = True
        else:
            waiting = options.get(word.removesuffix("=")) or None
    return waiting, positional


def _value_of(names: tuple[str, ...], words: list[str]) -> str | None:
    """The last value of an option."""
    found = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else next(iter(words[index + 1 :]), None)
    return found
