"""Sends the notifications of one run: each cause once to each channel that wants it, over any number of crashes.

Intent on disk, then the delivery, then its outcome on disk. A delivery without an outcome is repeated with its key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

import anyio

from dashboards.notify.body import dump_body, notification
from dashboards.notify.channel import Channel, Failed, Outgoing
from fleet.core.base.hours import Hours
from fleet.core.views.run.causes import Cause
from fleet.runs.outbox import Draft, Message, Outbox

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
