"""What a rehearsal writes into fleet.toml: only what is not there, below the header of its table, with the reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.core.base.ids import RunId, Sha
from fleet.errors import UsageError
from fleet.features.rehearse.rehearsal_view import RehearsalView, Setting
from fleet.features.rehearse.rehearsing import write_advice

VIEW = RehearsalView(
    run=RunId("dress"),
    rehearsal=True,
    repository="/work",
    base=Sha("b" * 40),
    head=Sha("h" * 40),
    tip=Sha("t" * 40),
    commits=7,
    landed=7,
    tree_equal=True,
    differing=(),
    by_hand=(),
    red_in_history=(),
    flaky=(),
    attempts=7,
    engines=1,
    seconds=1.0,
    processor_s=1.0,
    landed_an_hour=100,
    gate=None,
    workers=8,
    limited_by="disk",
    settings=(Setting("run.workers", 8, "what this machine feeds"), Setting("checks.reruns", 2, "the gate is flaky")),
)


def test_a_file_is_made_with_the_gate_and_the_reasons(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    assert write_advice(path, VIEW, gate="make test") == f"wrote checks.gate, run.workers, checks.reruns to {path}"
    assert path.read_text(encoding="utf-8") == (
        "[checks]\n"
        "# The rehearsed gate (measured by dress, 7 commits up to hhhhhhhhhhhh).\n"
        'gate = "make test"\n'
        "# The gate is flaky (measured by dress, 7 commits up to hhhhhhhhhhhh).\n"
        "reruns = 2\n"
        "\n"
        "[run]\n"
        "# What this machine feeds (measured by dress, 7 commits up to hhhhhhhhhhhh).\n"
        "workers = 8\n"
    )


def test_what_a_person_has_set_stays(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("# mine\n[ run ] # few\nworkers = 2\n\n[checks]\ngate = 'x'\n", encoding="utf-8")
    message = write_advice(path, VIEW, gate="make test")
    assert message.endswith("kept your values of checks.gate, run.workers")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# mine\n[ run ] # few\nworkers = 2\n\n[checks]\n# The gate is flaky")
    assert write_advice(path, VIEW, gate="make test").startswith(f"{path} already has all of these settings")
    assert path.read_text(encoding="utf-8") == text


def test_a_file_that_nothing_can_be_added_to_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("run.workers = 2\n", encoding="utf-8")
    with pytest.raises(UsageError):
        write_advice(path, replace(VIEW, settings=(Setting("run.budget_soft", 0.5, "why"),)), gate="")
    assert path.read_text(encoding="utf-8") == "run.workers = 2\n"
