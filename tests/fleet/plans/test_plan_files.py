"""Plan files, looked at without a run: shown, checked, compared and drawn."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from dashboards.plandrawing import svg
from dashboards.plangraph import graph_lines, mermaid
from fleet.cli.verbs import app
from fleet.epic import dump_plan
from fleet.errors import UsageError
from tests.core.story import plan_of
from tests.dashboards.hostile import HOSTILE, problems

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(dump_plan(plan_of("a", "b needs a", "c needs a", "d needs b c"), toml=True))
    return path


def says(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["plans", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_plan_is_shown_with_its_size_and_what_nobody_estimated_is_unknown(file: Path) -> None:
    shown = says("show", file)
    assert "check: check a" in shown
    assert "Risk: 4 low" in shown
    assert "Cost: unknown" in shown


def test_a_plan_that_does_not_hold_together_is_told_why(file: Path) -> None:
    assert "holds together" in says("check", file)
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


def test_a_graph_is_drawn_as_text_mermaid_and_svg(file: Path, tmp_path: Path) -> None:
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
    says("graph", file, "-o", tmp_path / "g.svg")
    drawn = ET.fromstring((tmp_path / "g.svg").read_text())  # noqa: S314 - we wrote it
    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 4


def test_no_line_of_a_picture_runs_behind_a_box() -> None:
    """Also of what skips waves; what is needed by way of another is drawn once."""
    plan = plan_of("a", "b needs a", "c needs b a", "d", "e needs c d a", "f", "g needs e f b")
    drawn = ET.fromstring(svg(plan))  # noqa: S314 - we wrote it
    boxes = [
        tuple(float(box.attrib[name]) for name in ("x", "y", "width", "height")) for box in drawn.iter(f"{SVG}rect")
    ]
    ways = [path.attrib["d"] for path in drawn.findall(f"{SVG}path")]
    assert len(ways) == len(["a b", "b c", "c e", "d e", "e g", "f g"])
    level = [re.findall(r"([\d.]+) ([\d.]+)H([\d.]+)", way) for way in ways]
    assert sum(map(len, level)) == 5, "d passes the second and third wave, f the second to fourth"
    for x, y, end in (map(float, stretch) for way in level for stretch in way):
        assert not [box for box in boxes if box[0] < end and x < box[0] + box[2] and box[1] <= y <= box[1] + box[3]]


def test_a_large_plan_is_drawn_too() -> None:
    lines = [
        f"s{n}" + (f" needs {' '.join(f's{m}' for m in range(max(0, n - 30), n))}" if n else "") for n in range(300)
    ]
    assert svg(plan_of(*lines)).count("<path d") == 300


def test_what_is_drawn_is_harmless_however_hostile_the_plan() -> None:
    plan = plan_of("a", "b needs a", title=f'{HOSTILE}"]; click n0 "javascript:x"<script>')
    assert problems(graph_lines(plan)) == []
    assert "<script>" not in svg(plan)
    ET.fromstring(svg(plan))  # noqa: S314 - we wrote it
    assert '"]; click' not in mermaid(plan)
