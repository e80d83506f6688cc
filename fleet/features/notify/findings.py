"""What the doctor finds about notifications."""

from collections.abc import AsyncIterator

from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.fleet import Fleet
from fleet.errors import FleetError
from fleet.features.notify.courier import channel_problems
from fleet.features.notify.outbox import Outbox, has_outbox, sending
from fleet.features.notify.settings import Notify
from fleet.read.base_view import Finding
from fleet.runs.run_folder import RunFolder, all_runs

NEWEST = 20  # runs that are looked at


async def notify_findings(fleet: Fleet) -> AsyncIterator[Finding]:
    """Each channel, and notifications of the latest runs that were not delivered."""
    notify = fleet.config.of(Notify)
    problems = dict(channel_problems(notify, fleet.environ))
    for name, channel in notify.channels.items():
        if (why := problems.get(name)) is not None:
            says = f"notify.channels.{name}{safe(why)}"
            yield Finding("notify", ok=False, says=says, fix="set it right, then try it: fleet notify test")
        else:
            events = ", ".join(channel.events or notify.events)
            yield Finding("notify", ok=True, says=f"{name}: {channel.kind}, for {events}")
    for folder in all_runs(fleet.state_dir)[-NEWEST:]:
        if (finding := _undelivered(folder)) is not None:
            yield finding


def _undelivered(folder: RunFolder) -> Finding | None:
    """Notifications of a run that were given up, or that no process will send."""
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
    return Finding("notify", ok=False, says=says, fix="fleet notify list; fleet notify watch --once")
