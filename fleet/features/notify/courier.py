"""Sends the notifications of one run: each cause once to each channel that wants it, over any number of crashes.

Intent on disk, then the delivery, then its outcome on disk. A delivery without an outcome is repeated with its key.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import anyio

from dashboards.text.safe import safe

if TYPE_CHECKING:
    import aiohttp


import json
from collections.abc import Callable, Sequence
from datetime import datetime
from string import Template
from uuid import uuid4

from fleet.core.base.hours import Hours
from fleet.core.base.output import parse_json
from fleet.features.notify.causes import Cause
from fleet.features.notify.notify_view import CauseView, NotificationView
from fleet.features.notify.outbox import Draft, Message, Outbox
from fleet.read.base_view import dump_view

# ---- channel ---------------------------------------------------------------------------------------------------------
# Where notifications go: a webhook, a command, the desktop. A channel sends, and remembers nothing.


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
    async def send(self, outgoing: Outgoing) -> Failed | None:
        """Deliver it; None once the receiver has taken it."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """POSTs JSON. Follows no redirect and no proxy: the address is a secret, and the body is the operator's."""

    url: str = field(repr=False)
    send_s: float = SEND_S

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


def split_words(command: str) -> tuple[str, ...]:
    return tuple(shlex.split(command))


# ---- courier ---------------------------------------------------------------------------------------------------------


FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0


@dataclass(frozen=True, slots=True)
class Route:
    """A channel, and the events that it gets."""

    channel: Channel
    events: frozenset[str]
    template: str = ""


@dataclass(frozen=True, slots=True)
class Courier:
    """Delivers for one run."""

    run: str
    routes: Mapping[str, Route]
    outbox: Outbox
    quiet: Hours | None = None
    link: str = ""
    give_up_s: float = 3600.0
    on_give_up: Callable[[str], None] = lambda _text: None
    local: Callable[[float], datetime] = datetime.fromtimestamp

    async def deliver(self, causes: Sequence[Cause], now: float) -> bool:
        """Send what is due, on all channels at once. Returns whether everything is sent or given up."""
        async with anyio.create_task_group() as channels:
            for name in self.routes:
                channels.start_soon(self._serve, name, causes, now)
        return not any(self.outbox.pending(name) or self._unsent(name, causes) for name in self.routes)

    def has_due(self, causes: Sequence[Cause], now: float) -> bool:
        """Whether there is anything that could be sent at once."""
        for name in self.routes:
            message = self.outbox.pending(name)
            if message is not None and message.next_at <= now:
                return True
            if message is None and self._unsent(name, causes) and not self._is_quiet(now):
                return True
        return False

    def _is_quiet(self, now: float) -> bool:
        return self.quiet is not None and self.quiet.cover(self.local(now))

    def _unsent(self, name: str, causes: Sequence[Cause]) -> list[Cause]:
        sent, events = self.outbox.causes_of(name), self.routes[name].events
        return [each for each in causes if each.event in events and each.key not in sent]

    async def _serve(self, name: str, causes: Sequence[Cause], now: float) -> None:
        message = self.outbox.pending(name)
        if message is None:
            unsent = self._unsent(name, causes)
            if not unsent or self._is_quiet(now):
                return
            self.outbox.add(self._draft(name, unsent, now))
            message = self.outbox.pending(name)
        if message is None or message.next_at > now:
            return
        self.outbox.begin(message)
        outgoing = Outgoing(message.key, message.tries + 1, message.title, message.text, message.body)
        failed = await self.routes[name].channel.send(outgoing)
        if failed is None:
            self.outbox.sent(message)
            return
        self._retry(name, message, failed, now)

    def _draft(self, name: str, unsent: Sequence[Cause], now: float) -> Draft:
        view = notification(uuid4().hex, self.run, unsent, self.link)
        body, causes = dump_body(view, self.routes[name].template), tuple(each.key for each in unsent)
        return Draft(view.key, name, causes, view.title, view.text, body, now)

    def _retry(self, name: str, message: Message, failed: Failed, now: float) -> None:
        wait = max(failed.after_s, min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(message.tries, 20)))
        if failed.for_good or now + wait - message.at > self.give_up_s:
            self.outbox.give_up(message, failed.why)
            self.on_give_up(f"{name} could not be notified after {message.tries + 1} tries: {failed.why}")
        else:
            self.outbox.later(message, now + wait, failed.why)


# ---- body ------------------------------------------------------------------------------------------------------------
# What a notification says, as JSON: in a form of ours, or in that of a receiver by a template.
#
# Texts of models and repositories are data of others in a place where people click: they keep no mention, link or
# markup.


TEXT, TITLE, MOST = 300, 160, 10
_HARMLESS = str.maketrans("<>@`*[]", "\u2039\u203a\uff20\u02cb\u2217\u2045\u2046")  # look alike, and do nothing
PLACEHOLDERS = ("title", "text", "run", "event", "command", "link", "key")


def notification(key: str, run: str, causes: Sequence[Cause], link: str) -> NotificationView:
    shown = tuple(_view(each) for each in causes[:MOST])
    left_out = f"and {len(causes) - MOST} more" if len(causes) > MOST else ""
    title = shown[0].title if len(causes) == 1 else f"{len(causes)} things to know"
    lines = [f"{each.title}: {each.text}" if len(causes) > 1 else each.text for each in shown]
    lines += [f"→ {each.command}" for each in shown[:1] if each.command]
    return NotificationView(
        key=key,
        run=run,
        title=f"fleet {safe(run, limit=TITLE)}: {title}",
        text="\n".join((*lines, *filter(None, (left_out,)))),
        link=link.replace("{run}", run),
        causes=shown,
    )


def _view(cause: Cause) -> CauseView:
    return CauseView(cause.event, harmless(cause.title, TITLE), harmless(cause.text, TEXT), cause.command, cause.since)


def harmless(text: str, limit: int) -> str:
    """A text of others on one line, without anything that a chat, a mail or a desktop would act on."""
    return safe(text, limit=limit).translate(_HARMLESS).replace("://", ": //").replace("www.", "www .")


def dump_body(view: NotificationView, template: str = "") -> str:
    """The body. In a template each value stands where it is written in a JSON text, and can't leave it."""
    if not template:
        return json.dumps(dump_view(view), ensure_ascii=False)
    events = dict.fromkeys(each.event for each in view.causes)
    command = view.causes[0].command if view.causes else ""
    values = {"event": " ".join(events), "command": command}
    values |= {name: str(getattr(view, name)) for name in ("title", "text", "run", "link", "key")}
    return Template(template).substitute({name: json.dumps(text)[1:-1] for name, text in values.items()})


def template_problem(template: str) -> str | None:
    """Why a template can't be used."""
    view = NotificationView('k"', "r", 't"', 'a\n"b', "", ())
    try:
        parse_json(dump_body(view, template))
    except KeyError as error:
        return f"there is no ${error.args[0]}; there are ${', $'.join(PLACEHOLDERS)}"
    except ValueError as error:
        return f"it makes no JSON: {error}; put each placeholder between double quotes"
    return None
