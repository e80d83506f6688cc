"""What the shell's completion offers of runs: names, read from journals without parsing their facts.

Answers within the time of a keystroke, so it imports nothing heavy; what it can't read, it leaves out. The names in a
journal were checked when they were written; they are checked again, as a shell will see them.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fleet.runs.repository import git_folder, is_same_repository

MOST_RUNS, MOST_FACTS = 100, 2_000
BUSY_S = 0.2
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_PLANS = ("run_started", "plan_revised")


def run_names(state_dir: Path, repository: Path) -> list[str]:
    """The runs of a repository, the latest first; those of all repositories if it has none."""
    here, everywhere = git_folder(repository), list(_journals(state_dir))
    return [path.parent.name for path in everywhere if _is_of(path, here)] or [path.parent.name for path in everywhere]


def subtask_ids(state_dir: Path, run: str | None, repository: Path) -> list[str]:
    """The subtasks of a run, or of the latest one of the repository."""
    found = dict.fromkeys(id_ for body in _facts(state_dir, run, repository, _PLANS) for id_ in _subtasks(body))
    return list(found)


def question_ids(state_dir: Path, run: str | None, repository: Path) -> list[str]:
    """The questions of a run that were not answered, the latest first. They are numbered as they are asked."""
    asked, answered = 0, set[str]()
    for body in _facts(state_dir, run, repository, ("question_asked", "question_answered", "plan_revised")):
        asked += (body.get("kind") == "question_asked") + len((body.get("revision") or {}).get("ask") or ())
        answered.add(str(body.get("question")) if body.get("kind") == "question_answered" else "")
    return [id_ for number in range(asked, 0, -1) if (id_ := f"q{number}") not in answered]


def _journals(state_dir: Path) -> Iterator[Path]:
    """The journals of the latest runs, the one that was written last first."""
    found = []
    with suppress(OSError):
        for folder in (state_dir / "runs").iterdir():
            with suppress(OSError):
                if NAME.fullmatch(folder.name):
                    found.append(((folder / "journal.db").stat().st_mtime_ns, folder / "journal.db"))
    yield from (path for _, path in sorted(found, reverse=True)[:MOST_RUNS])


def _is_of(journal: Path, here: Path | None) -> bool:
    first = next(_rows(journal, "select body from facts order by seq limit 1"), {})
    return is_same_repository(str(first.get("repository")), here)


def _facts(state_dir: Path, run: str | None, repository: Path, kinds: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    name = run.removeprefix("fleet/") if run is not None else next(iter(run_names(state_dir, repository)), None)
    if name is not None and NAME.fullmatch(name):
        marks = ", ".join("?" * len(kinds))
        query = f"select body from facts where kind in ({marks}) order by seq limit {MOST_FACTS}"  # noqa: S608 - marks
        yield from _rows(state_dir / "runs" / name / "journal.db", query, *kinds)


def _rows(journal: Path, query: str, *values: str) -> Iterator[dict[str, Any]]:
    with suppress(sqlite3.Error, ValueError):
        uri = f"file:{quote(str(journal))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
            for (body,) in connection.execute(query, values):
                fact = json.loads(body)
                if isinstance(fact, dict):
                    yield fact


def _subtasks(value: object) -> Iterator[str]:
    """Every id beside acceptance criteria: subtasks, wherever a plan or a revision has them."""
    if isinstance(value, dict):
        if "acceptance" in value and NAME.fullmatch(str(value.get("id"))):
            yield str(value["id"])
        for item in value.values():
            yield from _subtasks(item)
    elif isinstance(value, list):
        for item in value:
            yield from _subtasks(item)
