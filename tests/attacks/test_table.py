"""The tables of attacks in the documentation list what is tested, and nothing else."""

import ast
import re
from pathlib import Path

ROWS = {*range(1, 37), 38, 39, 40, *range(41, 48), *range(55, 59), *range(61, 75), *range(91, 100), *range(110, 118)}
HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "reference" / "attacks.md"


def by_row() -> dict[int, set[str]]:
    """The files that hold a test of a row: its name begins with the row's number, or with those of several."""
    files_by_row: dict[int, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                numbers = re.match(r"test_((?:\d+_)+)", node.name)
                for number in numbers[1].split("_") if numbers else ():
                    if number:
                        files_by_row.setdefault(int(number), set()).add(path.name)
    return files_by_row


def documented() -> dict[int, set[str]]:
    files_by_row: dict[int, set[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| (\d+) \|.*\|([^|]*)\|$", line)
        if row:
            files_by_row[int(row[1])] = set(re.findall(r"`(\w+\.py)`", row[2]))
    return files_by_row


def test_every_attack_has_its_test() -> None:
    assert by_row().keys() == ROWS


def test_the_table_names_every_attack_and_where_it_is_tested() -> None:
    assert documented() == by_row()
