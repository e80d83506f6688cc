"""Through the configuration of the repository that fleet is called in: every key of git that names a program."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.canaries import Called, call_verbs, is_run_by_git, make_template, why_no_control
from chaos.canary_calls import REFUSED
from chaos.canary_keys import KEYS
from fleet.cli.verb_table import VERBS
from scripts.frame import temporary_folder
from tests.e2e.stage import Done

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


@pytest.mark.thorough
def test_55_no_verb_runs_a_program_of_the_repository_s_settings(template: Path, folder: Path) -> None:
    cage, ended = call_verbs(folder / "verbs", template)
    assert cage.ran == []
    assert {called.verb for called in ended} == VERBS.keys()
    assert [str(called) for called in ended if called.is_wrong] == []
    fine = {called.verb for called in ended if called.done.code == 0}
    can_not = {"doctor", "resume", "pr", "tend"}  # nothing is wrong with it, it has ended, and it is on no forge
    assert fine >= VERBS.keys() - can_not, "each has done what it is for at least once"


def test_55_a_call_that_does_nothing_is_noticed() -> None:
    assert Called("run", Done("fleet run", 2, "", "no plan")).is_wrong
    assert Called("run", Done("fleet run", 1, "Traceback (most recent call last)", "")).is_wrong
    assert not Called("run", Done("fleet run", 0, "", "")).is_wrong
    [refused, *_] = sorted(REFUSED)
    assert [Called("merge", Done(f"fleet {refused}", code, "", "")).is_wrong for code in (2, 0)] == [False, True]
