"""Reads the input of a run: an epic as text, file or standard input, or a plan file."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import JsonValue

from fleet.config.load import user_file_path
from fleet.config.toml import dump_toml, read_text, read_toml
from fleet.core.base.forges import FORGES
from fleet.core.base.ids import is_slug, suggestion
from fleet.core.base.output import parse_json
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.facts.facts import IssueSource
from fleet.core.plans.lint import Grade
from fleet.core.plans.parameters import (
    Filled,
    Parameter,
    fill,
    flat_revision,
    parameter_lines,
    read_parameters,
    read_plan,
    value_text,
)
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext, Problem, Revision, SubtaskStatuses, revise_plan
from fleet.core.policy.requests import missing_rollback
from fleet.errors import UsageError
from fleet.ports.agents import ModelUse, ServiceGate

LONGEST_EPIC = 200_000  # characters: about 50,000 tokens in every planner call
LONGEST_NAME = 1_000  # characters; a longer text is not a file name
LARGEST_PLAN = 20 * 1024 * 1024
PLAN_FILES = (".toml", ".json")


@dataclass(frozen=True, slots=True)
class GivenEpic:
    """The goal of a run, and the issue it comes from."""

    goal: str
    issue: IssueSource | None = None


def read_epic(given: str) -> str:
    """The epic: the given text, or the contents of the named file. `-` is standard input."""
    epic, source = given, "the epic"
    if given == "-":
        epic, source = _stdin(), "standard input"
    elif _names_a_file(given):
        epic, source = read_text(Path(given)), given
    else:
        _refuse_reference(given)
    return checked_epic(epic, source)


def checked_epic(epic: str, source: str = "the epic") -> str:
    """The checked text of an epic. Raises `UsageError` if it is empty, too long or not text."""
    if not epic.strip():
        raise UsageError(f"{source} is empty", hint="describe the goal in a few sentences")
    if len(epic) > LONGEST_EPIC:
        raise UsageError(
            f"{source} is longer than {LONGEST_EPIC:,} characters",
            hint="put details into files in the repository, where the planner can read them",
        )
    if "\0" in epic or any("\ud800" <= char <= "\udfff" for char in epic):  # surrogates: bytes that are not UTF-8
        raise UsageError(f"{source} is not UTF-8 text")
    return _title_first(epic.strip())


def _title_first(epic: str) -> str:
    """The epic with its front matter moved to the end: the first line names the run."""
    matter = re.match(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|$)", epic, re.DOTALL)
    title = re.search(r"^title:[ \t]*(\S.*)$", matter[1], re.MULTILINE) if matter is not None else None
    if matter is None or title is None:
        return epic
    rest = [line for line in matter[1].splitlines() if line != title[0]]
    parts = (title[1].strip().strip("\"'"), epic[matter.end() :].strip(), "\n".join(rest).strip())
    return "\n\n".join(filter(None, parts))


def _refuse_reference(given: str) -> None:
    """Raise `UsageError` for a mere reference to an epic. The planner can't follow it without network access."""
    word = given.strip()
    if re.fullmatch(r"[a-z][a-z+.-]*://\S+|#?\d+|(?:\w+:)?[\w.-]+(?:/[\w.-]+)+[#!]\d+", word):
        short = " or ".join(f"{each.prefix}:{each.form}#12" for each in FORGES)
        hint = f"pass an issue as {short} or by its URL, or pass the text"
        raise UsageError(f"{word} is not a GitHub or GitLab issue, and the planner can't fetch web pages", hint=hint)
    if os.path.isdir(word):  # noqa: PTH112 - does not raise for an invalid path
        hint = "pass the epic as text or a file, and use --repo DIR for the repository"
        raise UsageError(f"{word} is a directory, not an epic", hint=hint)


def _names_a_file(given: str) -> bool:
    if "\n" in given or len(given) > LONGEST_NAME:
        return False
    try:
        if Path(given).is_file():
            return True
    except (OSError, ValueError):
        return False
    if " " not in given.strip() and given.endswith((".md", ".txt")):
        raise UsageError(f"{given}: file not found")
    return False


def _stdin() -> str:
    """Standard input as UTF-8 in every locale, cut off if it is too long."""
    return sys.stdin.buffer.read(LONGEST_EPIC * 4 + 1).decode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True)
