"""The notifier of a run: a separate process, which can still send notifications if the engine has died.

    python -m fleet.features.notify.notifier RUN-FOLDER     the section `[notify]`, as JSON, on standard input

It exits once no engine runs the run and everything was sent. The engine restarts it if it dies. If both die at the same
time, `fleet resume` or `fleet notify watch` sends the remaining notifications.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import typer

from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.cli.common import send_requests
from fleet.config.environment import current
from fleet.core.facts.facts import WarningNoted
from fleet.errors import FleetError, first_error
from fleet.features.notify.causes import NotificationCause, causes
from fleet.features.notify.notification_sender import channel_problems, make_sender, parse_routes
from fleet.features.notify.outbox import Outbox, has_outbox, sending
from fleet.features.notify.settings import Notify
from fleet.read.base_view import Finding
from fleet.read.follow import RunFollower
from fleet.read.run import RunSnapshot
from fleet.runs.journal_feed import JournalFeed
from fleet.runs.run_folder import RunFolder, all_runs

if TYPE_CHECKING:
    from fleet.app.fleet import Fleet

LOG = "notifier.log"
POLL_S = 0.5
IDLE_S = 5.0  # interval for changes that depend only on time
START_S = 60.0  # time limit for the start of an engine
WATCH_S = 10.0  # how often an engine checks its notifier


async def send_notifications(
    folder: RunFolder, notify: Notify, environ: Mapping[str, str], *, once: bool = False
) -> None:
    """Send the notifications of a run until it has ended and all were sent. With `once`, stop when none is due."""
    with sending(folder.path) as is_ours:
        if not is_ours:
            return
        with Outbox(folder.path) as outbox, JournalFeed(folder) as feed:
            courier = make_sender(notify, environ, folder.run, outbox, lambda text: note_given_up(folder, text))
            watched, again, due, began = _Watched(feed, time.time), 0.0, tuple[NotificationCause, ...](), time.time()
            while True:
                now = time.time()
                if watched.has_news() or now >= again:
                    due = watched.causes(now, notify.incident_minutes * 60)
                    again = now + IDLE_S
                is_all_sent = await courier.deliver(due, now)
                if once and not courier.has_due(due, now):
                    return
                has_begun = watched.was_alive or watched.is_over or now > began + START_S  # else it may still start
                if is_all_sent and not watched.alive and has_begun:
                    return
                await anyio.sleep(0 if once else POLL_S)


class _Watched(RunFollower):
    """The run of a notifier."""

    was_alive = False

    def has_news(self) -> bool:
        """Whether the run changed. An engine that stops or starts during the check is not reported as dead."""
        before = self.alive
        self.look()
        alive = self.alive
        has_news = self.catch_up()
        self.look()
        self.alive |= alive
        self.was_alive |= self.alive
        return has_news or self.alive != before

    def causes(self, now: float, incident_s: float) -> tuple[NotificationCause, ...]:
        run = self.state
        return causes(RunSnapshot(run, now, self.alive), incident_s=incident_s) if run is not None else ()


def note_given_up(folder: RunFolder, text: str) -> None:
    """Record a warning in the journal and in the notifier's log."""
    sys.stderr.write(f"{text}\n")
    send_requests(folder, WarningNoted(at=time.time(), text=f"notification not delivered: {text}"))


# ---- findings --------------------------------------------------------------------------------------------------------
# Findings of `fleet doctor` about notifications.


NEWEST = 20  # runs to check


async def notify_findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Check each channel, and look for undelivered notifications of the latest runs."""
    notify = fleet.config.of(Notify)
    problems = dict(channel_problems(notify, fleet.environ))
    for name, channel in notify.channels.items():
        if (why := problems.get(name)) is not None:
            says = f"notify.channels.{name}{safe(why)}"
            yield Finding("notify", ok=False, says=says, fix="correct it, then run `fleet notify test`")
        else:
            events = ", ".join(channel.events or notify.events)
            yield Finding("notify", ok=True, says=f"{name}: {channel.kind}, for {events}")
    for folder in all_runs(fleet.state_dir)[-NEWEST:]:
        if (finding := _undelivered(folder)) is not None:
            yield finding


def _undelivered(folder: RunFolder) -> Finding | None:
    """Report notifications of a run that were given up or that no process will send."""
    if not has_outbox(folder.path):
        return None
    with sending(folder.path) as nobody_sends:
        pass
    try:
        with Outbox(folder.path) as outbox:
            messages = outbox.messages()
    except FleetError as error:
        return Finding("notify", ok=False, says=safe(error), fix="")
    lost = [each for each in messages if each.state == "given up" or (each.is_pending and nobody_sends)]
    if not lost:
        return None
    says = f"{folder.run}: {counted(len(lost), 'notification')} not delivered: {safe(lost[-1].why or 'not sent yet')}"
    return Finding("notify", ok=False, says=says, fix="run `fleet notify list`, then `fleet notify watch --once`")


# ---- the process ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def keeping_notifier(fleet: Fleet, folder: RunFolder) -> AsyncIterator[None]:
    """Keep a notifier running during the block."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep, fleet, folder)
        yield
        tasks.cancel_scope.cancel()


async def _keep(fleet: Fleet, folder: RunFolder) -> None:
    notify = fleet.config.of(Notify)
    try:
        parse_routes(notify, fleet.environ)
    except FleetError as error:
        typer.echo(f"{folder.run}: notifications are off: {error.text}", err=True)
        return
    process: subprocess.Popen[bytes] | None = None
    while True:
        if process is None or process.poll() is not None:
            with sending(folder.path) as is_free:
                pass
            if is_free:
                process = _start(notify, folder)
        await anyio.sleep(WATCH_S)


def _start(notify: Notify, folder: RunFolder) -> subprocess.Popen[bytes] | None:
    Outbox(folder.path, create=True).close()
    command = [sys.executable, "-P", "-m", "fleet.features.notify.notifier", str(folder.path)]
    try:
        with (folder.path / LOG).open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        if process.stdin is not None:
            with process.stdin as stdin:
                stdin.write(notify.model_dump_json().encode())
    except OSError as error:
        typer.echo(f"{folder.run}: notifications are off: {error.strerror}", err=True)
        return None
    return process


def main() -> int:
    folder = RunFolder(Path(sys.argv[1]))
    notify = Notify.model_validate_json(sys.stdin.buffer.read())
    try:
        anyio.run(send_notifications, folder, notify, current())
    except* FleetError as group:
        sys.stderr.write(f"{first_error(group)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
