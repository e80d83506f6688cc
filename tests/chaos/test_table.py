"""The table of faults in the documents has a row for each, and says of it what the code and the tests say."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.chaos.faults import FAULTS
from tests.chaos.hopeless import CONFLICTED, HOPELESS
from tests.chaos.lost import LOST
from tests.chaos.world import WORLD

ROOT = Path(__file__).parents[2]
ROWS = range(1, 65)
NONE = "\N{EN DASH}"
PLAYED = {"faults", "hopeless", "lost", "world"}


@dataclass(frozen=True)
class Row:
    levels: frozenset[str]
    files: frozenset[str]
    tests: tuple[str, ...]


def documented() -> list[tuple[int, Row]]:
    found = []
    for line in (ROOT / "docs/reliability.md").read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| (\d+) \|[^|]*\| ([^|]+) \|[^|]*\| ([^|]*) \|$", line)
        if row:
            files, tests = re.findall(r"`(tests/[\w/]+\.py)`", row[3]), re.findall(r"`(test_\w+)`", row[3])
            found.append((int(row[1]), Row(frozenset(row[2].split(", ")) - {NONE}, frozenset(files), tuple(tests))))
    return found


def in_code() -> dict[int, dict[str, str]]:
    """By row: its levels, each with the file that plays it."""
    played: dict[int, dict[str, str]] = {}
    for fault in FAULTS:
        played.setdefault(fault.row, {})[f"L{fault.level}"] = "faults"
    for row in (CONFLICTED.row, *(one.row for one in HOPELESS.values())):
        played.setdefault(row, {})["hopeless"] = "hopeless"
    for lost in LOST.values():
        played.setdefault(lost.row, {})["hopeless"] = "lost"
    for event in WORLD.values():
        played.setdefault(event.row, {})["world"] = "world"
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
        assert (number, files) == (number, {f"tests/chaos/{name}.py" for name in levels.values()})


def test_every_row_is_tested_somewhere_and_what_it_names_is_there() -> None:
    for number, row in documented():
        assert row.files, f"row {number} names no file"
        there = frozenset[str]().union(*(functions(ROOT / path) for path in row.files))
        assert set(row.tests) <= there, f"row {number}: {set(row.tests) - there}"
