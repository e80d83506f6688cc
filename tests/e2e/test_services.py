"""Services that lack something: a run passes where the configuration says so, and says what to do where it does not."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from fleet.core.base.usage import CAPABILITIES
from tests.agents.models.clouds import ACCESS, HAIKU, REGION, SECRET, SESSION, Cloud
from tests.e2e.conftest import Serve
from tests.e2e.stage import KEY, KEY_NAME, Json, Stage, landed, script, subtask

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
    url = model({**script(subtask("a")), "lacks": named, "api_key": KEY})
    gateway = stage.with_(FLEET_MODELS_AUTH="x-api-key", FLEET_MODELS_HEADERS='{"x-gateway-key": "canary-gateway"}')
    gateway.fleet("run", "Write", "--base-url", url, "--repo", str(repository), "--yes", "--name", "r").ended(0)
    assert landed(repository, "r") == ["a"]
    warnings = [text for text in stage.status("r")["warnings"] if "model service rejected" in text]
    assert len(warnings) == len(set(warnings)) > 4
    assert any('models.without = ["cache"]' in text for text in warnings)
    kept = b"".join(file.read_bytes() for file in stage.state.rglob("*") if file.is_file())
    assert (b"canary-gateway" in kept, KEY.encode() in kept, b"models.headers" in kept) == (False, False, True)


def test_the_doctor_tries_a_service_and_prints_the_lines_to_configure(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model({"lacks": ["effort", "cache_hour"], "terse": True, "api_key": KEY})
    rungs = stage.with_(FLEET_PLANNER_EFFORT="high")
    order = ("doctor", "--live", "--base-url", url, "--repo", str(repository))
    found = rungs.fleet(*order).ended(3).says("claude-opus-5-5 high: ", "but only without effort")
    found.says('set in [models]: without = ["cache_hour", "effort"]')
    assert KEY not in found.output
    settled = rungs.with_(FLEET_MODELS_WITHOUT="cache_hour,effort").fleet(*order, "--json").ended(0).json
    calls = [finding for finding in settled if finding["what"] == "live"]
    (spent,) = [finding for finding in settled if finding["what"] == "spent"]
    assert len(calls) == 13
    assert 0 < sum(call["dollars"] for call in calls) <= spent["dollars"] + 1e-9 < 0.01


def test_the_doctor_makes_no_call_without_a_key(stage: Stage, repository: Path) -> None:
    found = stage.without(KEY_NAME).fleet("doctor", "--live", "--repo", str(repository), "--json").ended(3).json
    (live,) = [finding for finding in found if finding["what"] == "live"]
    assert (live["state"], live["says"].startswith("not called"), KEY_NAME in live["fix"]) == ("failure", True, True)


def on_amazon(stage: Stage, cloud: Cloud) -> Stage:
    """A stage whose models are on Bedrock."""
    return stage.with_(
        FLEET_MODELS_SERVICE="bedrock",
        FLEET_MODELS_BASE_URL=cloud.url,
        FLEET_MODELS_WORKER=HAIKU,
        FLEET_PLANNER_MODEL=HAIKU,
        AWS_REGION=REGION,
        AWS_ACCESS_KEY_ID=ACCESS,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN=SESSION,
    )


def test_a_run_lands_on_bedrock_and_keeps_no_credentials(
    stage: Stage, repository: Path, cloud: Callable[[Json], AbstractContextManager[Cloud]]
) -> None:
    with cloud({**script(subtask("a"), subtask("b")), "models": [HAIKU]}) as amazon:
        at = on_amazon(stage.without(KEY_NAME), amazon)
        at.fleet("run", "Write", "--repo", str(repository), "--yes", "--name", "r").ended(0).says("LANDED")
        calls = set(amazon.calls)
    assert sorted(landed(repository, "r")) == ["a", "b"]
    assert calls == {f"/model/{HAIKU}/invoke-with-response-stream"}
    kept = b"".join(file.read_bytes() for file in stage.state.rglob("*") if file.is_file())
    for secret in (SECRET, SESSION):
        assert secret.encode() not in kept


def test_the_doctor_tries_bedrock_with_prices_of_ones_own(
    stage: Stage, repository: Path, cloud: Callable[[Json], AbstractContextManager[Cloud]]
) -> None:
    with cloud({"models": [HAIKU]}) as amazon:
        at = on_amazon(stage, amazon)
        unknown = at.fleet("doctor", "--live", "--repo", str(repository)).ended(0)
        unknown.says(f"skipped: the price of {HAIKU} is unknown", f'set [models.prices."{HAIKU}"]')
        assert amazon.calls == []
        prices = {HAIKU: {"input": 0.1, "output": 0.5, "cache_write": 0.125, "cache_read": 0.01}}
        priced = at.with_(FLEET_MODELS_PRICES=json.dumps(prices))
        priced.fleet("doctor", "--live", "--repo", str(repository)).ended(0).says(
            "thinking back", "cache_hour", "spent"
        )


def test_a_cloud_without_credentials_is_a_question_of_credentials(
    stage: Stage, repository: Path, cloud: Callable[[Json], AbstractContextManager[Cloud]]
) -> None:
    with cloud({"models": [HAIKU]}) as amazon:
        at = on_amazon(stage, amazon).with_(
            AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_SESSION_TOKEN="", AWS_EC2_METADATA_DISABLED="true"
        )
        at.fleet("plan", "Write", "--repo", str(repository)).ended(3).says("no AWS credentials")
