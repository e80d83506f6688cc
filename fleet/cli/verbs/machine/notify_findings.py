"""What the doctor finds about notifications: channels that can't work, and what was not delivered."""

from collections.abc import Iterator, Mapping

from dashboards.text.formats import counted
from dashboards.text.safe import safe
from fleet.app.notifications import channel_problems
from fleet.config.schema import Config
from fleet.core.views.machine.finding import Finding
from fleet.errors import FleetError
from fleet.runs.outbox import Outbox, has_outbox, sending
from fleet.runs.run_folder import RunFolder

NO_TABLE = "no channel: nobody is notified when a run needs a person"
NEWEST = 20  # runs that are looked at


def notify_findings(config: Config, environ: Mapping[str, str], runs: list[RunFolder]) -> Iterator[Finding]:
    problems = dict(channel_problems(config, environ))
    if not config.notify.channels:
        yield Finding("notify", ok=True, says=NO_TABLE)
    for name, channel in config.notify.channels.items():
        if (why := problems.get(name)) is not None:
            says = f"notify.channels.{name}{safe(why)}"
            yield Finding("notify", ok=False, says=says, fix="set it right, then try it: fleet notify test")
        else:
            events = ", ".join(channel.events or config.notify.events)
            yield Finding("notify", ok=True, says=f"{name}: {channel.kind}, for {events}")
    for folder in runs[-NEWEST:]:
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
