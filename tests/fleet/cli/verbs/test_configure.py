"""The configuration on the command line: one key, or all of it, as text and as JSON."""

import json
from pathlib import Path

import pytest

from fleet.cli.entry import app
from fleet.errors import UsageError


def fleet(*arguments: str) -> None:
    app([*arguments], prog_name="fleet", standalone_mode=False)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FLEET_CHECKS_GATE", "make test")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("key", "printed"),
    [
        ("run.workers", "16\n"),
        ("checks.gate", "make test\n"),
        ("box.network", "false\n"),
        ("run.budget_dollars", "null\n"),
        ("box.tool_chains", "[]\n"),
    ],
)
def test_a_key_is_printed_so_that_a_script_can_use_it(
    key: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet("config", "get", key)
    assert capsys.readouterr().out == printed


def test_a_table_is_printed_as_toml_and_json_says_where_a_value_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    fleet("config", "get", "checks")
    assert 'gate = "make test"' in capsys.readouterr().out.splitlines()
    fleet("config", "get", "checks.gate", "--json")
    view = json.loads(capsys.readouterr().out)
    assert view == {"schema_version": 1, "key": "checks.gate", "value": "make test", "origin": view["origin"]}
    assert "FLEET_CHECKS_GATE" in view["origin"]


def test_a_key_that_is_none_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as refused:
        fleet("config", "get", "run.worker")
    assert str(refused.value) == ("unknown key: 'run.worker'; did you mean 'run.workers'?")
