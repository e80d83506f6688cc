"""Channels: what reaches the receiver, what never leaves, and what a hostile text or receiver can't do."""

import json
import os
from pathlib import Path
from typing import Any, get_args

import pytest
from aiohttp import web

from fleet.features.notify.causes import NotificationCause
from fleet.features.notify.channels import KINDS, CommandChannel, Desktop, NotifyChannel, Outgoing, Webhook
from fleet.features.notify.notification_sender import dump_body, harmless, notification, template_problem
from tests.dashboards.receiver import receiving

pytestmark = pytest.mark.anyio
SECRET = "secret-hook-123"
HELLO = Outgoing("k1", 1, "a title", "a text", '{"text": "hello"}')
EVIL = "<!channel> @everyone [click](https://evil.example/x?y) `rm` www.evil.example \x1b[31m\u202e *now*\nline"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_webhook_says_who_it_is_and_which_message_it_brings() -> None:
    async with receiving() as receiver:
        assert await Webhook(receiver.url).send(HELLO) is None
    [headers] = receiver.headers
    assert receiver.bodies == [{"text": "hello"}]
    assert (headers["content-type"], headers["idempotency-key"], headers["fleet-try"]) == (
        "application/json",
        "k1",
        "1",
    )
    assert "cookie" not in headers
    assert "authorization" not in headers


async def test_a_redirect_is_not_followed() -> None:
    async with receiving() as elsewhere:
        moved = lambda _: web.Response(status=307, headers={"location": elsewhere.url})  # noqa: E731
        async with receiving(moved) as receiver:
            failed = await Webhook(receiver.url).send(HELLO)
        assert elsewhere.bodies == []
    assert failed is not None
    assert failed.for_good
    assert "does not follow redirects" in failed.why


@pytest.mark.parametrize(
    ("status", "for_good"),
    [(400, True), (403, True), (404, True), (410, True), (408, False), (429, False), (503, False)],
)
async def test_what_another_try_can_not_change_is_not_tried_again(status: int, for_good: bool) -> None:
    async with receiving(lambda _: web.Response(status=status)) as receiver:
        failed = await Webhook(receiver.url).send(HELLO)
    assert failed is not None
    assert failed.for_good == for_good


async def test_the_address_is_in_no_message_whatever_a_receiver_repeats() -> None:
    async with receiving(
        lambda _: web.Response(status=400, text=f"no such hook /services/T0/{SECRET}\x1b[2J")
    ) as receiver:
        failed = await Webhook(receiver.url).send(HELLO)
        assert failed is not None
        assert failed.why.startswith("HTTP 400: no such hook ")
        assert SECRET not in failed.why + repr(Webhook(receiver.url))
        assert "\x1b" not in failed.why
    gone = await Webhook(receiver.url).send(HELLO)
    assert gone is not None
    assert not gone.for_good
    assert SECRET not in gone.why
    odd = await Webhook(f"http://[{SECRET}/").send(HELLO)
    assert odd is not None
    assert SECRET not in odd.why


async def test_an_endless_answer_and_a_silent_receiver_cost_a_bounded_time() -> None:
    async with receiving(lambda _: web.Response(status=500, body=b"x" * 5_000_000)) as receiver:
        failed = await Webhook(receiver.url).send(HELLO)
    assert failed is not None
    assert len(failed.why) < 200
    silent = await Webhook("http://192.0.2.1:9/", send_s=0.05).send(HELLO)
    assert silent is not None
    assert not silent.for_good


async def test_a_command_gets_the_body_and_no_key(tmp_path: Path) -> None:
    script = tmp_path / "page"
    script.write_text("#!/bin/sh\ncat > body; env > environment; exit ${1:-0}\n")
    script.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-1", "FLEET_HOOK": SECRET}
    words = ("sh", "-c", f"cd {tmp_path} && exec ./page $0")
    assert await CommandChannel((*words, "0"), environ).send(HELLO) is None
    assert json.loads((tmp_path / "body").read_text()) == {"text": "hello"}
    given = (tmp_path / "environment").read_text()
    assert "FLEET_NOTIFICATION_KEY=k1" in given
    assert not {"sk-1", SECRET} & set(given.replace("=", "\n").split("\n"))
    failed = await CommandChannel((*words, "3"), environ).send(HELLO)
    assert failed is not None
    assert failed.why == "sh failed with exit code 3"


