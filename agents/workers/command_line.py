"""A command line with placeholders. It is split into words before they are filled in, so no value leaves its word.

Text that a model wrote (a goal, a title) always stays one argument of the program that the operator named.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from agents.base.text import redacted, well_formed
from agents.conversation.settings import WorkerSettings
from fleet.core.base.nearest import did_you_mean
from fleet.core.state.facts import Failure
from fleet.ports.agents import CommandResult, Dialogue, WorkerBrief, Workspace, WorkspaceError

PARAMETER = "parameters."
OURS = frozenset({"id", "run", "attempt", "subtask", "prompt", "report"})
"""Values that no model wrote: slugs, numbers and our own paths."""
THEIRS = frozenset({"title", "goal", "guidance", "model"})
REPORT = '"$FLEET_REPORT"'
LONGEST = 100_000  # bytes; the kernel takes 128 KiB in one argument, and the shell gets all of it as one
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_SCRIPT = re.compile(r"-\w*[ce]|--eval|--command")
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|fi)?sh|python[\d.]*|node|perl|ruby|eval")


class MissingValueError(Exception):
    """The subtask has no usable value for a placeholder; the message is for the planner."""


def line_problem(words: tuple[str, ...]) -> str | None:
    """Why a command line can't be used, for the operator."""
    if not words:
        return 'command: is missing; write it like "tool --flag {goal}"'
    for name in (name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in OURS | THEIRS and not name.startswith(PARAMETER):
            hint = did_you_mean(name, OURS | THEIRS) or f"; there are {', '.join(sorted(OURS | THEIRS))}"
            literal = f"write {{ {name} }} for the text itself"
            return f"command: there is no placeholder {{{name}}}{hint} and {PARAMETER}NAME; {literal}"
    if _PLACEHOLDER.search(words[0]):
        return "command: the program itself can't be a placeholder"
    script = next(_scripts(words), None)
    if script is not None and any(name not in OURS for name in _PLACEHOLDER.findall(script)):
        return (
            "command: a placeholder inside a script would be run as a part of it; pass it as an argument: "
            "sh -c 'tool \"$1\"' sh {goal}"
        )
    return None


def _scripts(words: tuple[str, ...]) -> Iterator[str]:
    """The words that an interpreter runs as a program."""
    for at, word in enumerate(words[1:-1], start=1):
        if _SCRIPT.fullmatch(word) and any(_INTERPRETERS.fullmatch(PurePosixPath(each).name) for each in words[:at]):
            yield words[at + 1]


def parameters_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """The parameters that a command line needs from each subtask."""
    names = (name for word in words for name in _PLACEHOLDER.findall(word) if name.startswith(PARAMETER))
    return tuple(dict.fromkeys(name.removeprefix(PARAMETER) for name in names))


def shell_line(words: tuple[str, ...], values: Mapping[str, str]) -> str:
    """The words with their values, each quoted as one word. Raises `MissingValueError`."""
    line = " ".join(_filled(word, values) for word in words)
    if len(line.encode("utf-8", "replace")) > LONGEST:
        raise MissingValueError("the values for the worker's command are too long for a command line; shorten the goal")
    if "\0" in line:
        raise MissingValueError("a value for the worker's command contains a NUL character")
    return line


def _filled(word: str, values: Mapping[str, str]) -> str:
    parts: list[str] = []
    for at, part in enumerate(_PLACEHOLDER.split(word)):
        if at % 2 == 0:
            parts.append(shlex.quote(part) if part else "")
        elif part == "report":
            parts.append(REPORT)
        elif part in values:
            parts.append(shlex.quote(values[part]))
        else:
            names = ", ".join(sorted(name for name in values if name.startswith(PARAMETER))) or "none"
            raise MissingValueError(f"the worker's command needs {part}; this subtask sets {names}")
    return "".join(parts) or "''"


def values_of(brief: WorkerBrief, *, model: str | None, subtask: str, prompt: str) -> dict[str, str]:
    """The values of the placeholders. `subtask` and `prompt` are paths of files."""
    spec = brief.subtask
    parameters = {f"{PARAMETER}{name}": _text(value) for name, value in spec.parameters.items()}
    values = {
        "id": spec.id,
        "run": brief.run,
        "attempt": str(brief.attempt),
        "title": spec.title,
        "goal": spec.goal,
        "guidance": brief.guidance,
        "subtask": subtask,
        "prompt": prompt,
    }
    return parameters | values | ({"model": model} if model else {})


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- program ---------------------------------------------------------------------------------------------------------
# What workers that run a program share: where it is, one run of it in the box, its output without secrets.


EVIDENCE = 4_000  # characters of an output that go into a failure
MODEL_VARIABLES = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Where an agent may look for another model than the one it is given."""


def program_name(settings: WorkerSettings) -> str:
    """The program of a claude-code worker."""
    return settings.command[0] if settings.command else "claude"


def program_of(settings: WorkerSettings) -> Path | None:
    """The program on this machine, links followed; None if it is not installed."""
    path = shutil.which(program_name(settings))
    return Path(path).resolve() if path else None


async def run_program(
    script: str,
    settings: WorkerSettings,
    workspace: Workspace,
    *,
    read_only: tuple[str, ...],
    environment: Mapping[str, str],
    dialogue: Dialogue | None = None,
) -> CommandResult | Failure:
    """Run a script in the worker's box, which shows `read_only` and sets `environment` beyond the usual."""
    extras = settings.extras
    extras = replace(
        extras,
        read_only=(*extras.read_only, *read_only),
        environment={**extras.environment, **environment},
    )
    try:
        result = await workspace.run(script, timeout_s=settings.time_s, extras=extras, dialogue=dialogue)
    except WorkspaceError as error:
        return Failure(kind="tool", summary=str(error))
    return replace(result, output=well_formed(redacted(result.output, settings.secrets)))
