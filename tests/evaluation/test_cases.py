"""Each case keeps its promise: its checks fail on the base and pass on the known solution, and so do its subtasks'."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from evaluation.cases import Case, all_cases, build_repository, commit_with, files_of, text_of

CASES = all_cases()


def passes(folder: Path, command: str, *trees: Mapping[str, str]) -> bool:
    folder.mkdir()
    for path, text in {path: text for tree in trees for path, text in tree.items()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def test_there_are_eight_of_different_layouts() -> None:
    assert len(CASES) == len({case.layout for case in CASES.values()}) == 8


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_its_checks_fail_on_the_base_and_pass_on_the_known_solution(case: Case, tmp_path: Path) -> None:
    assert passes(tmp_path / "gate", case.gate, case.base)
    assert passes(tmp_path / "gate-after", case.gate, case.base, case.solution)
    for number, check in enumerate(case.checks):
        assert not passes(tmp_path / f"base-{number}", check.run, case.base, case.held), check.run
        assert passes(tmp_path / f"known-{number}", check.run, case.base, case.solution, case.held), check.run


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_its_known_plan_proves_something_and_covers_the_solution(case: Case, tmp_path: Path) -> None:
    for subtask in case.subtasks:
        assert not passes(tmp_path / f"base-{subtask.id}", subtask.run, case.base), subtask.run
        assert passes(tmp_path / f"known-{subtask.id}", subtask.run, case.base, case.solution), subtask.run
    touched = [path for subtask in case.subtasks for path in subtask.touches]
    assert sorted(touched) == sorted(case.solution), "each file of the solution belongs to one subtask"


def test_a_commit_with_more_files_moves_nothing(tmp_path: Path) -> None:
    case = CASES["two_bugs"]
    base = build_repository(case, tmp_path / "repository")
    more = commit_with(tmp_path / "repository", base, {"new file.txt": "new\n", **case.solution})
    assert files_of(tmp_path / "repository", more) - files_of(tmp_path / "repository", base) == {
        "new file.txt",
        "tests/test_comments.py",
        "tests/test_quotes.py",
    }
    assert text_of(tmp_path / "repository", more, "ini/writer.py") == case.solution["ini/writer.py"]
    assert text_of(tmp_path / "repository", "main", "ini/writer.py") == case.base["ini/writer.py"]
    assert not (tmp_path / "repository" / "new file.txt").exists()
