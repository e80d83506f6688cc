"""How a long journal is read: slice by slice, with its progress on a terminal once that takes a while."""

from itertools import count
from pathlib import Path

import pytest

from fleet.cli.common import FIRST_S, LINE, ReadingProgress, read_state, reading
from fleet.core.facts import facts as f
from fleet.core.history.evolve import SLICE
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of

NOTES = 2 * SLICE


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "runs" / "r")
    notes = [f.WarningNoted(at=0, text=str(number)) for number in range(NOTES)]
    with Journal.create(run.journal) as journal:
        journal.append([*Story(plan=plan_of("a")).facts, *notes])
    return run


def test_all_facts_are_read_as_at_once(folder: RunFolder) -> None:
    with Journal(folder.journal) as journal, reading(folder, journal) as facts:
        assert list(facts) == journal.facts()
        assert journal.last == journal.length > NOTES
    assert read_state(folder) == folder.state()


def test_facts_that_are_written_meanwhile_are_left_for_the_next_time(folder: RunFolder) -> None:
    with Journal(folder.journal) as journal:
        before = journal.length
        read = []
        for seq, _ in journal.each():
            read.append(seq)
            journal.append([f.WarningNoted(at=0, text="one more")])
        assert read[-1] < before + SLICE
        assert journal.length == before + len(read)


def test_an_empty_journal_has_no_facts(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "r" / "journal.db") as journal:
        assert (list(journal.each()), journal.last) == ([], 0)


def test_progress_is_shown_once_it_takes_longer_than_a_second_and_then_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = count(0.0, FIRST_S / 2)
    progress = ReadingProgress("bench", clock=lambda: next(times), is_terminal=True)
    progress.show(200, 1_000)
    assert capsys.readouterr().err == ""
    progress.show(400, 1_000)
    shown = capsys.readouterr().err
    assert shown.startswith("\rreading bench: 400 of 1,000 facts")
    progress.clear()
    assert capsys.readouterr().err == f"\r{' ' * LINE}\r"
    assert len(shown) == LINE + 1


def test_what_was_read_at_once_shows_and_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ReadingProgress("bench", clock=lambda: 0.0, is_terminal=True)
    progress.show(1, 1)
    progress.clear()
    assert capsys.readouterr().err == ""


def test_elsewhere_than_on_a_terminal_there_is_no_progress(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    times = count(0.0, FIRST_S)
    read_state(folder, ReadingProgress("bench", clock=lambda: next(times)))
    assert capsys.readouterr().err == ""
    read_state(folder, ReadingProgress("bench", clock=lambda: next(times), is_terminal=True))
    assert "facts" in capsys.readouterr().err
