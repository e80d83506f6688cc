"""The notifier of a run ends when there is nothing left to send."""

from pathlib import Path

import anyio

from fleet.config.load import default_config
from fleet.features.notify.channels import NotifyChannel
from fleet.features.notify.notifier import START_S, send_notifications
from fleet.features.notify.outbox import Outbox
from fleet.features.notify.settings import Notify
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of


def notifying(command: str) -> Notify:
    notify = default_config().of(Notify)
    channel = NotifyChannel(kind="command", command=command)
    return notify.model_copy(update={"channels": {"log": channel}})


async def test_a_notifier_that_began_after_the_end_of_its_run_sends_and_leaves(tmp_path: Path) -> None:
    """It never saw the engine at work, and does not wait for one to start."""
    story = Story(plan=plan_of("one"))
    story.landed("one")
    assert story.state.ended
    folder = RunFolder(tmp_path / "runs" / story.state.run)
    with Journal.create(folder.journal) as journal:
        journal.append(story.facts)
    Outbox(folder.path, create=True).close()
    with anyio.fail_after(START_S / 2):
        await send_notifications(folder, notifying("true"), {"PATH": "/usr/bin:/bin"})
    with Outbox(folder.path) as outbox:
        assert [message.state for message in outbox.messages()] == ["sent"]
