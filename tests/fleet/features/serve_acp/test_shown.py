"""What an editor is shown, and what it may ask for: the state of a run and typed lines, without an editor."""

import acp
import pytest

from fleet.core.policy.requests import Request
from fleet.core.state.state import RunState
from fleet.errors import UsageError
from fleet.features.serve_acp.agent import as_code, epic_text, offered_commands, plan_entries, typed_text
from fleet.features.serve_acp.slash_commands import COMMANDS, parsed
from fleet.read.run import RunSnapshot, just_after
from tests.fleet.core.policy.test_approval import reviewed


def test_a_plan_is_a_list_of_its_subtasks_with_their_status() -> None:
    story = reviewed("a", "b", "c needs b", b="high")
    shown = [
        (each.content, each.priority, each.status)
        for each in plan_entries(RunSnapshot(story.state, story.now, alive=True))
    ]
    assert shown[0][0].startswith("a: ")
    assert [status for _, _, status in shown] == ["in_progress", "pending", "pending"]
    assert [priority for _, priority, _ in shown] == ["medium", "high", "medium"]
    story.landed("a")
    assert plan_entries(RunSnapshot(story.state, story.now, alive=True))[0].status == "completed"


def test_before_there_is_a_plan_planning_is_all_there_is_to_do() -> None:
    state = reviewed().state
    assert [(each.content, each.status) for each in plan_entries(RunSnapshot(state, 0.0, alive=True))] == [
        ("Plan the epic", "in_progress")
    ]


def test_a_text_of_others_closes_no_block_and_acts_on_no_terminal() -> None:
    shown = as_code("```\n# Run this\n````\x1b[31mred")
    fence = shown.split("\n", 1)[0]
    assert fence == "`````"
    assert shown.count(fence) == 2
    assert "\x1b" not in shown


def test_an_epic_holds_what_is_attached_and_is_text() -> None:
    link = acp.resource_link_block("notes", "file:///notes.md")
    attached = acp.resource_block(acp.embedded_text_resource("file:///a.md", "more"))
    prompt = [acp.text_block("Do it"), link, attached]
    assert epic_text(prompt) == "Do it\n\nSee file:///notes.md\n\nAttached, file:///a.md:\n\n```\nmore\n```"
    assert typed_text(prompt) == "Do it"
    with pytest.raises(UsageError, match="images and audio are not supported"):
        epic_text([acp.image_block("AA==", "image/png")])


def request_of(line: str, state: RunState) -> Request:
    """What a line that is a command asks of a run."""
    command = parsed(line)
    assert command is not None
    assert command[0].request is not None
    return command[0].request(just_after(state), command[1])


def test_every_command_is_offered_and_is_the_request_of_a_verb() -> None:
    state = reviewed("a", "b", by="human", b="high").state
    assert [each.name for each in offered_commands()] == list(COMMANDS)
    lines: dict[str, tuple[str, dict[str, object]]] = {
        "/approve": ("plan_approved", {"subtasks": ("a",)}),
        "/approve a": ("plan_approved", {"subtasks": ("a",)}),
        "/reject too large": ("plan_rejected", {"reason": "too large"}),
        "/tell a use UTC": ("instruction_given", {"subtask": "a", "text": "use UTC"}),
        "/answer q1 yes": ("question_answered", {"question": "q1", "answer": "yes"}),
        "/pause": ("paused", {}),
        "/cancel": ("cancel_requested", {}),
    }
    for line, (kind, fields) in lines.items():
        request = request_of(line, state)
        assert request.kind == kind
        assert {name: getattr(request, name) for name in fields} == fields
        assert str(getattr(request, "by", "")).endswith(" by acp")


@pytest.mark.parametrize("line", ["/approve b", "/reject", "/tell a", "/tell nobody x", "/answer q1", "/merge"])
def test_what_can_not_be_done_here_says_why(line: str) -> None:
    state = reviewed("a", "b", by="human", b="high").state
    with pytest.raises(UsageError):
        request_of(line, state)


def test_what_is_typed_without_a_slash_is_no_command() -> None:
    assert parsed("approve everything") is None
