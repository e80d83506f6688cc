"""What a simulated model was asked: programs whose requests the real service would refuse have failed."""

import json
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from chaos.play import struck
from examples.demo.fleet_cli import DemoError, Fleet
from scripts.simulated import Asked, asked, counted

SCRIPT = {"workers": {"*": {"attempts": [{"do": "claim"}]}}}
REQUEST = {
    "model": "claude-haiku-5-5",
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Say something."}],
}


def ask(url: str, body: object) -> int:
    """The status of one request."""
    headers = {"content-type": "application/json", "x-api-key": "none"}
    request = urllib.request.Request(f"{url}/v1/messages", json.dumps(body).encode(), headers)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - on loopback
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def break_a_rule(fleet: Fleet, script: Path) -> None:
    with fleet.simulated_model(script) as url:
        assert ask(url, REQUEST) == 200
        assert struck(url) == {}
        assert ask(url, {**REQUEST, "temprature": 1}) == 400
        assert list(asked(url).broken.values()) == [1]
        with pytest.raises(AssertionError, match="1 broke a rule of the model service"):
            struck(url)


def test_a_demo_and_a_chaos_run_fail_if_a_request_broke_a_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT), encoding="utf-8")
    fleet = Fleet(state=tmp_path / "state", config=tmp_path / "config.toml")
    with fleet.simulated_model(script) as url:
        assert ask(url, REQUEST) == 200
    assert counted(capsys.readouterr().out.splitlines()) == (1, 0)
    with pytest.raises(DemoError, match="2 requests to the simulated model, 1 broke a rule"):
        break_a_rule(fleet, script)


def test_lines_of_several_programs_are_added_up() -> None:
    lines = [Asked(1_234, {}).line, "something else", f"... {Asked(2, {'messages: wrong': 2}).line}"]
    assert counted(lines) == (1_236, 2)
    assert Asked(5, {}).complaint == ""
