"""A version of the prompts: a folder may hold some of them, a commit all of them, and no other name is taken."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.versions import ROOT, THIS_TREE, our_prompts, program_with, read_version
from fleet.errors import UsageError


def test_a_folder_holds_only_the_prompts_that_differ(tmp_path: Path) -> None:
    (tmp_path / "planner.md").write_text("Plan less.", encoding="utf-8")
    version = read_version(str(tmp_path))
    assert version.prompts == {**our_prompts(), "planner.md": "Plan less."}
    assert version.digest != read_version(THIS_TREE).digest


def test_a_program_has_the_prompts_of_its_version_and_all_else_of_this_tree(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "planner.md").write_text("Plan less than $horizon.", encoding="utf-8")
    program = program_with(read_version(str(tmp_path / "prompts")), tmp_path / "program")
    show = (
        "import agents.models.text as text, fleet.app.wiring\n"
        "print(text.render('planner', horizon=3), '|', text.render('reporting')[:11])"
    )
    environment = {"PYTHONPATH": str(program), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", show]
    done = subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Plan less than 3. | # Reporting"


def test_a_commit_of_this_repository_is_a_version() -> None:
    known = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    version = read_version(known.stdout.strip())
    assert set(version.prompts) == set(our_prompts())
    assert version.prompts["planner.md"].startswith("You are the planner")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "has no prompts"),
        ({"planer.md": "x"}, "did you mean 'planner.md'"),
        ({"planner.md": "x" * 200_001}, "at most 200,000"),
    ],
)
def test_a_folder_that_is_no_version_says_why(files: dict[str, str], says: str, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        read_version(str(tmp_path))


@pytest.mark.parametrize("name", ["no-such-branch", "--exec=x", "HEAD:README.md", ""])
def test_what_is_neither_folder_nor_commit_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        read_version(name)
