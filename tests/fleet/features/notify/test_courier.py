"""Each cause reaches each channel once, whatever the receiver answers and wherever the sender dies."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import pytest
from aiohttp import web

from fleet.core.base.hours import read_hours
from fleet.features.notify.causes import NotificationCause
from fleet.features.notify.channels import Event, Webhook
from fleet.features.notify.notification_sender import NotificationSender, Route
from fleet.features.notify.outbox import Outbox
from fleet.runs.crash_points import listening
from tests.dashboards.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio
POINTS = (
    "a notification is intended",
    "a notification is about to be sent",
    "a notification was sent and not recorded",
    "a notification was recorded as sent",
)

EVERY = frozenset(get_args(Event))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    with Outbox(tmp_path, create=True) as outbox:
        yield outbox


def cause(key: str = "question:q1", event: Any = "question", **more: Any) -> NotificationCause:
    return replace(NotificationCause(key, event, f"{key} is asked", "which port?", "fleet answer q1 TEXT", 1.0), **more)


def courier(outbox: Outbox, receiver: Receiver, **more: Any) -> NotificationSender:
    route = Route(Webhook(receiver.url, send_s=5.0), EVERY)
    return NotificationSender("r", {"oncall": route}, outbox, **more)


async def test_a_cause_is_told_once_however_long_it_holds(outbox: Outbox) -> None:
    async with receiving() as receiver:
        sender = courier(outbox, receiver, link="https://fleet.example/{run}")
        assert await sender.deliver([cause()], 10.0)
        assert await sender.deliver([cause()], 20.0)
        assert await sender.deliver([cause(), cause("question:q2")], 30.0)
    first, second = receiver.bodies
    assert (first["run"], first["title"]) == ("r", "fleet r: question:q1 is asked")
    assert (first["link"], first["causes"][0]["command"]) == ("https://fleet.example/r", "fleet answer q1 TEXT")
    assert [each["title"] for each in second["causes"]] == ["question:q2 is asked"]
    assert set(receiver.keys.values()) == {1}


async def test_causes_that_come_together_are_one_message(outbox: Outbox) -> None:
    async with receiving() as receiver:
        await courier(outbox, receiver).deliver([cause(f"question:q{number}") for number in range(30)], 10.0)
        await courier(outbox, receiver).deliver([cause(f"question:q{number}") for number in range(30)], 11.0)
    [body] = receiver.bodies
    assert body["title"] == "fleet r: 30 notifications"
    assert len(body["causes"]) == 10
    assert body["text"].endswith("and 20 more")


async def test_a_channel_is_told_what_it_wants_and_no_more(outbox: Outbox) -> None:
    async with receiving() as receiver:
        route = Route(Webhook(receiver.url), frozenset({"died"}), '{"text": "$title", "dedup": "$key"}')
        sender = NotificationSender("r", {"pager": route}, outbox)
        assert await sender.deliver([cause(text='a"b\n\\')], 10.0)
        assert receiver.bodies == []
        assert await sender.deliver([cause("died:1", "died", title='it "died"')], 11.0)
    [body] = receiver.bodies
    assert body["text"] == 'fleet r: it "died"'
    assert body["dedup"] == receiver.headers[0]["idempotency-key"]


@pytest.mark.parametrize("point", POINTS)
async def test_a_sender_that_dies_anywhere_loses_nothing_and_repeats_only_with_the_key(
    point: str, outbox: Outbox, tmp_path: Path
) -> None:
    """What may have arrived is sent again, word for word; a receiver that knows its keys acts once."""

    class Killed(BaseException):
        pass

    def kill(at: str) -> None:
        if at == point:
            raise Killed

    async with receiving() as receiver:
        with suppress(BaseExceptionGroup, Killed), listening(kill):
            await courier(outbox, receiver).deliver([cause()], 10.0)
        with Outbox(tmp_path) as again:
            assert await courier(again, receiver).deliver([cause()], 20.0)
            assert await courier(again, receiver).deliver([cause()], 30.0)
    assert len(receiver.keys) == 1, "one key: a receiver acts on it once"
    repeated = point == "a notification was sent and not recorded"
    assert len(receiver.bodies) == 1 + repeated
    assert receiver.bodies == receiver.bodies[:1] * len(receiver.bodies)
    tries = [each["fleet-try"] for each in receiver.headers]
    assert tries == {POINTS[1]: ["2"], POINTS[2]: ["1", "2"]}.get(point, ["1"])


async def test_a_receiver_that_is_down_is_tried_again_with_growing_pauses(outbox: Outbox) -> None:
    async with receiving(lambda number: web.Response(status=503 if number < 4 else 204)) as receiver:
        sender = courier(outbox, receiver)
        for now in range(100):
            await sender.deliver([cause()], float(now))
    assert len(receiver.bodies) == 4
    assert [message.state for message in outbox.messages()] == ["sent"]
    assert list(receiver.keys.values()) == [4]


async def test_it_leaves_a_receiver_alone_for_as_long_as_that_wants(outbox: Outbox) -> None:
    async with receiving(lambda _: web.Response(status=429, headers={"retry-after": "60"})) as receiver:
        sender = courier(outbox, receiver)
        for now in range(60):
            await sender.deliver([cause()], float(now))
        assert len(receiver.bodies) == 1
        await sender.deliver([cause()], 60.0)
        assert len(receiver.bodies) == 2


async def test_there_is_more_to_send_until_each_channel_has_told_all_or_waits(outbox: Outbox) -> None:
    def local(at: float) -> datetime:
        return datetime(2026, 1, 1, int(at) % 24)  # noqa: DTZ001 - local time, as on a wall

    first, both = [cause()], [cause(), cause("question:q2")]
    async with receiving(lambda number: web.Response(status=200 if number == 1 else 503)) as receiver:
        sender = courier(outbox, receiver, quiet=read_hours("12:00-13:00"), local=local)
        assert not sender.has_due([], 1.0)
        assert sender.has_due(first, 1.0)
        await sender.deliver(first, 1.0)
        assert [sender.has_due(causes, 2.0) for causes in (first, both)] == [False, True]
        assert not sender.has_due(both, 12.0), "not in the quiet hours"
        await sender.deliver(both, 2.0)
        assert not sender.has_due(both, 2.5), "it failed, and waits"
        assert sender.has_due(both, 9.0)


async def test_what_can_not_be_delivered_is_given_up_and_said(outbox: Outbox) -> None:
    said: list[str] = []
    async with receiving(lambda _: web.Response(status=500)) as receiver:
        sender = courier(outbox, receiver, give_up_s=30.0, on_give_up=said.append)
        done = [await sender.deliver([cause()], float(now)) for now in range(100)]
    assert done[-1]
    assert [message.state for message in outbox.messages()] == ["given up"]
    assert said == ["channel oncall failed after 5 tries: HTTP 500"]


async def test_a_channel_that_hangs_holds_no_other_back(outbox: Outbox) -> None:
    async with receiving(lambda _: web.Response(status=404)) as broken, receiving() as working:
        routes = {name: Route(Webhook(each.url), EVERY) for name, each in {"a": broken, "b": working}.items()}
        await NotificationSender("r", routes, outbox).deliver([cause()], 1.0)
    assert len(working.bodies) == 1
    assert {each.channel: each.state for each in outbox.messages()} == {"a": "given up", "b": "sent"}


async def test_what_arises_in_quiet_hours_is_told_afterwards_if_it_still_holds(outbox: Outbox) -> None:
    def local(at: float) -> datetime:
        return datetime(2026, 1, 1, int(at))  # noqa: DTZ001 - local time, as on a wall

    async with receiving() as receiver:
        sender = courier(outbox, receiver, quiet=read_hours("22:00-07:00"), local=local)
        assert not await sender.deliver([cause(), cause("question:q2")], 23.0)
        assert not await sender.deliver([cause(), cause("question:q2")], 6.0)
        assert receiver.bodies == []
        assert await sender.deliver([cause("question:q2")], 7.0)
    assert [each["title"] for each in receiver.bodies[0]["causes"]] == ["question:q2 is asked"]
