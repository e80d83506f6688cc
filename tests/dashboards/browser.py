"""A real browser without a window, controlled over its own protocol: what a page looks like, fetches, and contains."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from anyio import fail_after, sleep

from tests.tools import environment, tool

ENDED_S = 2.0  # a zombie that nobody reaps is in its group for ever
PATIENCE_S = 300.0
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--hide-scrollbars")


class NavigatedError(Exception):
    """The page was left while it was asked."""


@dataclass
class Page:
    """One tab."""

    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    calls: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.calls += 1
        number = self.calls
        message = {"id": number, "method": method, "params": params}
        await self.socket.send_json({**message, "sessionId": self.session} if self.session else message)
        with fail_after(PATIENCE_S):
            while True:
                reply = await self.socket.receive_json()
                if reply.get("id") == number:
                    if "navigated" in reply.get("error", {}).get("message", ""):
                        raise NavigatedError(method)
                    assert "error" not in reply, reply
                    answer: dict[str, Any] = reply["result"]
                    return answer
                self.events.append(reply)

    async def open(self, url: str) -> None:
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true in the page, or in the one that follows it."""
        with fail_after(PATIENCE_S):
            while True:
                with suppress(NavigatedError):
                    if await self.evaluate(expression):
                        return
                await sleep(0.02)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; its content security policy does not apply here."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def looks(self, *, width: int, dark: bool = False, paper: bool = False) -> None:
        """Set the width of the page and the preferences of its reader."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme])

    def requested(self) -> list[str]:
        """The URLs of all requests."""
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """What the browser logged: errors, and what a policy refused."""
        logged = (event["params"] for event in self.events if event["method"] == "Log.entryAdded")
        thrown = (json.dumps(e["params"]) for e in self.events if e["method"] == "Runtime.exceptionThrown")
        return [*(params["entry"]["text"] for params in logged), *thrown]


@asynccontextmanager
async def browser(home: Path) -> AsyncIterator[Page]:
    """A browser with one empty tab."""
    with _started(home) as url:
        async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as socket:
            page = Page(socket)
            target = (await page.call("Target.createTarget", url="about:blank"))["targetId"]
            attached = await page.call("Target.attachToTarget", targetId=target, flatten=True)
            page.session = attached["sessionId"]
            yield page


@contextmanager
def _started(home: Path) -> Iterator[str]:
    """A browser's process; where it listens."""
    log = home / "browser.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [tool("chromium-headless-shell"), *OPTIONS, f"--user-data-dir={home / 'profile'}", "about:blank"],
            env=environment(home),
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
    try:
        yield _listening(log, process)
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it with its helpers, which write into its profile as long as they are."""
    until = time.monotonic() + ENDED_S
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.killpg(process.pid, signal.SIGKILL)
            process.poll()
            time.sleep(0.01)


def _listening(log: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + PATIENCE_S
    while True:
        text = log.read_text(encoding="utf-8", errors="replace")
        if found := re.search(r"DevTools listening on (ws://\S+)", text):
            return found[1]
        assert process.poll() is None, text
        assert time.monotonic() < until, text
        time.sleep(0.05)
