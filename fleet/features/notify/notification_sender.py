"""Sends the notifications of one run: each cause once to each subscribed channel, even across crashes.

The intent is stored before the delivery and the outcome after it. A delivery without an outcome is repeated with the
same key.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from string import Template
from uuid import uuid4

import anyio

from dashboards.text.safe import safe
from fleet.core.base.hours import Hours, read_hours
from fleet.core.base.output import parse_json
from fleet.errors import UsageError
from fleet.features.notify.causes import NotificationCause
from fleet.features.notify.channels import KINDS, Channel, DeliveryFailed, NotifyChannel, Outgoing
from fleet.features.notify.notify_view import CauseView, NotificationView
from fleet.features.notify.outbox import Message, MessageDraft, Outbox
from fleet.features.notify.settings import Notify
from fleet.read.base_view import dump_view

# ---- routes ----------------------------------------------------------------------------------------------------------
# The channels from the configuration and the environment.


@dataclass(frozen=True, slots=True)
class Route:
    """A channel and the events sent to it."""

    channel: Channel
    events: frozenset[str]
    template: str = ""


def parse_routes(notify: Notify, environ: Mapping[str, str]) -> dict[str, Route]:
    """Return the route of each channel. Raises `UsageError` that lists every mistake."""
    found = {name: _channel(keys, environ) for name, keys in notify.channels.items()}
    problems = [f"notify.channels.{name}{why}" for name, why in found.items() if isinstance(why, str)]
    if problems:
        raise UsageError("\n".join(problems), hint="correct them, then run `fleet notify test`")
    return {
        name: Route(channel, frozenset(keys.events or notify.events), keys.template or "")
        for name, keys in notify.channels.items()
        if not isinstance(channel := found[name], str)
    }


def channel_problems(notify: Notify, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the misconfigured channels with the reason, which never contains an address."""
    for name, keys in notify.channels.items():
        if isinstance(why := _channel(keys, environ), str):
            yield name, why


def _channel(keys: NotifyChannel, environ: Mapping[str, str]) -> Channel | str:
    channel = KINDS[keys.kind].of(keys, environ)
    problem = template_problem(keys.template) if keys.template is not None else None
    return f".template: {problem}" if problem is not None and not isinstance(channel, str) else channel


# ---- courier ---------------------------------------------------------------------------------------------------------


FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0


@dataclass(frozen=True, slots=True)
class NotificationSender:
    """Delivers the notifications of one run."""

    run: str
    routes: Mapping[str, Route]
    outbox: Outbox
    quiet: Hours | None = None
    link: str = ""
    give_up_s: float = 3600.0
    on_give_up: Callable[[str], None] = lambda _text: None
    local: Callable[[float], datetime] = datetime.fromtimestamp

    async def deliver(self, causes: Sequence[NotificationCause], now: float) -> bool:
        """Send due notifications on all channels in parallel. Return whether all were sent or given up."""
        async with anyio.create_task_group() as channels:
            for name in self.routes:
                channels.start_soon(self._serve, name, causes, now)
        return not any(self.outbox.pending(name) or self._unsent(name, causes) for name in self.routes)

    def has_due(self, causes: Sequence[NotificationCause], now: float) -> bool:
        """Whether a notification could be sent now."""
        for name in self.routes:
            message = self.outbox.pending(name)
            if message is not None and message.next_at <= now:
                return True
            if message is None and self._unsent(name, causes) and not self._is_quiet(now):
                return True
        return False

    def _is_quiet(self, now: float) -> bool:
        return self.quiet is not None and self.quiet.cover(self.local(now))

    def _unsent(self, name: str, causes: Sequence[NotificationCause]) -> list[NotificationCause]:
        sent, events = self.outbox.causes_of(name), self.routes[name].events
        return [each for each in causes if each.event in events and each.key not in sent]

    async def _serve(self, name: str, causes: Sequence[NotificationCause], now: float) -> None:
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

    def _draft(self, name: str, unsent: Sequence[NotificationCause], now: float) -> MessageDraft:
        view = notification(uuid4().hex, self.run, unsent, self.link)
        body, causes = dump_body(view, self.routes[name].template), tuple(each.key for each in unsent)
        return MessageDraft(view.key, name, causes, view.title, view.text, body, now)

    def _retry(self, name: str, message: Message, failed: DeliveryFailed, now: float) -> None:
        wait = max(failed.after_s, min(LONGEST_RETRY_S, FIRST_RETRY_S * 2 ** min(message.tries, 20)))
        if failed.for_good or now + wait - message.at > self.give_up_s:
            self.outbox.give_up(message, failed.why)
            self.on_give_up(f"channel {name} failed after {message.tries + 1} tries: {failed.why}")
        else:
            self.outbox.later(message, now + wait, failed.why)


def make_sender(
    notify: Notify, environ: Mapping[str, str], run: str, outbox: Outbox, on_give_up: Callable[[str], None]
) -> NotificationSender:
    """Create the courier of a run. Raises `UsageError`."""
    return NotificationSender(
        run,
        parse_routes(notify, environ),
        outbox,
        quiet=read_hours(notify.quiet_hours),
        link=notify.link,
        give_up_s=notify.give_up_minutes * 60,
        on_give_up=on_give_up,
        local=datetime.fromtimestamp,
    )


# ---- body ------------------------------------------------------------------------------------------------------------
# The JSON body of a notification: in fleet's format, or in the receiver's by means of a template.
#
# Mentions, links and markup are removed from texts of models and repositories, because they are untrusted and people
# may click on them.


TEXT, TITLE, MOST = 300, 160, 10
_HARMLESS = str.maketrans("<>@`*[]", "\u2039\u203a\uff20\u02cb\u2217\u2045\u2046")  # lookalikes without effect
PLACEHOLDERS = ("title", "text", "run", "event", "command", "link", "key")


def notification(key: str, run: str, causes: Sequence[NotificationCause], link: str) -> NotificationView:
    shown = tuple(_view(each) for each in causes[:MOST])
    left_out = f"and {len(causes) - MOST} more" if len(causes) > MOST else ""
    title = shown[0].title if len(causes) == 1 else f"{len(causes)} notifications"
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


def _view(cause: NotificationCause) -> CauseView:
    return CauseView(cause.event, harmless(cause.title, TITLE), harmless(cause.text, TEXT), cause.command, cause.since)


def harmless(text: str, limit: int) -> str:
    """Return untrusted text on one line, without markup that a chat, mail client or desktop would interpret."""
    return safe(text, limit=limit).translate(_HARMLESS).replace("://", ": //").replace("www.", "www .")


def dump_body(view: NotificationView, template: str = "") -> str:
    """Return the body. Template values are escaped, so that none can end its JSON string."""
    if not template:
        return json.dumps(dump_view(view), ensure_ascii=False)
    events = dict.fromkeys(each.event for each in view.causes)
    command = view.causes[0].command if view.causes else ""
    values = {"event": " ".join(events), "command": command}
    values |= {name: str(getattr(view, name)) for name in ("title", "text", "run", "link", "key")}
    return Template(template).substitute({name: json.dumps(text)[1:-1] for name, text in values.items()})


def template_problem(template: str) -> str | None:
    """Return why a template is invalid, or None."""
    view = NotificationView('k"', "r", 't"', 'a\n"b', "", ())
    try:
        parse_json(dump_body(view, template))
    except KeyError as error:
        return f"unknown placeholder ${error.args[0]} (available: ${', $'.join(PLACEHOLDERS)})"
    except ValueError as error:
        return f"the result is not valid JSON: {error} (put each placeholder in double quotes)"
    return None
