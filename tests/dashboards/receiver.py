"""A real receiver of webhooks on loopback, which does what a test wants and remembers what it was sent."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Answer = Callable[[int], web.Response]


@dataclass
class Receiver:
    """Answers the n-th request with `answer(n)`."""

    answer: Answer = field(default=lambda _: web.Response())
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def keys(self) -> Counter[str]:
        return Counter(each["idempotency-key"] for each in self.headers)

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        return self.answer(len(self.bodies))


@asynccontextmanager
async def receiving(
    answer: Answer | None = None, path: str = "/services/T0/secret-hook-123"
) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer) if answer is not None else Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    receiver.url = f"http://{host}:{port}{path}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
