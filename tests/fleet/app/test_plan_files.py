"""Plan files without a run: shown, checked, compared and drawn."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from dashboards.text.plan_review import dot, graph_lines, mermaid
from fleet.app.input_files import dump_plan
from fleet.cli.entry import app
from fleet.errors import UsageError
from tests.dashboards.hostile import HOSTILE, problems
from tests.fleet.core.story import plan_of


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(dump_plan(plan_of("a", "b needs a", "c needs a", "d needs b c"), toml=True))
    return path


def says(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["plans", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_plan_is_shown_with_its_size_and_a_missing_estimate_is_unknown(file: Path) -> None:
    shown = says("show", file)
    assert "check: check a" in shown
    assert "Risk: 4 low" in shown
    assert "Cost: unknown" in shown
    assert "Estimate: too few past runs in this repository for an estimate" in shown


def test_an_invalid_plan_is_reported_with_the_reason(file: Path) -> None:
    assert "is valid" in says("check", file)
    file.write_text(file.read_text().replace('depends_on = [\n    "a",\n]', 'depends_on = ["zzz"]'))
    result = CliRunner().invoke(app, ["plans", "check", str(file)])
    assert isinstance(result.exception, UsageError)
    assert "zzz" in str(result.exception)


def test_two_plans_are_compared(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text(dump_plan(plan_of("a", "b", "e"), toml=False))
    changes = says("diff", file, other)
    assert "+ e" in changes
    assert "- c" in changes
    assert "~ b depends_on: a → (nothing)" in changes
    assert says("diff", file, file) == "the plans are the same\n"


def test_a_graph_is_written_as_text_mermaid_and_dot(file: Path, tmp_path: Path) -> None:
    assert [line.split()[0] for line in says("graph", file).splitlines()] == [
        "wave",
        "a",
        "wave",
        "b",
        "c",
        "wave",
        "d",
    ]
    says("graph", file, "-o", tmp_path / "g.mmd")
    assert (tmp_path / "g.mmd").read_text().count("-->") == 4
    says("graph", file, "-o", tmp_path / "g.dot")
    assert (tmp_path / "g.dot").read_text().count(" -> ") == 4


def test_a_graph_as_a_picture_is_refused_with_what_makes_one(file: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["plans", "graph", str(file), "-o", str(tmp_path / "g.svg")])
    assert isinstance(done.exception, UsageError)
    assert "dot -Tsvg plan.dot -o g.svg" in str(done.exception)


def test_what_is_drawn_is_harmless_however_hostile_the_plan() -> None:
    plan = plan_of("a", "b needs a", title=f'{HOSTILE}"]; click n0 "javascript:x"<script>')
    assert problems(graph_lines(plan)) == []
    assert '"]; click' not in mermaid(plan)
    for graph in (mermaid(plan), dot(plan)):
        assert "<script>" not in graph
        assert [line.count('"') for line in graph.splitlines() if '"' in line] == [2, 2]
