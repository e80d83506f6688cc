"""The repositories of the evaluation, each with an epic, a known solution, and held-out checks.

A case is one file in `repositories/`. Its checks fail on the base and pass on the known solution, which
`tests/evaluation` verifies. `subtasks` is a valid plan, which the simulated model follows.
"""

import os
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fleet.core.plans.plan import Criterion

FOLDER = Path(__file__).with_name("repositories")
BRANCH = "main"
WRITTEN = "2026-01-01T00:00:00+00:00"


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(Shape):
    """A check of the result that planner and workers don't know."""

    criterion: str
    run: str


class KnownSubtask(Shape):
    """A subtask of the plan that is known to work: it changes the files that it names to those of the solution."""

    id: str
    title: str
    goal: str
    run: str
    touches: tuple[str, ...] = Field(min_length=1)
    depends_on: tuple[str, ...] = ()


class Case(Shape):
    """One repository with its epic."""

    name: str
    layout: str
    gate: str
    epic: str
    base: dict[str, str]
    """Files of the repository, by path."""
    solution: dict[str, str]
    """The files that the known solution adds or changes."""
    held: dict[str, str] = {}
    """Files that only the checks need."""
    checks: tuple[Check, ...] = Field(min_length=1)
    subtasks: tuple[KnownSubtask, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _texts_begin_in_the_line_below(cls, data: dict[str, object]) -> dict[str, object]:
        for name in ("base", "solution", "held"):
            files = data.get(name, {})
            assert isinstance(files, dict)
            data = {**data, name: {path: text.removeprefix("\n") for path, text in files.items()}}
        return data

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """The checks as they are run on a result."""
        return tuple(Criterion(criterion=check.criterion, run=check.run) for check in self.checks)


@cache
def all_cases() -> Mapping[str, Case]:
    """Every case by its name."""
    return {path.stem: read_case(path) for path in sorted(FOLDER.glob("*.toml"))}


def read_case(path: Path) -> Case:
    return Case.model_validate({"name": path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))})


# ---- its repository --------------------------------------------------------------------------------------------------


def build_repository(case: Case, folder: Path) -> str:
    """A new repository with the base as its only commit, which it returns."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", f"--initial-branch={BRANCH}")
    tables = f"[checks]\ngate = '''{case.gate}'''\n"
    commit = commit_with(folder, None, {**case.base, "fleet.toml": tables, ".gitignore": "__pycache__/\n"})
    git(folder, "reset", "--quiet", "--hard", commit)
    return commit


def commit_with(repository: Path, parent: str | None, files: Mapping[str, str]) -> str:
    """A commit with these files on top of another. No branch moves and no file is checked out."""
    index = repository / ".git" / "evaluation-index"
    git(repository, "read-tree", parent or "--empty", index=index)
    for path, text in files.items():
        blob = git(repository, "hash-object", "-w", "--stdin", given=text)
        git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", index=index)
    tree = git(repository, "write-tree", index=index)
    return git(repository, "commit-tree", tree, "-m", "Files", *(("-p", parent) if parent else ()))


def files_of(repository: Path, commit: str) -> frozenset[str]:
    """The paths of a commit."""
    listed = git(repository, "ls-tree", "-r", "-z", "--name-only", commit)
    return frozenset(path for path in listed.split("\0") if path)


def text_of(repository: Path, commit: str, path: str) -> str:
    return git(repository, "show", f"{commit}:{path}", strip=False)


def git(repository: Path, *arguments: str, given: str = "", strip: bool = True, index: Path | None = None) -> str:
    """Return the output of git, without user or system configuration."""
    who = {
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "Ada Example"), ("EMAIL", "ada@example.invalid"), ("DATE", WRITTEN))
    }
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **who,
        **({"GIT_INDEX_FILE": str(index)} if index is not None else {}),
    }
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=environment, input=given.encode(), capture_output=True, check=True
    )
    text = done.stdout.decode("utf-8", "replace")
    return text.strip() if strip else text
