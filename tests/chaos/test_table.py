"""The table of faults in docs/internals/reliability.md has a row per fault and agrees with code and tests."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from chaos.environment import PASSING_FAULTS
from chaos.faults import FAULTS
from chaos.unrecoverable_runs import LASTING_FAULTS
from chaos.unrecoverable_subtasks import CONFLICTED, UNRECOVERABLE

ROOT = Path(__file__).parents[2]
ROWS = range(1, 65)
NONE = "\N{EN DASH}"
PLAYED = {"faults", "unrecoverable_subtasks", "unrecoverable_runs", "environment"}


@dataclass(frozen=True)
class Row:
    levels: frozenset[str]
    files: frozenset[str]
    tests: tuple[str, ...]


def documented() -> list[tuple[int, Row]]:
    rows = []
    for line in (ROOT / "docs/internals/reliability.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| (\d+) \|[^|]*\| ([^|]+) \|[^|]*\| ([^|]*) \|$", line)
        if row:
            files, tests = re.findall(r"`((?:tests|chaos)/[\w/]+\.py)`", row[3]), re.findall(r"`(test_\w+)`", row[3])
            rows.append((int(row[1]), Row(frozenset(row[2].split(", ")) - {NONE}, frozenset(files), tuple(tests))))
    return rows


def in_code() -> dict[int, dict[str, set[str]]]:
    """By row: its levels, each with the files that play it."""
    played: dict[int, dict[str, set[str]]] = {}

    def add(row: int, level: str, file: str) -> None:
        played.setdefault(row, {}).setdefault(level, set()).add(file)

    for fault in FAULTS:
        add(fault.row, f"L{fault.level}", "faults")
    for row in (CONFLICTED.row, *(subtask.row for subtask in UNRECOVERABLE.values())):
        add(row, "unrecoverable", "unrecoverable_subtasks")
    for run in LASTING_FAULTS.values():
        add(run.row, "unrecoverable", "unrecoverable_runs")
    for passing in PASSING_FAULTS.values():
        add(passing.row, "environment", "environment")
    return played


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_each_fault_has_one_row() -> None:
    assert [number for number, _ in documented()] == list(ROWS)


def test_a_row_names_the_levels_and_files_that_play_it_and_no_other() -> None:
    played = in_code()
    for number, row in documented():
        levels = played.get(number, {})
        files = {path for path in row.files if Path(path).stem in PLAYED}
        assert (number, row.levels) == (number, frozenset(levels))
        assert (number, files) == (number, {f"chaos/{name}.py" for names in levels.values() for name in names})


def test_every_row_is_tested_somewhere_and_what_it_names_is_there() -> None:
    for number, row in documented():
        assert row.files, f"row {number} names no file"
        defined = frozenset[str]().union(*(functions(ROOT / path) for path in row.files))
        assert set(row.tests) <= defined, f"row {number}: {set(row.tests) - defined}"
