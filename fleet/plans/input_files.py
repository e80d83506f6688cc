"""Reading what a run is for: an epic as text, file or standard input, or a plan file. Every mistake gets a message."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

from fleet.core.parameters import Filled, declared, fill, said, shown
from fleet.core.plan import Plan
from fleet.core.planfile import read_plan
from fleet.core.rollback import missing
from fleet.core.validate import Known, Problem
from fleet.ports import UsageError
from fleet.toml import dump_toml, read_text, read_toml

LONGEST_EPIC = 200_000  # characters: some 50,000 tokens, which every planner call pays for
LONGEST_NAME = 255
LARGEST_PLAN = 20 * 1024 * 1024
PLAN_FILES = (".toml", ".json")


def read_epic(given: str) -> str:
    """The epic: what `given` says, or what the file it names holds; `-` is standard input."""
    epic, source = given, "the epic"
    if given == "-":
        epic, source = _stdin(), "standard input"
    elif _names_a_file(given):
        epic, source = _file(Path(given)), given
    if not epic.strip():
        raise UsageError(f"{source} is empty; say in a few sentences what should be true afterwards, and how to see it")
    if len(epic) > LONGEST_EPIC:
        raise UsageError(
            f"{source} is longer than {LONGEST_EPIC:,} characters; keep the goal in the epic, and put the details into "
            "files of the repository, which the planner can read"
        )
    if "\0" in epic or any("\ud800" <= char <= "\udfff" for char in epic):  # surrogates: bytes that were no UTF-8
        raise UsageError(f"{source} is not UTF-8 text")
    return epic.strip()


def _names_a_file(given: str) -> bool:
    if "\n" in given or len(given) > LONGEST_NAME * 4:
        return False
    try:
        if Path(given).is_file():
            return True
    except (OSError, ValueError):
        return False
    if " " not in given.strip() and given.endswith((".md", ".txt")):
        raise UsageError(f"{given}: no such file")
    return False


def _stdin() -> str:
    """As UTF-8, whatever the locale says; one byte too many is enough to see that it is too long."""
    raw = sys.stdin.buffer.read(LONGEST_EPIC * 4 + 1)
    return raw.decode("utf-8", "surrogateescape")[: LONGEST_EPIC + 1]


def _file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(LONGEST_EPIC + 1)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Brought:
    """A plan that a person brings, with what belongs to it."""

    plan: Plan
    values: Mapping[str, JsonValue]
    """What its parameters are set to."""
    rollback: Plan | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What whoever runs it should know."""
        return missing(self.plan, self.rollback)


def bring(path: Path, known: Known, given: Mapping[str, str], folders: Sequence[Path] = ()) -> Brought:
    """The plan in a file with its values, and its rollback plan: beside it, or in one of `folders`."""
    plan, values = _filled(path, known, given)
    return Brought(plan, values, load_rollback(path, plan, known, values=values, folders=folders))


def load_plan(path: Path, known: Known, given: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """The plan in a JSON or TOML file, with its values. Raises `UsageError` with every problem there is."""
    return _filled(path, known, given)[0]


def _filled(path: Path, known: Known, given: Mapping[str, str]) -> tuple[Plan, Mapping[str, JsonValue]]:
    data = read_data(path)
    filled = fill(data, given)
    if not isinstance(filled, Filled):
        raise UsageError("\n".join((listed(f"{path} can't be filled in", filled), *_takes(data))))
    read = read_plan(filled.document, known)
    if isinstance(read, Plan):
        return read, filled.values
    raise UsageError(listed(f"{path} is no plan that can run", read))


def _takes(data: Mapping[str, Any]) -> list[str]:
    parameters = declared(data)
    if isinstance(parameters, tuple):
        return []
    return ["it takes:", *(f"  {line}" for line in said(parameters))] if parameters else ["it takes no parameters"]


def load_rollback(
    path: Path,
    plan: Plan,
    known: Known,
    *,
    values: Mapping[str, JsonValue] = MappingProxyType({}),
    folders: Sequence[Path] = (),
) -> Plan | None:
    """The plan that `rollback_plan` names, from the folder of the plan itself or one of `folders`; None without one.

    What it declares of the plan's parameters has the plan's values. Raises `UsageError` where it can't run: better
    known now than when it is needed.
    """
    name = plan.rollback_plan
    if not name:
        return None
    if name != Path(name).name or name.startswith("."):
        raise UsageError(f"{path}: rollback_plan {name!r} is the name of a plan file beside it, without a folder")
    found = find_rollback(name, (path.parent, *folders))
    if found is None:
        return None
    wanted = declared(read_data(found))
    given = {} if isinstance(wanted, tuple) else {one: shown(values[one]) for one in wanted if one in values}
    undo = load_plan(found, known, given)
    if twice := sorted(set(plan.ids) & set(undo.ids)):
        raise UsageError(f"{found}: {', '.join(twice)} is in {path}, too; a rollback plan needs ids of its own")
    return undo if undo.plan_id != Plan().plan_id else undo.model_copy(update={"plan_id": name})


def find_rollback(name: str, folders: Iterable[Path]) -> Path | None:
    places = (there / f"{name}{end}" for there in folders for end in ("", *PLAN_FILES))
    return next((there for there in places if there.is_file()), None)


def listed(title: str, problems: tuple[Problem, ...]) -> str:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return f"{title}; {len(problems)} problem{'s' * (len(problems) != 1)}:{lines}"


def read_data(path: Path) -> Mapping[str, Any]:
    """What a JSON or TOML file holds."""
    if path.suffix == ".toml":
        return read_toml(path, largest=LARGEST_PLAN)
    text = read_text(path, largest=LARGEST_PLAN)
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path}{where}: is not JSON ({error}); a TOML file ends in .toml") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: holds no table, but {type(data).__name__}")
    return data


def dump_plan(plan: Plan, *, toml: bool) -> str:
    """The plan as a document that `load_plan` reads. What is at its default is left out."""
    data = plan.model_dump(mode="json", exclude_defaults=True)
    data = {"plan_id": plan.plan_id, "goal": plan.goal, "version": plan.version} | data
    data["risk_level"] = plan.risk_level
    return dump_toml(data) if toml else json.dumps(data, indent=2, ensure_ascii=False) + "\n"
