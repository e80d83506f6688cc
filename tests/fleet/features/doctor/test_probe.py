"""The calls of `fleet doctor --live`, at simulated services that lack something, lie about usage or refuse the key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from aiohttp import web

from agents.models.access import Access
from agents.models.client import open_client
from agents.models.exchange import Timeouts
from agents.models.prices import Price
from agents.simulated.script import parse_script
from agents.simulated.server import SimulatedService, serve
from fleet.core.base.usage import CAPABILITIES, Capability
from fleet.features.doctor.probe import ProbeOutcome, Probes, Subject, Verdict
from tests.agents.conftest import KEY, Script, events, fails, says, sse, text

pytestmark = pytest.mark.anyio
HAIKU, OPUS = "claude-haiku-5-5", "claude-opus-5-5"
USUAL = (Subject(HAIKU, None, "coder"), Subject(OPUS, "low", "the planner"))
AFTER_A_WORD = (
    *("count_tokens", "batches", "tools", "thinking back", "cache", "compaction", "keep_alive", "cache_hour"),
    "planner",
)
FOLLOWS = {"cache_hour", "keep_alive", "thinking_history"}
"""What a service can't have without another thing, which is found first."""


@dataclass(frozen=True)
class Walked:
    """What the probes found."""

    outcomes: list[ProbeOutcome]
    probes: Probes
    bill: float
    """What the service charged."""

    def those(self, verdict: Verdict) -> list[str]:
        return [outcome.about for outcome in self.outcomes if outcome.came.verdict == verdict]


async def walk_at(url: str, subjects: Sequence[Subject] = USUAL, **more: Any) -> tuple[list[ProbeOutcome], Probes]:
    access = Access(url, KEY, frozenset(more.pop("without", ())), more.pop("model_without", {}))
    async with open_client(access, Timeouts(5, 10)) as client:
        probes = Probes(client, access, subjects, more.pop("prices", {}), **more)
        return [outcome async for outcome in probes.run()], probes


async def walk(script: dict[str, Any], subjects: Sequence[Subject] = USUAL, **more: Any) -> Walked:
    parsed, ready, urls = parse_script(script), anyio.Event(), list[str]()
    service = SimulatedService(parsed)

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(parsed, on_ready=on_ready, service=service))
        await ready.wait()
        outcomes, probes = await walk_at(urls[0], subjects, **more)
        tasks.cancel_scope.cancel()
    return Walked(outcomes, probes, sum(service._bill.values()))


async def test_everything_works_at_a_service_with_everything_for_less_than_a_cent() -> None:
    walked = await walk({})
    assert walked.those("works") == [HAIKU, f"{OPUS} low", "models", "models", *AFTER_A_WORD]
    assert walked.probes.missing.settings() == ""
    assert 0 < walked.bill <= walked.probes.spending.spent + 1e-9 < 0.01
    assert sum(outcome.dollars for outcome in walked.outcomes) == pytest.approx(walked.probes.spending.spent)


@pytest.mark.parametrize("terse", [False, True], ids=["named", "not named"])
@pytest.mark.parametrize("capability", CAPABILITIES)
async def test_what_a_service_lacks_is_found_out_and_the_setting_helps(capability: Capability, terse: bool) -> None:
    script = {"lacks": [capability], "terse": terse}
    found = await walk(script)
    assert found.probes.missing.settings() == f'without = ["{capability}"]'
    assert found.those("fails")
    assert found.probes.spending.spent < 0.01
    settled = await walk(script, without=[capability])
    assert (settled.those("fails"), settled.probes.missing.settings()) == ([], "")


@pytest.mark.parametrize("terse", [False, True], ids=["named", "not named"])
async def test_a_service_that_lacks_everything_is_found_out_too(terse: bool) -> None:
    found = await walk({"lacks": list(CAPABILITIES), "terse": terse})
    names = ", ".join(f'"{name}"' for name in sorted({*CAPABILITIES} - FOLLOWS))
    assert found.probes.missing.settings() == f"without = [{names}]"
    settled = await walk({"lacks": list(CAPABILITIES), "terse": True}, without=CAPABILITIES)
    assert settled.those("fails") == []


async def test_what_one_model_lacks_is_set_for_that_model(model: Script) -> None:
    async def knows_effort_of_opus_only(request: web.Request) -> web.StreamResponse:
        asked = model.asked[-1]
        refuses = asked["model"] == HAIKU and "output_config" in asked
        refusal = fails(400, "invalid_request_error", "output_config: Extra inputs are not permitted")
        return await (refusal if refuses else says(text("ok")))(request)

    model.will(knows_effort_of_opus_only)
    subjects = (Subject(HAIKU, "low", "coder"), Subject(OPUS, "low", "the planner"))
    outcomes, probes = await walk_at(model.url, subjects, without=("models", "count_tokens"))
    assert [outcome.came.verdict for outcome in outcomes[:2]] == ["fails", "works"]
    assert 'model_without = { "claude-haiku-5-5" = ["effort"] }' in probes.missing.settings()


