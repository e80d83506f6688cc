"""The kinds of notification channels: webhook, command and desktop. Channels are stateless.

Each class reads its keys from the channel's table and reports mistakes in them.
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
"""Time limit of one delivery."""
_ANSWER = 2_000  # bytes read of a response
_SHOWN = 160
_RETRIED = frozenset({408, 425, 429})
_LONGEST_RETRY_AFTER_S = 3600.0
PASSED = (
    *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ"),
    *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
)
"""The environment variables passed to a command. None of them holds a key."""


@dataclass(frozen=True, slots=True)
class DeliveryFailed:
    """A failed delivery. The reason does not contain the secret."""

    why: str
    for_good: bool = False
    """Whether a retry is pointless."""
    after_s: float = 0.0
    """How long to wait before a retry, as requested by the receiver."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A notification to send."""

    key: str
    number: int
    """The number of the try, starting at 1."""
    title: str
    text: str
    body: str


class Channel(Protocol):
    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Channel | str:
        """Create a channel from its table. Return a string if a key is wrong; it never contains an address."""
        ...

    async def send(self, outgoing: Outgoing) -> DeliveryFailed | None:
        """Deliver it. Return None once the receiver has accepted it."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs JSON without following redirects or using a proxy, because the address and the body are confidential."""

    url: str = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Webhook | str:
        if keys.url_env is None:
            return ".url_env is missing: set it to the name of the environment variable with the URL"
        url = environ.get(keys.url_env, "").strip()
        if not url:
            return f".url_env: {keys.url_env} is not set"
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable()
        except ValueError:
            is_address = False
        return cls(url) if is_address else f".url_env: {keys.url_env} does not contain an http or https URL"

    async def send(self, outgoing: Outgoing) -> DeliveryFailed | None:
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
                if 200 <= answer.status < 300:  # noqa: PLR2004 - success in HTTP
                    return None
                return self._refuse(answer, (await answer.content.read(_ANSWER)).decode("utf-8", "replace"))
        except TimeoutError:
            return DeliveryFailed(f"no response within {self.send_s:g} s")
        except aiohttp.InvalidURL:
            return DeliveryFailed("invalid URL", for_good=True)
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            return DeliveryFailed(f"can't connect: {self._without_secret(str(error)) or type(error).__name__}")

    def _refuse(self, answer: aiohttp.ClientResponse, said: str) -> DeliveryFailed:
        status = answer.status
        if 300 <= status < 400:  # noqa: PLR2004 - redirects
            return DeliveryFailed(f"HTTP {status}: fleet does not follow redirects (use the final URL)", for_good=True)
        shown = self._without_secret(said)
        why = f"HTTP {status}{f': {shown}' if shown else ''}"
        retry = answer.headers.get("retry-after", "")
        after_s = min(float(retry), _LONGEST_RETRY_AFTER_S) if retry.isdecimal() and len(retry) < 9 else 0.0  # noqa: PLR2004
        return DeliveryFailed(why, for_good=status < 500 and status not in _RETRIED, after_s=after_s)  # noqa: PLR2004

    def _without_secret(self, text: str) -> str:
        """Redact the address from the text of a receiver or library."""
        parts = urlsplit(self.url)
        secrets = (self.url, f"{parts.path}?{parts.query}", parts.path, parts.query, parts.password or "")
        for secret in (*secrets, *parts.path.split("/")):
            if len(secret) > 5:  # noqa: PLR2004 - shorter ones are words
                text = text.replace(secret, "[hidden]")
        return safe(text, limit=_SHOWN)


@dataclass(frozen=True, slots=True)
class CommandChannel:
    """Runs the operator's program, as the operator, with the body on stdin. Exit code 0 means delivered."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> CommandChannel | str:
        if not (keys.command or "").strip():
            return ".command is missing"
        try:
            words = tuple(shlex.split(keys.command or ""))
        except ValueError:
            words = ()
        return cls(words, environ) if words else ".command: invalid quoting"

    async def send(self, outgoing: Outgoing) -> DeliveryFailed | None:
        more = {"FLEET_NOTIFICATION_KEY": outgoing.key, "FLEET_NOTIFICATION_TRY": str(outgoing.number)}
        return await _run(self.words, outgoing.body, self._environment() | more, self.send_s)

    def _environment(self) -> dict[str, str]:
        return {name: self.environ[name] for name in PASSED if name in self.environ}


@dataclass(frozen=True, slots=True)
class Desktop:
    """Shows a notification on this machine's desktop with `notify-send`."""

    environ: Mapping[str, str] = field(repr=False)
    send_s: float = SEND_S

    @classmethod
    def of(cls, keys: NotifyChannel, environ: Mapping[str, str]) -> Desktop | str:
        if shutil.which("notify-send") is None:
            return ": notify-send is not installed (run `apt-get install libnotify-bin`)"
        return ".template: not supported by desktop channels" if keys.template is not None else cls(environ)

    async def send(self, outgoing: Outgoing) -> DeliveryFailed | None:
        words = ("notify-send", "--app-name=fleet", "--", outgoing.title, outgoing.text)
        return await CommandChannel(words, self.environ, self.send_s).send(outgoing)


async def _run(
    words: tuple[str, ...], given: str, environment: Mapping[str, str], limit_s: float
) -> DeliveryFailed | None:
    try:
        process = await anyio.open_process(
            words, stdin=-1, stdout=-3, stderr=-3, env=dict(environment), start_new_session=True
        )
    except OSError as error:
        return DeliveryFailed(f"{safe(words[0], limit=_SHOWN)} could not be started: {error.strerror}")
    code: int | None = None
    try:
        with anyio.move_on_after(limit_s):
            if process.stdin is not None:
                with suppress(anyio.BrokenResourceError, OSError):  # the program may ignore its input
                    await process.stdin.send(given.encode())
                    await process.stdin.aclose()
            code = await process.wait()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    if code is None:
        return DeliveryFailed(f"{safe(words[0], limit=_SHOWN)} did not finish within {limit_s:g} s")
    return None if code == 0 else DeliveryFailed(f"{safe(words[0], limit=_SHOWN)} failed with exit code {code}")


KINDS: dict[str, type[Channel]] = {
    "webhook": Webhook,
    "command": CommandChannel,
    "desktop": Desktop,
}


class NotifyChannel(Section):
    """The configuration table of a channel. Each kind uses some of the keys."""

    kind: Literal[
        "webhook",
        "command",
        "desktop",
    ]
    url_env: Variable | None = None
    template: settings.Command | None = None
    command: Line | None = None
    events: Annotated[tuple[Event, ...], Field(strict=False)] | None = None
