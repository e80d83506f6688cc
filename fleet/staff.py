"""From `[workers.NAME]` to what the minds are told of each worker: prompts read, command lines split, variables filled.

Reads files and the environment that it is handed; whether a kind takes what it is given is the registry's to say.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agents.settings import WorkerSettings
from fleet.ports import Extras, UsageError
from fleet.settings import WorkerKind

_PROMPT_FILES = (".md", ".txt")
_LONGEST_PROMPT = 50_000  # characters


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a worker's settings look for what they only name."""

    folder: Path
    """The user's configuration folder."""
    environ: Mapping[str, str]


def staff(workers: Mapping[str, WorkerKind], around: Surroundings) -> dict[str, WorkerSettings]:
    """Every worker as the minds know it. Raises `UsageError` that names the key."""
    return {name: _one(f"workers.{name}", said, around) for name, said in workers.items()}


def _one(key: str, said: WorkerKind, around: Surroundings) -> WorkerSettings:
    passed = _passed(key, said, around.environ)
    extras = Extras(
        read_only=said.read_only,
        path=said.path,
        environment={**said.environment, **passed},
        network=True if said.network else None,
    )
    return WorkerSettings(
        kind=said.kind,
        description=said.description,
        models=said.models or ((said.model,) if said.model else ()),
        prompt=_prompt(key, said.prompt, around.folder),
        tools=said.tools,
        command=_words(key, said.command),
        hosts=said.hosts,
        turns=said.turns,
        tokens=said.tokens,
        dollars=said.dollars,
        time_s=said.time_s,
        extras=extras,
        secrets=tuple(passed.values()),
    )


def _passed(key: str, said: WorkerKind, environ: Mapping[str, str]) -> dict[str, str]:
    missing = [name for name in said.pass_environment if name not in environ]
    if missing:
        names = ", ".join(missing)
        raise UsageError(f"{key}.pass_environment: {names} is not set here; set it, or take it out of the list")
    return {name: environ[name] for name in said.pass_environment}


def _prompt(key: str, said: str, folder: Path) -> str:
    """The text, or what stands in the file that it names."""
    if "\n" in said or not said.endswith(_PROMPT_FILES):
        return said
    path = folder / Path(said).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{key}.prompt: {path} can't be read: {why}") from error
    if len(text) > _LONGEST_PROMPT:
        raise UsageError(f"{key}.prompt: {path} has {len(text)} characters; at most {_LONGEST_PROMPT} are taken")
    return text


def _words(key: str, command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"{key}.command: {command!r} can't be split into words: {error}") from error
