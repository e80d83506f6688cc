"""Reads what a run starts from: an epic as text, file or standard input, or a plan file. Each mistake has a message."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import JsonValue

from fleet.config.toml import dump_toml, read_text, read_toml
from fleet.core.base.output import parse_json
from fleet.core.plans.parameters import Filled, fill, parameter_lines, read_parameters, value_text
from fleet.core.plans.plan import Plan
from fleet.core.plans.plan_file import read_plan
from fleet.core.plans.validate import Known, Problem
from fleet.core.policy.landing import missing_rollback
from fleet.core.state.facts import IssueSource
from fleet.errors import UsageError

LONGEST_EPIC = 200_000  # characters: some 50,000 tokens, which every planner call pays for
LONGEST_NAME = 1_000  # characters; a longer text is not taken for the name of a file
LARGEST_PLAN = 20 * 1024 * 1024
PLAN_FILES = (".toml", ".json")


@dataclass(frozen=True, slots=True)
class GivenEpic:
    """What a run is to do, and the issue that says so."""

    goal: str
    issue: IssueSource | None = None


def read_epic(given: str) -> str:
    """The epic: the given text, or the content of the file that it names; `-` is standard input."""
    epic, source = given, "the epic"
    if given == "-":
        epic, source = _stdin(), "standard input"
    elif _names_a_file(given):
        epic, source = read_text(Path(given)), given
    else:
        _refuse_reference(given)
    return checked_epic(epic, source)


def checked_epic(epic: str, source: str = "the epic") -> str:
    """The text of an epic as a run takes it. Raises `UsageError` for one that is empty, too long or no text."""
    if not epic.strip():
        raise UsageError(f"{source} is empty", hint="describe in a few sentences what should be true afterwards")
    if len(epic) > LONGEST_EPIC:
        raise UsageError(
            f"{source} is longer than {LONGEST_EPIC:,} characters; keep the goal in the epic, and put the details into "
            "files of the repository, which the planner can read"
        )
    if "\0" in epic or any("\ud800" <= char <= "\udfff" for char in epic):  # surrogates: bytes that are not UTF-8
        raise UsageError(f"{source} is not UTF-8 text")
    return _title_first(epic.strip())


def _title_first(epic: str) -> str:
    """The epic with its front matter, if it has any, behind the text: what comes first names the run."""
    matter = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", epic, re.DOTALL)
    title = re.search(r"^title:[ \t]*(\S.*)$", matter[1], re.MULTILINE) if matter is not None else None
    if matter is None or title is None:
        return epic
    rest = [line for line in matter[1].splitlines() if line != title[0]]
    parts = (title[1].strip().strip("\"'"), epic[matter.end() :].strip(), "\n".join(rest).strip())
    return "\n\n".join(filter(None, parts))


def _refuse_reference(given: str) -> None:
    """Raise `UsageError` for a word that only points to an epic: a planner has no network, and would be paid for it."""
    word = given.strip()
    if re.fullmatch(r"[a-z][a-z+.-]*://\S+|#?\d+|(?:\w+:)?[\w.-]+(?:/[\w.-]+)+[#!]\d+", word):
        hint = "name an issue as gh:OWNER/REPO#12 or gl:GROUP/PROJECT#12, or by its address; or give the text"
        raise UsageError(f"{word} names no issue of a forge, and the planner can't open pages", hint=hint)
    if os.path.isdir(word):  # noqa: PTH112 - no error for what can't be a path
        hint = "--repo DIR names the repository, and the epic is text or a file"
        raise UsageError(f"{word} is a folder, not an epic", hint=hint)


def _names_a_file(given: str) -> bool:
    if "\n" in given or len(given) > LONGEST_NAME:
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
    """Standard input as UTF-8 in every locale, cut where it is certainly too long."""
    return sys.stdin.buffer.read(LONGEST_EPIC * 4 + 1).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class GivenPlan:
    """A plan that a person brings, with what belongs to it."""

    plan: Plan
    values: Mapping[str, JsonValue]
    """The values of its parameters."""
    rollback: Plan | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the person who runs it."""
        return missing_rollback(self.plan, self.rollback)


