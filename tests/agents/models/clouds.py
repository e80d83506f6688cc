"""Amazon Bedrock and Google Vertex on loopback: their paths, credentials and streams around a simulated model."""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from agents.simulated.script import parse_script
from agents.simulated.server import serve

ACCESS, SECRET, SESSION, REGION = "AKIDEXAMPLE", "canary-aws-secret", "canary-aws-session", "eu-test-1"
TOKEN, PROJECT = "canary-google-token", "a-project"
HAIKU = "eu.anthropic.claude-haiku-5-5-v1:0"
VERSION = "anthropic_version"


def framed(payload: bytes, **headers: str) -> bytes:
    """A message of an event stream: lengths, headers, payload, and a checksum of each part."""
    packed = b""
    for name, value in headers.items():
        key, data = f":{name.replace('_', '-')}".encode(), value.encode()
        packed += bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(data)) + data
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack(">I", zlib.crc32(message))


def chunk(event: bytes) -> bytes:
    """An event of the Messages API as Bedrock sends it."""
    payload = json.dumps({"bytes": b64encode(event).decode(), "p": "abcdefghi"}).encode()
    return framed(payload, event_type="chunk", content_type="application/json", message_type="event")


def exception(name: str, message: str) -> bytes:
    payload = json.dumps({"message": message}).encode()
    return framed(payload, exception_type=name, content_type="application/json", message_type="exception")


@dataclass
class Cloud:
    """Both clouds, and what they were asked."""

    upstream: str
    url: str = ""
    asked: list[tuple[str, Mapping[str, str], dict[str, Any]]] = field(default_factory=list)
    endless: bool = False
    """Whether Bedrock sends pings for ever."""
    instead: list[web.Response] = field(default_factory=list)
    """Answered before anything else."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=50_000_000)
        app.router.add_post("/model/{model}/{how}", self.bedrock)
        app.router.add_post(
            r"/v1/projects/{project}/locations/{region}/publishers/anthropic/models/{call}", self.vertex
        )
        app.router.add_post("/token", self.token)
        return app

    async def bedrock(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        document = json.loads(body)
        self.asked.append((request.path_qs, _lower(request.headers), document))
        if self.instead:
            return self.instead.pop(0)
        if self.endless:
            return await _pings(request)
        if not is_signed(request, body) and request.headers["Authorization"] != f"Bearer {TOKEN}":
            headers = {"x-amzn-errortype": "InvalidSignatureException:http://internal.amazon.com/"}
            return web.json_response({"message": f"not signed: {dict(request.headers)}"}, status=403, headers=headers)
        assert {"model", "stream"} & document.keys() == set()
        streamed = request.match_info["how"] == "invoke-with-response-stream"
        assert document.pop(VERSION)
        document |= {"model": request.match_info["model"], "stream": streamed}
        status, answer = await self.ask(document)
        if status != 200:
            error = json.loads(answer)["error"]["message"]
            headers = {"x-amzn-errortype": "ValidationException" if status == 400 else "ResourceNotFoundException"}
            return web.json_response({"message": error}, status=status, headers=headers)
        if not streamed:
            return web.Response(body=answer, content_type="application/json")
        frames = b"".join(chunk(line[6:]) for line in answer.splitlines() if line.startswith(b"data: "))
        return web.Response(body=frames, content_type="application/vnd.amazon.eventstream")

    async def vertex(self, request: web.Request) -> web.StreamResponse:
        document = await request.json()
        self.asked.append((request.path_qs, _lower(request.headers), dict(document)))
        if self.instead:
            return self.instead.pop(0)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            error = {"code": 401, "message": "invalid authentication credentials", "status": "UNAUTHENTICATED"}
            return web.json_response({"error": error}, status=401)
        model, _, how = request.match_info["call"].rpartition(":")
        assert document.pop(VERSION)
        if model == "count-tokens":
            return web.json_response({"input_tokens": 7})
        assert "model" not in document
        assert bool(document.get("stream")) == (how == "streamRawPredict")
        status, answer = await self.ask(document | {"model": model})
        kind = "text/event-stream" if how == "streamRawPredict" and status == 200 else "application/json"
        return web.Response(body=answer, status=status, content_type=kind)

    async def token(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, _lower(request.headers), {}))
        return web.json_response({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"})

    async def ask(self, document: dict[str, Any]) -> tuple[int, bytes]:
        async with aiohttp.ClientSession() as http, http.post(f"{self.upstream}/v1/messages", json=document) as answer:
            return answer.status, await answer.read()

    @property
    def calls(self) -> list[str]:
        return [path for path, _, _ in self.asked]


async def _pings(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/vnd.amazon.eventstream"})
    await response.prepare(request)
    while True:
        await response.write(chunk(b'{"type": "ping"}') * 10)
        await anyio.sleep(0.01)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def is_signed(request: web.Request, body: bytes) -> bool:
    """Whether the signature is that of the credentials, over what was received."""
    authorization = request.headers.get("Authorization", "")
    if not authorization.startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/"):
        return False
    names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = AWSRequest("POST", str(request.url), headers={name: request.headers[name] for name in names}, data=body)
    signed.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = SigV4Auth(Credentials(ACCESS, SECRET, SESSION), "bedrock", REGION)
    whole = signer.string_to_sign(signed, signer.canonical_request(signed))
    return bool(authorization.endswith(f"Signature={signer.signature(whole, signed)}"))


@asynccontextmanager
async def clouds(script: dict[str, Any]) -> AsyncIterator[Cloud]:
    """Both clouds around a simulated model, while the block lasts."""
    urls, ready = list[str](), anyio.Event()

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(parse_script(script), on_ready=on_ready))
        await ready.wait()
        cloud = Cloud(urls[0])
        runner = web.AppRunner(cloud.app(), shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            cloud.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield cloud
        finally:
            await runner.cleanup()
        tasks.cancel_scope.cancel()
