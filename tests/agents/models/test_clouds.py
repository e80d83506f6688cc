"""Bedrock and Vertex through the SDK's own clients, at stand-ins that check paths, bodies and signatures."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from anthropic.lib.aws._auth import _get_session
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from agents.models.access import Access
from agents.models.answer import Answer, CallFault, Request
from agents.models.client import Client, open_client
from agents.models.exchange import Timeouts
from fleet.errors import UsageError
from tests.agents.conftest import ignore
from tests.agents.models.clouds import (
    ACCESS,
    HAIKU,
    PROJECT,
    REGION,
    SECRET,
    SESSION,
    TOKEN,
    Cloud,
    chunk,
    clouds,
    exception,
)

pytestmark = pytest.mark.anyio
GEMMED = "claude-haiku-5-5@20261001"
SCRIPT = {"models": [HAIKU, GEMMED]}
SAY = ({"role": "user", "content": [{"type": "text", "text": "Hi"}]},)
REPORT = {"name": "report", "description": "x", "strict": True, "input_schema": {"type": "object", "properties": {}}}
REQUEST = Request(HAIKU, 1000, "Be brief.", (REPORT,), SAY, effort="low")
OF_VERTEX = replace(REQUEST, model=GEMMED)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of this machine's: neither variables, nor files, nor the metadata service of a cloud."""
    import os  # noqa: PLC0415 - only here

    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "CLOUDSDK_", "CLOUD_ML_", "ANTHROPIC_", "GCE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    cast("Any", _get_session).cache_clear()  # with the credentials of another test


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with clouds(SCRIPT) as cloud:
        yield cloud


@asynccontextmanager
async def bedrock(cloud: Cloud, **more: Any) -> AsyncIterator[Client]:
    access = Access(cloud.url, "", **{"kind": "bedrock", "region": REGION, **more})
    async with open_client(access, Timeouts(10, 10)) as client:
        yield client


@asynccontextmanager
async def vertex(cloud: Cloud, **more: Any) -> AsyncIterator[Client]:
    access = Access(f"{cloud.url}/v1", "", **{"kind": "vertex", "region": REGION, "project": PROJECT, **more})
    async with open_client(access, Timeouts(10, 10)) as client:
        yield client


def service_account(folder: Path, cloud: Cloud) -> str:
    """A file with credentials of Google, whose tokens come from the stand-in."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    document = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": "fleet@example.org",
        "client_id": "1",
        "token_uri": f"{cloud.url}/token",
    }
    file = folder / "google.json"
    file.write_text(json.dumps(document))
    return str(file)


# ---- Bedrock --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("aws")
async def test_bedrock_answers_over_its_event_stream_to_a_signed_request(cloud: Cloud) -> None:
    async with bedrock(cloud) as client:
        answer = await client.ask(REQUEST, ignore)
    assert isinstance(answer, Answer), answer
    assert (answer.calls[0].name, answer.model, answer.stop_reason) == ("report", HAIKU, "tool_use")
    assert answer.usage.output > 0
    ((path, headers, body),) = cloud.asked
    assert path == "/model/eu.anthropic.claude-haiku-5-5-v1:0/invoke-with-response-stream"
    assert headers["x-amz-security-token"] == SESSION
    assert f"/{REGION}/bedrock/aws4_request" in headers["authorization"]
    assert {"thinking", "output_config", "tools", "system", "messages", "max_tokens"} <= body.keys()
    assert "x-api-key" not in headers


@pytest.mark.usefixtures("aws")
async def test_bedrock_keeps_a_prompt_in_the_cache_and_answers_unstreamed(cloud: Cloud) -> None:
    async with bedrock(cloud, without=frozenset({"streaming"})) as client:
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
        assert isinstance(await client.ask(replace(REQUEST, max_tokens=0), ignore), Answer)
    assert [path.rpartition("/")[2] for path in cloud.calls] == ["invoke", "invoke"]


async def test_bedrock_takes_a_bearer_token_of_its_own(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", TOKEN)
    async with bedrock(cloud) as client:
        assert isinstance(await client.ask(REQUEST, ignore), Answer)


async def test_bedrock_without_credentials_is_refused_in_plain_words(cloud: Cloud) -> None:
    async with bedrock(cloud) as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert (fault.kind, "no AWS credentials" in fault.message, cloud.asked) == ("refused", True, [])


async def test_bedrock_without_a_region_names_the_key_to_set(cloud: Cloud) -> None:
    async with bedrock(cloud, region="") as client:
        fault = await client.ask(REQUEST, ignore)
        limits = await client.reported_limits(HAIKU)
    assert isinstance(fault, CallFault)
    assert (fault.kind, "models.region" in fault.message) == ("configuration", True)
    assert isinstance(limits, CallFault)


@pytest.mark.usefixtures("aws")
async def test_an_error_of_bedrock_never_shows_what_signed_the_request(cloud: Cloud) -> None:
    """Amazon's message about a wrong signature holds the headers that it received."""
    async with bedrock(cloud, region="us-other-1") as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert (fault.kind, fault.status) == ("refused", 403)
    assert "not signed" in fault.message
    assert SESSION not in fault.message
    assert SECRET not in repr(client._access) + fault.message


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("ThrottlingException", 429, "limit"),
        ("ServiceUnavailableException", 503, "outage"),
        ("ModelTimeoutException", 408, "outage"),
        ("AccessDeniedException", 403, "refused"),
        ("ExpiredTokenException", 403, "refused"),
        ("ResourceNotFoundException", 404, "gone"),
        ("ValidationException", 400, "configuration"),
    ],
)
@pytest.mark.usefixtures("aws")
async def test_errors_of_bedrock_are_faults_of_the_right_kind(cloud: Cloud, name: str, status: int, kind: str) -> None:
    headers = {"x-amzn-errortype": f"{name}:http://internal.amazon.com/coral/"}
    cloud.instead.append(web.json_response({"message": "so"}, status=status, headers=headers))
    async with bedrock(cloud) as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert (fault.kind, f"{name}: so" in fault.message) == (kind, True)


