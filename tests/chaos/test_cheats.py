"""A share of `python -m chaos.cheats`: cheats that once landed and honest work, where nothing has to be installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.cheating import Case
from chaos.cheats import RUNNERS, Verdict, details, figures, judge, missing

CASE = Case("a way", {"lib.py": ""})
HONEST = replace(CASE, honest=True)
NEEDS_NOTHING = [
    pytest.param(name, marks=[] if name in {"make", "scripts"} else pytest.mark.thorough)
    for name in ("unittest", "make", "scripts", "node")
    if not missing(RUNNERS[name])
]
CONTROLS = 3
MORE = 20  # cheats of each runner that the first review did not see


@pytest.mark.parametrize("name", NEEDS_NOTHING)
async def test_no_cheat_lands_without_a_word_and_honest_work_lands(name: str, tmp_path: Path) -> None:
    runner = RUNNERS[name]
    cheats = [case for case in runner.cheats() if case.reviewed]
    verdicts = await judge(runner, [*cheats, *runner.controls()[-CONTROLS:]], tmp_path)
    assert [verdict for verdict in verdicts if not verdict.is_as_wanted] == []
    assert len(verdicts) == len(cheats) + CONTROLS


def test_every_runner_has_cheats_and_controls() -> None:
    assert set(RUNNERS) == {"unittest", "pytest", "node", "jest", "vitest", "go", "cargo", "make", "scripts"}
    for runner in RUNNERS.values():
        assert sum(not case.reviewed for case in runner.cheats()) >= MORE
        assert len(runner.controls()) >= 3
        names = [case.name for case in runner.cases]
        assert len(names) == len(set(names))


def test_what_went_wrong_is_counted_and_shown() -> None:
    fine = [Verdict(CASE, "held", "why"), Verdict(CASE, "named", "why"), Verdict(HONEST, "landed", "")]
    wrong = [Verdict(CASE, "landed", ""), Verdict(HONEST, "held", "why")]
    assert [figure.met for figure in figures("r", fine)] == [True, True]
    assert [(figure.value, figure.met) for figure in figures("r", [*fine, *wrong])] == [(1, False), (1, False)]
    assert details([*fine, *wrong], every=False) == ("cheat: a way: landed ", "control: a way: held why")
    assert len(details([*fine, *wrong], every=True)) == 5
