"""The kinds of channels: a webhook, a command, the desktop. A channel sends, and remembers nothing.

Each class reads its keys from the table of a channel, and says what is wrong with them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, Protocol
from urllib.parse import urlsplit

import anyio
from pydantic import Field

from dashboards.text.safe import safe
from fleet.ports import settings
from fleet.ports.settings import Line, Section, Variable

if TYPE_CHECKING:
    import aiohttp

Event = Literal["question", "review", "incident", "budget", "failed", "ended", "died"]

SEND_S = 15.0
"""How long one delivery may take."""
_ANSWER = 2_000  # bytes of an answer that are read
_SHOWN = 160
_RETRIED = frozenset({408, 425, 429})
_LONGEST_RETRY_AFTER_S = 3600.0
PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
)
"""What a command gets of the environment: no key of anything."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a delivery failed, in words without the secret."""

    why: str
    for_good: bool = False
    """Whether another try can't change that."""
    after_s: float = 0.0
    """How long the receiver wants to be left alone."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is to be sent."""

    key: str
    number: int
    """Which try it is, from 1."""
    title: str
    text: str
    body: str


class Channel(Protocol):
    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Channel | str:
        """The channel that a table describes, or what is wrong with it: a key and why. No text holds an address."""
        ...

    async def send(self, outgoing: Outgoing) -> Failed | None:
        """Deliver it; None once the receiver has taken it."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs JSON. Follows no redirect and no proxy: the address is a secret, and the body is the operator's."""

    url: str = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Webhook | str:
        if keys.url_env is None:
            return ".url_env is missing: it names the variable of the environment that holds the address"
        url = environ.get(keys.url_env, "").strip()
        if not url:
            return f".url_env: {keys.url_env} is not set"
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable()
        except ValueError:
            is_address = False
        return cls(url) if is_address else f".url_env: {keys.url_env} holds no http(s) address"

    async def send(self, outgoing: Outgoing) -> Failed | None:
        import aiohttp  # noqa: PLC0415 - slow to import

        headers = {
            "content-type": "application/json",
            "user-agent": "fleet",
            "idempotency-key": outgoing.key,
            "fleet-try": str(outgoing.number),
        }
        timeout = aiohttp.ClientTimeout(total=self.send_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False, auto_decompress=False) as http,
                http.post(self.url, data=outgoing.body.encode(), headers=headers, allow_redirects=False) as answer,
            ):
                if 200 <= answer.status < 300:  # noqa: PLR2004 - what HTTP calls a success
                    return None
                return self._refused(answer, (await answer.content.read(_ANSWER)).decode("utf-8", "replace"))
        except TimeoutError:
            return Failed(f"no answer within {self.send_s:g} s")
        except aiohttp.InvalidURL:
            return Failed("the address is not one", for_good=True)
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            return Failed(f"not reached: {self._without_secret(str(error)) or type(error).__name__}")

    def _refused(self, answer: aiohttp.ClientResponse, said: str) -> Failed:
        status = answer.status
        if 300 <= status < 400:  # noqa: PLR2004 - redirects
            return Failed(f"HTTP {status}: redirects are not followed, set the final address", for_good=True)
        shown = self._without_secret(said)
        why = f"HTTP {status}{f': {shown}' if shown else ''}"
        retry = answer.headers.get("retry-after", "")
        after_s = min(float(retry), _LONGEST_RETRY_AFTER_S) if retry.isdecimal() and len(retry) < 9 else 0.0  # noqa: PLR2004
        return Failed(why, for_good=status < 500 and status not in _RETRIED, after_s=after_s)  # noqa: PLR2004

    def _without_secret(self, text: str) -> str:
        """What a receiver or a library says, which may repeat the address."""
        parts = urlsplit(self.url)
        secrets = (self.url, f"{parts.path}?{parts.query}", parts.path, parts.query, parts.password or "")
        for secret in (*secrets, *parts.path.split("/")):
            if len(secret) > 5:  # noqa: PLR2004 - shorter ones are words
                text = text.replace(secret, "[hidden]")
        return safe(text, limit=_SHOWN)


@dataclass(frozen=True, slots=True)
class Command:
    """Runs a program of the operator's, as the operator, with the body on its input. Exit code 0: delivered."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Command | str:
        if not (keys.command or "").strip():
            return ".command is missing"
        try:
            words = tuple(shlex.split(keys.command or ""))
        except ValueError:
            words = ()
        return cls(words, environ) if words else ".command: it can't be split into words"

    async def send(self, outgoing: Outgoing) -> Failed | None:
        more = {"FLEET_NOTIFICATION_KEY": outgoing.key, "FLEET_NOTIFICATION_TRY": str(outgoing.number)}
        return await _run(self.words, outgoing.body, self._environment() | more, self.send_s)

    def _environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in PASSED if name in self.environ}


@dataclass(frozen=True, slots=True)
class Desktop:
    """A notification on this machine's desktop, by `notify-send`."""

    environ: Mapping[str, str] = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Desktop | str:
        if shutil.which("notify-send") is None:
            return ": notify-send is not installed: apt-get install libnotify-bin"
        return ".template: the desktop takes none" if keys.template is not None else cls(environ)

    async def send(self, outgoing: Outgoing) -> Failed | None:
        words = ("notify-send", "--app-name=fleet", "--", outgoing.title, outgoing.text)
        return await Command(words, self.environ, self.send_s).send(outgoing)


async def _run(words: tuple[str, ...], given: str, environment: Mapping[str, str], limit_s: float) -> Failed | None:
    try:
        process = await anyio.open_process(
            words, stdin=-1, stdout=-3, stderr=-3, env=dict(environment), start_new_session=True
        )
    except OSError as error:
        return Failed(f"{safe(words[0], limit=_SHOWN)} can't be started: {error.strerror}")
    code: int | None = None
    try:
        with anyio.move_on_after(limit_s):
            if process.stdin is not None:
                with suppress(anyio.BrokenResourceError, OSError):  # it need not read
                    await process.stdin.send(given.encode())
                    await process.stdin.aclose()
            code = await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if code is None:
        return Failed(f"{safe(words[0], limit=_SHOWN)} had not ended after {limit_s:g} s")
    return None if code == 0 else Failed(f"{safe(words[0], limit=_SHOWN)} ended with exit code {code}")


KINDS: dict[str, type[Channel]] = {
    "webhook": Webhook,
    "command": Command,
    "desktop": Desktop,
}


class NotifyChannel(Section):
    """A table of the configuration: where notifications go. A kind reads the keys that it has use for."""

    kind: Literal[
        "webhook",
        "command",
        "desktop",
    ]
    url_env: Variable | None = None
    template: settings.Command | None = None
    command: Line | None = None
    events: Annotated[tuple[Event, ...], Field(strict=False)] | None = None