@pytest.mark.usefixtures("aws")
async def test_a_conversation_that_is_too_long_for_bedrock_is_known_as_such(cloud: Cloud) -> None:
    headers = {"x-amzn-errortype": "ValidationException"}
    cloud.instead.append(
        web.json_response({"message": "Input is too long: prompt is too long"}, status=400, headers=headers)
    )
    async with bedrock(cloud) as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert fault.kind == "too_long"


START = b'{"type": "message_start", "message": {"id": "m", "model": "x", "usage": {"input_tokens": 5}}}'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "outage"),
        (b"<html>Welcome</html>", "outage"),
        (b'{"type": "message"}' * 100, "outage"),
        (chunk(START), "broken"),
        (chunk(START)[:-1] + b"\0", "outage"),
        (chunk(START) + chunk(b"[1]") + chunk(b"nonsense") + chunk(b"\xff\xfe"), "broken"),
        (chunk(START) + b"\x7f\xff\xff\xff" * 8, "broken"),
        (chunk(START) + exception("throttlingException", "slow down"), "limit"),
        (chunk(START) + exception("modelStreamErrorException", "no"), "outage"),
        (chunk(START) + exception("unheardOfException", "no"), "outage"),
    ],
)
@pytest.mark.usefixtures("aws")
async def test_a_stream_of_bedrock_that_is_not_right_is_a_fault(cloud: Cloud, body: bytes, kind: str) -> None:
    cloud.instead.append(web.Response(body=body, content_type="application/vnd.amazon.eventstream"))
    async with bedrock(cloud) as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert fault.kind == kind


@pytest.mark.usefixtures("aws")
async def test_a_stream_of_bedrock_that_never_ends_is_given_up(cloud: Cloud) -> None:
    access = Access(cloud.url, "", kind="bedrock", region=REGION)
    cloud.endless = True
    async with open_client(access, Timeouts(1, 20)) as client:
        fault = await client.ask(REQUEST, ignore)
    assert isinstance(fault, CallFault)
    assert fault.message == "no content for 1 s"


@pytest.mark.usefixtures("aws")
async def test_an_event_of_bedrock_may_arrive_byte_by_byte() -> None:
    from agents.models.bedrock import EventStream  # noqa: PLC0415 - as the product imports it

    stream, lines = EventStream(), list[bytes]()
    for byte in chunk(START) + chunk(b'{"type": "ping"}'):
        lines += stream.decode(bytes([byte]))
    assert [json.loads(line.removeprefix(b"data: "))["type"] for line in lines] == ["message_start", "ping"]


# ---- Vertex ---------------------------------------------------------------------------------------------------------