class GivenPlan:
    """A plan from the user, with its values and its rollback plan."""

    plan: Plan
    values: Mapping[str, JsonValue]
    """The values of its parameters."""
    rollback: Plan | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings for the user."""
        return missing_rollback(self.plan, self.rollback)


def read_given_plan(
    path: Path, known: PlanContext, given: Mapping[str, str], folders: Sequence[Path] = ()
) -> GivenPlan:
    """The plan in a file with its values, and its rollback plan from the same folder or one of `folders`."""
    plan, values = _filled(path, known, given)
    return GivenPlan(plan, values, load_rollback(path, plan, known, values=values, folders=folders))


def load_plan(path: Path, known: PlanContext, given: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """The plan in a JSON or TOML file, with its values. Raises `UsageError` with every problem."""
    return _filled(path, known, given)[0]


def _filled(path: Path, known: PlanContext, given: Mapping[str, str]) -> tuple[Plan, Mapping[str, JsonValue]]:
    data = read_data(path)
    filled = fill(data, given)
    if not isinstance(filled, Filled):
        raise UsageError("\n".join((problem_list(f"can't fill in {path}", filled), *_usage(data))))
    plan = read_plan(filled.document, known)
    if not isinstance(plan, Plan):
        raise UsageError(problem_list(f"{path} is not a valid plan", plan))
    return plan, filled.values


def _usage(data: Mapping[str, Any]) -> list[str]:
    """The lines about the parameters of a plan."""
    parameters = read_parameters(data)
    if isinstance(parameters, tuple):
        return []
    lines = [f"  {line}" for line in parameter_lines(parameters)]
    return ["parameters:", *lines] if lines else ["the plan does not have parameters"]


def load_rollback(
    path: Path,
    plan: Plan,
    known: PlanContext,
    *,
    values: Mapping[str, JsonValue] = MappingProxyType({}),
    folders: Sequence[Path] = (),
) -> Plan | None:
    """The plan named by `rollback_plan`, from the folder of the plan or one of `folders`. None if there is no such key.

    Its parameters get the values of the plan's parameters with the same names. Raises `UsageError` if it is not valid.
    """
    name = plan.rollback_plan
    if not name:
        return None
    if name != Path(name).name or name.startswith("."):
        raise UsageError(
            f"{path}: invalid rollback_plan {name!r}",
            hint="use the name of a plan file in the same folder, without a path",
        )
    file = find_rollback(name, (path.parent, *folders))
    if file is None:
        return None
    parameters = read_parameters(read_data(file))
    shared = () if isinstance(parameters, tuple) else parameters.keys() & values.keys()
    rollback = load_plan(file, known, {name: value_text(values[name]) for name in shared})
    if twice := sorted(set(plan.ids) & set(rollback.ids)):
        raise UsageError(f"{file}: {', '.join(twice)} is also in {path}", hint="use other ids in the rollback plan")
    return rollback if rollback.plan_id != Plan().plan_id else rollback.model_copy(update={"plan_id": name})


def find_rollback(name: str, folders: Iterable[Path]) -> Path | None:
    files = (folder / f"{name}{suffix}" for folder in folders for suffix in ("", *PLAN_FILES))
    return next((file for file in files if file.is_file()), None)


def problem_list(title: str, problems: Sequence[Problem]) -> str:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return f"{title}: {len(problems)} problem{'s' * (len(problems) != 1)}{lines}"


def read_data(path: Path) -> Mapping[str, Any]:
    """The data in a JSON or TOML file."""
    if path.suffix == ".toml":
        return read_toml(path, largest=LARGEST_PLAN)
    try:
        data = parse_json(read_text(path, largest=LARGEST_PLAN))
    except ValueError as error:
        where = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(
            f"{path}{where}: invalid JSON ({error})", hint="if it is TOML, rename it to end in .toml"
        ) from error
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected a table, got {type(data).__name__}")
    return data


def dump_plan(plan: Plan, *, toml: bool) -> str:
    """The plan as a document that `load_plan` reads. Default values are omitted."""
    data = plan.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    data = {"plan_id": plan.plan_id, "goal": plan.goal, "version": plan.version} | data
    data["risk_level"] = plan.risk_level
    return dump_toml(data) if toml else json.dumps(data, indent=2, ensure_ascii=False) + "\n"


# ---- library ---------------------------------------------------------------------------------------------------------
# The library of plans: files in `.fleet/plans` of a repository and in the user's folder, with their names.
#
# The author of a repository controls its folder. So a name in both folders is ambiguous, and the user must give a path.


MOST = 1_000  # plans of one folder that are read
REPOSITORY_FOLDER = Path(".fleet") / "plans"

Where = Literal["repository", "user"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan in the library, or the problem with its file."""

    name: str
    where: Where
    path: Path
    title: str = ""
    parameters: tuple[tuple[str, Parameter], ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class PlanLibrary:
    """The plans of the user and of a repository, if any."""

    root: Path | None
    """The root of the repository."""

    @property
    def places(self) -> dict[Where, Path]:
        own = user_file_path().parent / "plans"
        return {"user": own} if self.root is None else {"repository": self.root / REPOSITORY_FOLDER, "user": own}

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(self.places.values())

    def entries(self) -> Iterator[Entry]:
        for where, folder in self.places.items():
            for path in _plan_files(folder):
                yield _entry(where, path)

    @property
    def names(self) -> list[str]:
        return sorted({path.stem for path in self._files()})

    def _files(self) -> list[Path]:
        return [path for folder in self.folders for path in _plan_files(folder)]

    def find(self, name: str) -> Path | None:
        """The file of the plan called `name`. Raises `UsageError` if there is more than one."""
        files = [path for path in self._files() if path.stem == name]
        if len(files) > 1:
            raise UsageError(
                f"{len(files)} plans are called {name!r}", hint=f"use a path: {' or '.join(map(str, files))}"
            )
        return files[0] if files else None

    def plan(self, given: str) -> Path:
        """The file for a path or a name in the library."""
        path = Path(given)
        if looks_like_a_file(given):
            return path
        file = self.find(given)
        if file is None and not path.is_file():
            raise UsageError(
                f"no plan called {given!r} in the library",
                hint=self.near(given) or "run `fleet plans list`, or use a path that ends in .toml or .json",
            )
        return file or path

    def near(self, name: str) -> str:
        """A hint if a plan has a similar name."""
        return suggestion(name, self.names)

    def save(self, text: str, name: str, suffix: str, *, where: Where, force: bool) -> Path:
        """Save the document of a plan under a name. Another plan of this name is replaced only with `force`."""
        if not is_slug(name) or name.endswith(PLAN_FILES):
            raise UsageError(
                f"invalid plan name: {name!r}", hint="use 1 to 64 letters, digits, dots, dashes or underscores"
            )
        folder = self.places.get(where)
        if folder is None:
            raise UsageError("the current folder is not in a repository", hint="use --user to save to your own library")
        existing = [path for end in PLAN_FILES if os.path.lexists(path := folder / f"{name}{end}")]
        if existing and not force:
            raise UsageError(f"{existing[0]} already exists", hint="use --force to overwrite it")
        if where == "repository" and self.root is not None and not folder.resolve().is_relative_to(self.root.resolve()):
            raise UsageError(
                f"{folder} links to a folder outside the repository: {folder.resolve()}", hint="replace the link"
            )
        path = folder / f"{name}{suffix}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(path, text)
            for other in existing:
                if other != path:
                    other.unlink()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        return path


def looks_like_a_file(given: str) -> bool:
    return "/" in given or given.endswith(PLAN_FILES)


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically. A link at its path is replaced, not followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _plan_files(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    plans = (path for path in paths if path.suffix in PLAN_FILES and is_slug(path.stem) and path.is_file())
    yield from islice(plans, MOST)


def _entry(where: Where, path: Path) -> Entry:
    try:
        data = read_data(path)
    except UsageError as error:
        return Entry(path.stem, where, path, problem=str(error))
    parameters = read_parameters(data)
    if isinstance(parameters, tuple):
        return Entry(path.stem, where, path, problem=problem_list(str(path), parameters))
    titles = (str(data[key]).strip() for key in ("goal", "plan_id") if isinstance(data.get(key), str))
    lines = next(filter(None, titles), "").splitlines()
    return Entry(path.stem, where, path, title=lines[0] if lines else "", parameters=tuple(parameters.items()))


# ---- preview ---------------------------------------------------------------------------------------------------------
# For `fleet plan`: a meter and a submission without a run or a journal. Calls do not wait for the service.


class PlanPreview:
    """Accepts the first revision of a planner. A `Meter` without limits."""

    service = ServiceGate()
    """Calls do not wait for the service. A failure is reported instead of a plan."""
    called = False
    """Calls are not repeated, so this is never set."""

    def __init__(self, known: PlanContext, goal: str, grade: Callable[[Plan], Grade], *, flat: bool) -> None:
        self._flat = flat
        self._known = known
        self._grade = grade
        self._has_objected = False
        self.plan = Plan(goal=goal)

    async def submit(self, revision: Revision) -> tuple[Problem, ...]:
        if self._flat:
            revision = flat_revision(revision, self.plan.goal)
        revised = revise_plan(self.plan, revision, SubtaskStatuses(), self._known)
        if isinstance(revised, tuple):
            return revised
        grade = self._grade(revised)
        if grade.errors and not self._has_objected:  # as in a run: reported once, then accepted
            self._has_objected = True
            return grade.errors
        self.plan = revised
        return ()

    # ---- the meter

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> f.Failure | None:
        """A preview does not have a budget."""

    async def widen(self, most: Cost) -> float:
        """A preview does not have a budget."""
        del most
        return 1.0

    async def used(self, use: ModelUse) -> None:
        """A preview does not have a journal."""

    def release(self, *, lost: bool = False) -> None:
        """A preview does not reserve anything."""
