"""Through the configuration of the repository that fleet is called in: every key of git that names a program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.canaries import call_verbs, is_run_by_git, make_template, why_no_control
from chaos.canary_keys import KEYS
from scripts.frame import temporary_folder

PROVEN = 60  # keys of which plain git of any release from 2.39 on shows that they run a program


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with temporary_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def template(folder: Path) -> Path:
    return make_template(folder)


def test_55_plain_git_runs_the_programs_of_the_repository_s_settings(template: Path, folder: Path) -> None:
    known = {name: key for name, key in KEYS.items() if why_no_control(key) is None}
    ran = [
        name
        for number, (name, key) in enumerate(known.items())
        if is_run_by_git(key=key, name=name, template=template, folder=folder / str(number))
    ]
    assert ran == list(known)
    assert len(ran) >= PROVEN


def test_55_no_verb_runs_a_program_of_the_repository_s_settings(template: Path, folder: Path) -> None:
    cage, ended = call_verbs(folder / "verbs", template)
    codes = {command.split(" ")[1]: code for command, code, _ in ended}
    assert cage.ran == []
    assert [codes[verb] for verb in ("init", "run", "audit", "clean")] == [0, 0, 0, 0], ended
    assert not [output for _, _, output in ended if "Traceback" in output]
