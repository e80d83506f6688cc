"""The server: what it accepts, what it counts, how much it carries, how it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic
import anyio
import httpx2
import pytest

from agents.simulated.script import parse_script
from fleet.errors import UsageError
from tests.agents.simulated.conftest import WORKER_TOOLS, Client, Connect, calls, connected, worker_messages

CLAIM: dict[str, Any] = {"label": "a test", "workers": {"*": {"attempts": [{"do": "claim"}]}}}


async def refusal(client: Client, messages: list[dict[str, Any]], **more: Any) -> anthropic.APIStatusError:
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.ask(messages, WORKER_TOOLS, **more)
    return caught.value


async def test_every_answer_is_labelled(connect: Connect) -> None:
    body = {"model": "claude-haiku-5-5", "max_tokens": 900, "messages": worker_messages()}
    async with connect(CLAIM) as client:
        raw = await client.sdk._client.post(f"{client.url}/v1/messages", json=body)
        health = await client.sdk._client.get(f"{client.url}/healthz")
    assert raw.headers["x-simulated-model"] == "fleet"
    assert raw.headers["request-id"].startswith("req_simulated_")
    assert int(raw.headers["anthropic-ratelimit-requests-remaining"]) > 0
    assert raw.json()["id"].startswith("msg_simulated_")
    assert health.json()["simulated"] is True
    assert client.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("headers", [{"Host": "page.example"}, {"Host": "a:b:c"}, {"Origin": "http://page.example"}])
async def test_a_page_in_a_browser_gets_no_answer(connect: Connect, headers: dict[str, str]) -> None:
    async with connect(CLAIM) as client:
        assert (await client.sdk._client.get(f"{client.url}/healthz", headers=headers)).status_code == 403
        local = client.url.replace("127.0.0.1", "localhost")
        assert (await client.sdk._client.get(f"{local}/healthz")).status_code == 200


async def test_another_key_is_refused() -> None:
    script = CLAIM | {"api_key": "right"}
    async with connected(script, key="wrong") as client:
        error = await refusal(client, worker_messages())
    async with connected(script, key="right") as client:
        assert calls(await client.ask(worker_messages(), WORKER_TOOLS))
    assert (error.status_code, error.type) == (401, "authentication_error")


async def test_a_model_that_is_not_listed_is_not_found(connect: Connect) -> None:
    async with connect(CLAIM | {"models": ["claude-haiku-5-5"]}) as client:
        error = await refusal(client, worker_messages(), model="claude-bygone-1")
        assert calls(await client.ask(worker_messages(), WORKER_TOOLS))
    assert (error.status_code, error.type) == (404, "not_found_error")
    assert "claude-bygone-1" in str(error)


async def test_an_invalid_body_is_answered_in_the_format_of_the_service(connect: Connect) -> None:
    async with connect(CLAIM) as client:
        for body in (b"", b"{", b"[]", b"[" * 100_000, b'"\\ud800"'):
            response = await client.sdk._client.post(f"{client.url}/v1/messages", content=body)
            assert response.status_code == 400
            assert response.json()["error"]["type"] == "invalid_request_error"
        elsewhere = await client.sdk._client.get(f"{client.url}/v1/files")
    assert elsewhere.status_code == 404


async def test_a_prefix_is_written_to_the_cache_once_and_then_read(connect: Connect) -> None:
    tools = [*WORKER_TOOLS[:-1], WORKER_TOOLS[-1] | {"cache_control": {"type": "ephemeral"}}]
    messages = worker_messages()
    async with connect(CLAIM | {"cache_minimum_tokens": 0}) as client:
        first = (await client.ask(messages, tools)).usage
        second = (await client.ask(worker_messages(id="other"), tools)).usage
        elsewhere = (await client.ask(messages, tools, model="claude-opus-5-5")).usage
        plain = (await client.ask(messages, WORKER_TOOLS)).usage
    assert first.cache_creation_input_tokens == second.cache_read_input_tokens == elsewhere.cache_creation_input_tokens
    assert first.cache_creation_input_tokens
    assert first.cache_read_input_tokens == second.cache_creation_input_tokens == 0
    assert plain.cache_creation_input_tokens == 0
    assert plain.input_tokens > first.input_tokens


async def test_two_hundred_requests_at_once_are_answered_side_by_side(connect: Connect) -> None:
    messages: list[anthropic.types.Message] = []

    async def ask(client: Client, number: int) -> None:
        messages.append(await client.stream(worker_messages(id=f"task-{number}"), WORKER_TOOLS))

    async with connect(CLAIM | {"pace": {"think_s": 1.0}}) as client:
        with anyio.fail_after(30):  # one after another they would take 200 seconds
            async with anyio.create_task_group() as tasks:
                for number in range(200):
                    tasks.start_soon(ask, client, number)
    assert len({message.id for message in messages}) == 200


async def test_a_client_that_hangs_up_leaves_the_server_well(connect: Connect) -> None:
    async with connect(CLAIM | {"pace": {"think_s": 5}}) as client:
        with anyio.move_on_after(0.2):
            await client.stream(worker_messages(), WORKER_TOOLS)
        assert (await client.sdk._client.get(f"{client.url}/healthz")).status_code == 200


def test_a_script_with_mistakes_names_each_with_its_path() -> None:
    script = {
        "lable": "x",
        "planner": {"steps": [{"when": {"begin": True}, "revision": {"assessment": "", "retry": [{}]}}]},
        "workers": {"a": {"attempts": [{"do": "solve", "files": {}}, {"do": "http", "then": {"do": "clam"}}]}},
    }
    with pytest.raises(UsageError) as caught:
        parse_script(script)
    message = str(caught.value)
    assert "\n  lable: " in message
    assert "\n  planner.steps[0].when.begin: " in message
    assert "\n  planner.steps[0].revision.retry[0].id: is missing" in message
    assert "workers.a.attempts[0].solve.files" in message
    assert "'clam'" in message


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_alone_and_ends_cleanly_on_a_signal(tmp_path: Path, signal_: signal.Signals) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(CLAIM))
    environment = {"PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [sys.executable, "-m", "fleet", "simulate", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().split()[-1]
        with httpx2.Client(trust_env=False) as http:
            assert http.get(f"{url}/healthz").status_code == 200
        process.send_signal(signal_)
        assert process.wait(timeout=20) == 0
        assert process.stderr.read() == ""