async def test_a_command_that_hangs_is_ended_with_its_children_and_one_that_is_missing_is_said(tmp_path: Path) -> None:
    script, child = f"sleep 600 & echo $! > {tmp_path}/child; wait", tmp_path / "child"
    for seconds in (0.3, 3, 30):  # a machine with much to do may not have started it by then
        failed = await CommandChannel(("sh", "-c", script), {"PATH": os.environ["PATH"]}, send_s=seconds).send(HELLO)
        assert failed is not None
        assert "did not finish" in failed.why
        if child.exists() and child.read_text().strip():
            break
    missing = await CommandChannel((str(tmp_path / "none"),), {}).send(HELLO)
    assert missing is not None
    assert "could not be started" in missing.why
    assert state_of(child.read_text().strip()) in {"", "Z"}


def state_of(pid: str) -> str:
    """The state of a process; empty once it is gone."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


async def test_the_desktop_gets_words_not_options(tmp_path: Path) -> None:
    (tmp_path / "notify-send").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\n')
    (tmp_path / "notify-send").chmod(0o755)
    outgoing = Outgoing("k1", 1, "--icon=/etc/passwd", "text", "{}")
    found = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    failed = await CommandChannel(("env", "notify-send", "--app-name=fleet", "--", outgoing.title, "text"), found).send(
        outgoing
    )
    assert failed is None
    assert (tmp_path / "words").read_text().splitlines() == ["--app-name=fleet", "--", "--icon=/etc/passwd", "text"]
    assert await Desktop({}).send(outgoing) is not None, "there is no notify-send without a PATH"


def test_texts_of_others_keep_no_mention_link_or_control_character() -> None:
    shown = harmless(EVIL, 500)
    for part in ("<!", "@everyone", "](", "://", "www.evil", "`", "*", "\x1b", "\u202e", "\n"):
        assert part not in shown
    assert "evil.example" in shown, "nothing is hidden from the reader"
    assert len(harmless("x" * 5000, 300)) == 300


@pytest.mark.parametrize(
    "template", ["", '{"text": "$title\\n$text", "run": "$run", "k": ["$key", "$command", "$event"]}']
)
def test_no_text_leaves_its_place_in_the_body(template: str) -> None:
    evil = NotificationCause("q", "question", f'x", "admin": true, "y": "{EVIL}', EVIL + '"}', "fleet answer", 1.0)
    body: dict[str, Any] = json.loads(dump_body(notification("k", "r", [evil], ""), template))
    assert "admin" not in body
    assert template == "" or set(body) == {"text", "run", "k"}


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ('{"text": "$title"}', None),
        ('{"text": $title}', "not valid JSON"),
        ('{"text": "$titel"}', "unknown placeholder $titel"),
        ('{"text": "$"}', "not valid JSON"),
        ("hello", "not valid JSON"),
    ],
)
def test_a_template_is_tried_before_it_is_needed(template: str, problem: str | None) -> None:
    found = template_problem(template)
    assert found is None if problem is None else problem in (found or "")


def test_each_kind_that_a_table_may_name_has_a_channel() -> None:
    assert get_args(NotifyChannel.model_fields["kind"].annotation) == tuple(KINDS)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"kind": "webhook"}, ".url_env is missing: set it to the name"),
        ({"kind": "webhook", "url_env": "NO_HOOK"}, ".url_env: NO_HOOK is not set"),
        ({"kind": "webhook", "url_env": "BAD_HOOK"}, ".url_env: BAD_HOOK does not contain an http or https URL"),
        ({"kind": "command", "command": " "}, ".command is missing"),
        ({"kind": "command", "command": "sh 'x"}, ".command: invalid quoting"),
    ],
)
def test_a_channel_says_which_key_is_wrong_and_no_address(keys: dict[str, Any], problem: str) -> None:
    channel = KINDS[keys["kind"]].of(NotifyChannel(**keys), {"BAD_HOOK": SECRET})
    assert isinstance(channel, str)
    assert channel.startswith(problem)
    assert SECRET not in channel