def read_given_plan(path: Path, known: Known, given: Mapping[str, str], folders: Sequence[Path] = ()) -> GivenPlan:
    """The plan in a file with its values, and its rollback plan: beside it, or in one of `folders`."""
    plan, values = _filled(path, known, given)
    return GivenPlan(plan, values, load_rollback(path, plan, known, values=values, folders=folders))


def load_plan(path: Path, known: Known, given: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """The plan in a JSON or TOML file, with its values. Raises `UsageError` with every problem."""
    return _filled(path, known, given)[0]


def _filled(path: Path, known: Known, given: Mapping[str, str]) -> tuple[Plan, Mapping[str, JsonValue]]:
    data = read_data(path)
    filled = fill(data, given)
    if not isinstance(filled, Filled):
        raise UsageError("\n".join((problem_list(f"{path} can't be filled in", filled), *_usage(data))))
    plan = read_plan(filled.document, known)
    if not isinstance(plan, Plan):
        raise UsageError(problem_list(f"{path} is not a valid plan", plan))
    return plan, filled.values


def _usage(data: Mapping[str, Any]) -> list[str]:
    """The parameters that a plan takes."""
    parameters = read_parameters(data)
    if isinstance(parameters, tuple):
        return []
    lines = [f"  {line}" for line in parameter_lines(parameters)]
    return ["it takes:", *lines] if lines else ["it takes no parameters"]


def load_rollback(
    path: Path,
    plan: Plan,
    known: Known,
    *,
    values: Mapping[str, JsonValue] = MappingProxyType({}),
    folders: Sequence[Path] = (),
) -> Plan | None:
    """The plan that `rollback_plan` names, from the folder of the plan or one of `folders`; None if it names none.

    Its parameters get the values of the plan's parameters with the same names. Raises `UsageError` if it can't run:
    better now than when it is needed.
    """
    name = plan.rollback_plan
    if not name:
        return None
    if name != Path(name).name or name.startswith("."):
        raise UsageError(f"{path}: rollback_plan {name!r} must be the name of a plan file beside it, without a folder")
    file = find_rollback(name, (path.parent, *folders))
    if file is None:
        return None
    parameters = read_parameters(read_data(file))
    shared = () if isinstance(parameters, tuple) else parameters.keys() & values.keys()
    rollback = load_plan(file, known, {name: value_text(values[name]) for name in shared})
    if twice := sorted(set(plan.ids) & set(rollback.ids)):
        raise UsageError(f"{file}: {', '.join(twice)} is in {path}, too", hint="a rollback plan needs ids of its own")
    return rollback if rollback.plan_id != Plan().plan_id else rollback.model_copy(update={"plan_id": name})


def find_rollback(name: str, folders: Iterable[Path]) -> Path | None:
    files = (folder / f"{name}{suffix}" for folder in folders for suffix in ("", *PLAN_FILES))
    return next((file for file in files if file.is_file()), None)


def problem_list(title: str, problems: Sequence[Problem]) -> str:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return f"{title}; {len(problems)} problem{'s' * (len(problems) != 1)}:{lines}"


def read_data(path: Path) -> Mapping[str, Any]:
    """The data in a JSON or TOML file."""
    if path.suffix == ".toml":
        return read_toml(path, largest=LARGEST_PLAN)
    try:
        data = parse_json(read_text(path, largest=LARGEST_PLAN))
    except ValueError as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(f"{path}{where}: is not JSON ({error})", hint="a TOML file ends in .toml") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a table, got {type(data).__name__}")
    return data


def dump_plan(plan: Plan, *, toml: bool) -> str:
    """The plan as a document that `load_plan` reads. Default values are omitted."""
    data = plan.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    data = {"plan_id": plan.plan_id, "goal": plan.goal, "version": plan.version} | data
    data["risk_level"] = plan.risk_level
    return dump_toml(data) if toml else json.dumps(data, indent=2, ensure_ascii=False) + "\n"
