"""The channels of `[notify]` as the configuration and the environment describe them."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from urllib.parse import urlsplit

from fleet.core.base.hours import read_hours
from fleet.errors import UsageError
from fleet.features.notify.courier import (
    Channel,
    Command,
    Courier,
    Desktop,
    Route,
    Webhook,
    split_words,
    template_problem,
)
from fleet.features.notify.outbox import Outbox
from fleet.features.notify.settings import Notify, NotifyChannel


def routes_of(notify: Notify, environ: Mapping[str, str]) -> dict[str, Route]:
    """Each channel, and the events that it gets. Raises `UsageError` with everything that is wrong with them."""
    problems = [f"notify.channels.{name}{why}" for name, why in channel_problems(notify, environ)]
    if problems:
        raise UsageError("\n".join(problems), hint="`fleet notify test` tries them")
    return {
        name: Route(_channel(channel, environ), frozenset(channel.events or notify.events), channel.template or "")
        for name, channel in notify.channels.items()
    }


def channel_problems(notify: Notify, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The channels that can't work, and why. No text holds an address."""
    for name, channel in notify.channels.items():
        if (why := _problem(channel, environ)) is not None:
            yield name, why


def courier_of(
    notify: Notify, environ: Mapping[str, str], run: str, outbox: Outbox, on_give_up: Callable[[str], None]
) -> Courier:
    """Who sends the notifications of a run. Raises `UsageError`."""
    return Courier(
        run,
        routes_of(notify, environ),
        outbox,
        quiet=read_hours(notify.quiet_hours),
        link=notify.link,
        give_up_s=notify.give_up_minutes * 60,
        on_give_up=on_give_up,
        local=datetime.fromtimestamp,
    )


def _problem(channel: NotifyChannel, environ: Mapping[str, str]) -> str | None:
    match channel.kind:
        case "webhook" if channel.url_env is None:
            return ".url_env is missing: it names the variable of the environment that holds the address"
        case "webhook" if (why := _address_problem(environ.get(channel.url_env or "", "").strip())) is not None:
            return f".url_env: {channel.url_env} {why}"
        case "command" if not (channel.command or "").strip():
            return ".command is missing"
        case "command" if not _is_split(channel.command or ""):
            return ".command: it can't be split into words"
        case "desktop" if shutil.which("notify-send") is None:
            return ": notify-send is not installed: apt-get install libnotify-bin"
        case "desktop" if channel.template is not None:
            return ".template: the desktop takes none"
    problem = template_problem(channel.template) if channel.template is not None else None
    return f".template: {problem}" if problem is not None else None


def _address_problem(url: str) -> str | None:
    if not url:
        return "is not set"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable()
    except ValueError:
        is_address = False
    return None if is_address else "holds no http(s) address"


def _is_split(command: str) -> bool:
    try:
        return bool(split_words(command))
    except ValueError:
        return False


def _channel(channel: NotifyChannel, environ: Mapping[str, str]) -> Channel:
    match channel.kind:
        case "webhook":
            return Webhook(environ[channel.url_env or ""].strip())
        case "command":
            return Command(split_words(channel.command or ""), environ)
        case "desktop":
            return Desktop(environ)
