"""The verbs of `fleet notify`: test the channels, list and send notifications."""

import time
from collections.abc import Iterator
from typing import Annotated
from uuid import uuid4

import anyio
import typer

from dashboards.text.formats import counted, moment
from dashboards.text.safe import safe
from dashboards.text.tables import columns
from fleet.cli import common
from fleet.cli.common import AsJson, ConfigFile
from fleet.cli.verb_table import VERBS
from fleet.config.environment import current
from fleet.config.load import load_config
from fleet.errors import FleetError, UsageError, first_error
from fleet.features.notify.causes import NotificationCause
from fleet.features.notify.channels import Outgoing
from fleet.features.notify.notification_sender import dump_body, notification, parse_routes
from fleet.features.notify.notifier import send_notifications
from fleet.features.notify.notify_view import ChannelTestView, NotifiedRunsView, SentView
from fleet.features.notify.outbox import Outbox, has_outbox
from fleet.features.notify.settings import Notify
from fleet.runs.run_folder import RunFolder, all_runs

WATCH_S = 2.0


def notify_test(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Send a test message to every notification channel.

    Exits with code 1 if a channel does not accept it.

    \b
    Examples:
      fleet notify test
      fleet notify test --json | jq '.[] | select(.delivered | not)'
    """
    settings = _settings(config)
    routes = parse_routes(settings, current())
    cause = NotificationCause(
        "test", "ended", "a test", "If you can read this, notifications work.", "fleet status", time.time()
    )
    results: dict[str, str] = {}

    async def send(name: str) -> None:
        view = notification(uuid4().hex, "test", [cause], settings.link)
        body = dump_body(view, routes[name].template)
        failed = await routes[name].channel.send(Outgoing(view.key, 1, view.title, view.text, body))
        results[name] = failed.why if failed is not None else ""

    async def send_all() -> None:
        async with anyio.create_task_group() as channels:
            for name in routes:
                channels.start_soon(send, name)

    common.run_async(send_all)
    views = [
        ChannelTestView(name, settings.channels[name].kind, delivered=not why, why=why)
        for name, why in sorted(results.items())
    ]
    if as_json:
        common.show_json(views)
    else:
        rows = [(each.channel, each.kind, "delivered" if each.delivered else f"FAILED: {each.why}") for each in views]
        common.show(columns(rows))
    raise typer.Exit(0 if all(each.delivered for each in views) else 1)


def notify_list(
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="List only the last N notifications.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List notifications with their channel and state, the latest last.

    \b
    Examples:
      fleet notify list
      fleet notify list --json | jq '.[] | select(.state == "given up")'
    """
    views = sorted(
        (view for folder in all_runs(common.state_dir()) for view in _list_messages(folder)), key=lambda view: view.at
    )[-last:]
    if as_json:
        common.show_json(views)
        return
    rows = [(moment(each.at), each.run, each.channel, each.state, safe(each.title), safe(each.why)) for each in views]
    common.show(columns([("AT", "RUN", "CHANNEL", "STATE", "TITLE", "WHY"), *rows]) if rows else ["none"])


def _list_messages(folder: RunFolder) -> Iterator[SentView]:
    if has_outbox(folder.path):
        with Outbox(folder.path) as outbox:
            for each in outbox.messages():
                state, why = each.state, each.why
                yield SentView(folder.run, each.channel, each.title, state, each.tries, each.at, why, each.key)


def notify_watch(
    config: ConfigFile = None,
    once: Annotated[
        bool, typer.Option("--once", help="Send due notifications, then exit. For cron or timers.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send pending notifications of all runs.

    Each run starts a notifier. Use this command if both were killed, for example by a power failure.

    \b
    Examples:
      fleet notify watch
      fleet notify watch --once
    """
    settings, state_dir = _settings(config), common.state_dir()
    parse_routes(settings, current())
    runs = common.run_async(lambda: _watch(settings, once=once))
    if as_json:
        common.show_json(NotifiedRunsView(runs))
    else:
        typer.echo(f"{counted(len(runs), 'run')} with notifications in {safe(state_dir)}")


async def _watch(settings: Notify, *, once: bool) -> tuple[str, ...]:
    state_dir, environ = common.state_dir(), current()
    while True:
        folders = [folder for folder in all_runs(state_dir) if has_outbox(folder.path)]
        for folder in folders:
            try:
                await send_notifications(folder, settings, environ, once=True)
            except* FleetError as group:
                error = first_error(group)
                typer.echo(f"{folder.run}: {error.text if isinstance(error, FleetError) else error}", err=True)
        if once:
            return tuple(folder.run for folder in folders)
        await anyio.sleep(WATCH_S)


def _settings(config: ConfigFile) -> Notify:
    settings = load_config(environ=current(), config_file=config, repository=None).config.of(Notify)
    if not settings.channels:
        raise UsageError(
            "no notification channel is configured", hint="add [notify.channels.NAME] to your configuration"
        )
    return settings


notify = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=VERBS["notify"].summary)
notify.command(name="test")(notify_test)
notify.command(name="list")(notify_list)
notify.command(name="watch")(notify_watch)