@pytest.mark.parametrize("most", [0.0, 0.0002, 0.0005, 0.001])
async def test_a_call_that_could_exceed_the_money_is_not_made(most: float) -> None:
    walked = await walk({}, most=most)
    assert walked.bill <= walked.probes.spending.spent + 1e-9
    assert walked.probes.spending.spent <= most
    reasons = [outcome.came.text for outcome in walked.outcomes if outcome.came.verdict == "not tried"]
    assert reasons
    assert all("are left" in reason for reason in reasons)


async def test_five_efforts_of_the_dearest_model_fit_into_a_cent() -> None:
    subjects = [Subject(OPUS, effort, "coder") for effort in ("low", "medium", "high", "xhigh", "max")]
    walked = await walk({}, subjects)
    assert walked.those("works")[:5] == sorted(subject.name for subject in subjects)
    assert walked.probes.spending.spent < 0.01


async def test_a_model_without_a_price_is_not_called() -> None:
    walked = await walk({"models": ["in-house"]}, [Subject("in-house", None, "coder")])
    (outcome,) = walked.outcomes
    assert (outcome.came.verdict, outcome.came.fix) == ("not tried", 'set [models.prices."in-house"]')
    priced = await walk(
        {"models": ["in-house"]}, [Subject("in-house", None, "coder")], prices={"in-house": Price(input=1, output=1)}
    )
    assert priced.those("fails") == []


async def test_a_model_that_does_not_exist_is_named() -> None:
    walked = await walk({"models": [OPUS]})
    (missing,) = [outcome for outcome in walked.outcomes if outcome.about == HAIKU]
    assert "404" in missing.came.text
    assert "models.worker" in missing.came.fix
    assert f"{OPUS} low" in walked.those("works")


async def test_a_refused_key_ends_it_and_is_never_shown(model: Script) -> None:
    model.will(fails(401, "authentication_error", f"invalid x-api-key {KEY}"))
    outcomes, probes = await walk_at(model.url)
    assert len(model.asked) == 1
    assert [outcome.came.verdict for outcome in outcomes] == ["fails", "not tried"]
    assert "models.api_key_env" in outcomes[0].came.fix
    assert KEY not in repr(outcomes) + repr(probes.access) + repr(probes.client)


async def test_a_service_that_claims_a_great_usage_is_believed_and_not_called_again(model: Script) -> None:
    sent = events([text("ok")])
    sent[0][1]["message"]["usage"] = {"input_tokens": 10**12, "output_tokens": 10**12}
    model.will(sse(sent))
    _, probes = await walk_at(model.url, without=("models", "count_tokens"))
    assert len(model.asked) == 1
    assert probes.spending.spent > 0.01


async def test_a_service_that_names_no_usage_is_paid_the_most(model: Script) -> None:
    sent = events([text("ok")])
    sent[0][1]["message"]["usage"] = {}
    sent[-2][1]["usage"] = {}
    model.will(sse(sent))
    _, probes = await walk_at(model.url, without=("models", "count_tokens"))
    assert 0 < probes.spending.spent <= 0.01


async def test_a_service_that_refuses_everything_is_asked_a_bounded_number_of_times(model: Script) -> None:
    model.will(fails(400, "invalid_request_error", "no"))
    outcomes, probes = await walk_at(model.url)
    assert [outcome.came.verdict for outcome in outcomes] == ["fails", "fails"]
    assert (len(model.asked) <= 20, probes.spending.spent) == (True, 0.0)
    assert probes.missing.settings() == ""


async def test_a_service_that_is_not_there_is_asked_once() -> None:
    outcomes, probes = await walk_at("http://127.0.0.1:9")
    assert [outcome.came.verdict for outcome in outcomes] == ["fails", "not tried"]
    assert "models.base_url" in outcomes[0].came.fix
    assert probes.spending.calls == 1


async def test_no_call_is_made_when_the_time_is_up() -> None:
    walked = await walk({}, limit_s=0.0)
    assert walked.those("not tried") == [HAIKU, f"{OPUS} low"]
    assert walked.probes.spending.calls == 0


@pytest.mark.parametrize("then", ["hang", "ping"])
async def test_a_service_that_never_ends_an_answer_ends_the_walk(model: Script, then: str) -> None:
    model.will(sse(events([text("ok")])[:2], then=then))
    access = Access(model.url, KEY)
    async with open_client(access, Timeouts(0.1, 0.3)) as client:
        probes = Probes(client, access, USUAL, {})
        outcomes = [outcome async for outcome in probes.run()]
    assert [outcome.came.verdict for outcome in outcomes] == ["fails", "fails"]
    assert 0 < probes.spending.spent < 0.01


async def test_limits_and_counts_that_make_no_sense_are_not_believed(model: Script) -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.json_response({"max_input_tokens": "many", "max_tokens": -1, "input_tokens": {"a": 1}})

    runner = web.AppRunner(app := web.Application(), shutdown_timeout=0.1)
    app.router.add_get("/v1/models/{model}", nonsense)
    app.router.add_post("/v1/messages/count_tokens", nonsense)
    model.will(says(text("ok")))
    app.router.add_post("/v1/messages", model.answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        outcomes, _ = await walk_at(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()
    found = {outcome.about: outcome.came.text for outcome in outcomes if outcome.about in {"models", "count_tokens"}}
    assert all("the service's answer is invalid" in text for text in found.values())
    assert len(found) == 2
