"""The frame of the benchmark and chaos programs: rows, the summary, exit codes and the command line."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.__main__ import PROGRAMS
from chaos.__main__ import main as list_programs
from scripts.frame import (
    INTERRUPTED,
    MET,
    MISSED,
    Figure,
    Table,
    add_names,
    command_line,
    exit_with,
    temporary_folder,
)

ROOT = Path(__file__).parents[2]


def test_a_figure_is_met_at_most_or_at_least_at_its_target() -> None:
    most, least = Figure("m", "w", 2.0, wanted=2.0), Figure("m", "w", 2.0, wanted=2.0, at_least=True)
    assert (most.met, least.met) == (True, True)
    assert Figure("m", "w", 2.1, wanted=2.0).met is False
    assert Figure("m", "w", 1.9, wanted=2.0, at_least=True).met is False
    assert Figure("m", "w", 9.9).met is None


def test_a_row_shows_value_target_and_verdict() -> None:
    row = str(Figure("lease", "10 files", 0.5, 0.25, wanted=0.4, note="5 of 10 ms"))
    assert " ".join(row.split()) == "lease 10 files 0.5000 0.2500 at most 0.4 NOT MET 5 of 10 ms"
    assert " ".join(str(Figure("failures", "twice", 0, wanted=0)).split()) == "failures twice 0 at most 0 met"
    assert str(Figure("without a target", "here", 1.0)).split()[-1] == "1.0000"


def test_a_table_prints_rows_details_and_at_the_end_what_is_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("the subject")
    table.add(Figure("good", "w", 1, wanted=1), details=("a detail",))
    assert table.finish() == MET
    table.add(Figure("bad", "w", 2, wanted=1), Figure("other", "w", 3))
    assert table.finish() == MISSED
    out = capsys.readouterr().out
    assert out.startswith("the subject; ")
    assert "\n    a detail\n" in out
    assert "1 of 1 targets met" in out
    first, _, last = out.rpartition("not met:\n")
    assert "1 of 2 targets met" in first
    assert [line.split()[0] for line in last.splitlines()] == ["bad"]


def test_the_help_shows_the_examples_of_the_docstring_as_they_are_written() -> None:
    parser = command_line("bench", "Measures.\n\n    python -m bench x   # an example\n")
    assert "\n    python -m bench x   # an example\n" in parser.format_help()


def test_unknown_names_are_refused_and_no_name_means_all(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command_line("bench", "")
    add_names(parser, "GROUP", {"one": 1, "two": 2})
    assert not parser.parse_args([]).names
    assert parser.parse_args(["two"]).names == ["two"]
    with pytest.raises(SystemExit):
        parser.parse_args(["three"])
    assert "'three'" in capsys.readouterr().err


def test_ctrl_c_is_exit_code_130() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        exit_with(interrupted)
    assert ended.value.code == INTERRUPTED


def test_a_temporary_folder_is_removed_and_may_be_anywhere(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        assert folder.parent == tmp_path
        (folder / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_tasks_run_in_processes_of_their_own() -> None:
    """In an interpreter without threads, as the programs do it."""
    program = (
        "import os; from scripts.frame import forked_processes\n"
        "with forked_processes(2) as processes: print(processes.submit(os.getpid).result() != os.getpid())"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("program", ["bench", *(f"chaos.{name}" for name in PROGRAMS)])
def test_every_program_explains_itself_with_examples(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = importlib.import_module("bench.__main__" if program == "bench" else program).main
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    shown = capsys.readouterr().out
    assert not ended.value.code
    assert shown.startswith(f"usage: python -m {program} ")
    assert f"\n    python -m {program} " in shown


def test_chaos_lists_its_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_programs() == MET
    listed = {line.split()[2] for line in capsys.readouterr().out.splitlines() if line.startswith("python -m ")}
    programs = {path.stem for path in (ROOT / "chaos").glob("*.py") if "exit_with(main)" in path.read_text()}
    assert listed == {f"chaos.{name}" for name in programs - {"__main__"}}