async def test_vertex_answers_with_a_token_of_a_service_account(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, cloud))
    async with vertex(cloud, project="") as client:
        monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", PROJECT)
        answer = await client.ask(OF_VERTEX, ignore)
        counted = await client.count(OF_VERTEX, frozenset())
    assert isinstance(answer, Answer), answer
    assert answer.calls[0].name == "report"
    assert counted == 7
    models = f"/v1/projects/{PROJECT}/locations/{REGION}/publishers/anthropic/models"
    assert cloud.calls == ["/token", f"{models}/{GEMMED}:streamRawPredict", f"{models}/count-tokens:rawPredict"]


async def test_vertex_without_credentials_is_refused_in_plain_words(cloud: Cloud) -> None:
    async with vertex(cloud) as client:
        fault = await client.ask(OF_VERTEX, ignore)
    assert isinstance(fault, CallFault)
    assert (fault.kind, "no Google credentials" in fault.message, cloud.asked) == ("refused", True, [])


async def test_errors_of_google_are_faults_of_the_right_kind(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, cloud))
    kinds = {403: "refused", 404: "gone", 429: "limit", 503: "outage"}
    async with vertex(cloud) as client:
        for status, kind in kinds.items():
            error = {"code": status, "message": f"so {TOKEN}", "status": "X"}
            cloud.instead.append(web.json_response({"error": error}, status=status))
            fault = await client.ask(OF_VERTEX, ignore)
            assert isinstance(fault, CallFault)
            assert (fault.kind, TOKEN in fault.message) == (kind, False)


# ---- both -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "not streamed"])
@pytest.mark.parametrize("kind", ["bedrock", "vertex"])
@pytest.mark.usefixtures("aws")
async def test_an_agent_that_speaks_the_messages_api_reaches_a_cloud(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, streamed: bool
) -> None:
    """What the relay does for agents built by others."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, cloud))
    opened, model = (bedrock(cloud), HAIKU) if kind == "bedrock" else (vertex(cloud), GEMMED)
    body: dict[str, Any] = {"model": model, "max_tokens": 100, "messages": list(SAY), "stream": streamed}
    async with opened as client, client.forward("/v1/messages?beta=true", json.dumps(body).encode(), {}) as answer:
        data = b"".join([part async for part in answer.chunks])
    assert answer.status == 200
    if not streamed:
        assert json.loads(data)["type"] == "message"
        return
    assert answer.headers["content-type"] == "text/event-stream"
    names = [line.removeprefix(b"event: ").decode() for line in data.splitlines() if line.startswith(b"event: ")]
    assert (names[0], names[-1], b"\n\n" in data) == ("message_start", "message_stop", True)


@pytest.mark.usefixtures("aws")
async def test_an_agent_sees_an_error_of_a_cloud_as_one_of_the_messages_api(cloud: Cloud) -> None:
    body = {"model": "no-such", "max_tokens": 100, "messages": list(SAY), "stream": True}
    async with bedrock(cloud) as client, client.forward("/v1/messages", json.dumps(body).encode(), {}) as answer:
        data = b"".join([part async for part in answer.chunks])
    assert (answer.status, json.loads(data)["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(("kind", "package"), [("bedrock", "botocore"), ("vertex", "google.auth")])
async def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, kind: Any, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=rf"pip install 'worktree-fleet\[{kind}\]'"):
        async with open_client(Access("", "", kind=kind, region=REGION), Timeouts(1, 1)):
            pass


def test_a_cloud_lacks_what_its_client_has_no_call_for() -> None:
    assert Access("", "", kind="bedrock").lacking(HAIKU) == {"models", "count_tokens", "batches"}
    assert Access("", "", kind="vertex").lacking(HAIKU) == {"models", "batches"}


@pytest.mark.parametrize("model", [".", "..", "", "../x;y"])
@pytest.mark.usefixtures("aws")
async def test_a_name_of_a_model_never_leads_to_another_path(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str
) -> None:
    """A plan may name a model."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", service_account(tmp_path, cloud))
    for opened in (bedrock(cloud), vertex(cloud)):
        async with opened as client:
            fault = await client.ask(replace(REQUEST, model=model), ignore)
        assert isinstance(fault, CallFault)
        assert fault.kind in {"configuration", "gone"}
    assert [path for path in cloud.calls if "/../" in path or path.startswith(("/model/./", "/model//"))] == []
