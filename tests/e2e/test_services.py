"""Services that lack something: a run passes where the configuration says so, and says what to do where it does not."""

from pathlib import Path

from fleet.core.base.capabilities import CAPABILITIES
from tests.e2e.conftest import Serve
from tests.e2e.stage import KEY, KEY_NAME, Stage, landed, script, subtask

WITHOUT = ",".join(CAPABILITIES)


def test_a_run_passes_without_what_the_service_lacks_and_is_refused_with_it(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model({**script(subtask("a"), subtask("b")), "lacks": list(CAPABILITIES), "terse": True})
    order = ("run", "Write", "--base-url", url, "--repo", str(repository), "--yes", "--name")
    refused = stage.fleet(*order, "whole").ended(3)
    refused.says("HTTP 400", "The request could not be processed", "`fleet doctor --live`")
    stage.with_(FLEET_MODELS_WITHOUT=WITHOUT).fleet(*order, "less").ended(0).says("LANDED")
    assert sorted(landed(repository, "less")) == ["a", "b"]


def test_a_run_passes_where_the_service_names_what_it_lacks(stage: Stage, repository: Path, model: Serve) -> None:
    named = [name for name in CAPABILITIES if name != "thinking_history"]
    url = model({**script(subtask("a")), "lacks": named})
    stage.fleet("run", "Write", "--base-url", url, "--repo", str(repository), "--yes", "--name", "r").ended(0)
    assert landed(repository, "r") == ["a"]


def test_the_doctor_tries_a_service_and_prints_the_lines_to_configure(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model({"lacks": ["effort", "cache_hour"], "terse": True, "api_key": KEY})
    rungs = stage.with_(FLEET_PLANNER_EFFORT="high")
    order = ("doctor", "--live", "--base-url", url, "--repo", str(repository))
    found = (
        rungs.fleet(*order).ended(3).says("claude-opus-5-5 high: ", "but only without effort: how hard a model tries")
    )
    found.says('in [models]: without = ["cache_hour", "effort"]')
    assert KEY not in found.output
    settled = rungs.with_(FLEET_MODELS_WITHOUT="cache_hour,effort").fleet(*order, "--json").ended(0).json
    calls = [finding for finding in settled if finding["what"] == "live"]
    (spent,) = [finding for finding in settled if finding["what"] == "spent"]
    assert len(calls) == 12
    assert 0 < sum(call["dollars"] for call in calls) <= spent["dollars"] + 1e-9 < 0.01


def test_the_doctor_makes_no_call_without_a_key(stage: Stage, repository: Path) -> None:
    found = stage.without(KEY_NAME).fleet("doctor", "--live", "--repo", str(repository), "--json").ended(3).json
    (live,) = [finding for finding in found if finding["what"] == "live"]
    assert (live["ok"], live["says"], KEY_NAME in live["fix"]) == (False, "no call was made", True)
