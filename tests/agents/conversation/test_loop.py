"""The guards of the tool loop: what ends a conversation that does not end itself, and what is never done."""

from pathlib import Path
from typing import Any

import pytest

from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import WorkerBrief
from tests.agents.conftest import (
    Body,
    FakeMeter,
    FolderWorkspace,
    Reply,
    Script,
    agents_for,
    says,
    sse,
    text,
    use,
    worker_settings,
)

pytestmark = pytest.mark.anyio
DONE = says(use("report", {"status": "done", "summary": "greeted"}, id="toolu_9"))
ASLEEP = says(text("Hm."), stop="end_turn")


class Talk:
    """A worker's conversation with a scripted model."""

    def __init__(self, model: Script, folder: Path, brief: WorkerBrief, workspace: FolderWorkspace) -> None:
        self.model, self.folder, self.brief, self.workspace = model, folder, brief, workspace

    async def __call__(self, *replies: Reply, **settings: Any) -> Report | Failure:
        self.model.will(*replies)
        async with agents_for(self.model, self.folder, **settings) as agents:
            return await agents.workers["coder"].run(self.brief, self.workspace, FakeMeter())

    async def fails(self, *replies: Reply, **settings: Any) -> Failure:
        outcome = await self(*replies, **settings)
        assert isinstance(outcome, Failure)
        return outcome


@pytest.fixture
def talk(model: Script, tmp_path: Path, brief: WorkerBrief, workspace: FolderWorkspace) -> Talk:
    return Talk(model, tmp_path, brief, workspace)


def bash(command: str, id: str = "toolu_1") -> Body:  # noqa: A002 - the wire's name
    return use("bash", {"command": command}, id=id)


async def test_a_turn_without_a_tool_is_nudged_once(talk: Talk) -> None:
    assert isinstance(await talk(ASLEEP, DONE), Report)
    assert "report" in talk.model.asked[1]["messages"][-1]["content"][0]["text"]


async def test_a_second_turn_without_a_tool_is_a_failure(talk: Talk) -> None:
    failure = await talk.fails(ASLEEP, ASLEEP, DONE)
    assert failure.kind == "protocol"
    assert len(talk.model.asked) == 2


async def test_an_empty_answer_is_not_sent_back(talk: Talk) -> None:
    assert isinstance(await talk(says(stop="end_turn"), says(text(""), stop="end_turn"), DONE), Failure)
    assert [message["role"] for message in talk.model.asked[1]["messages"]] == ["user"]


async def test_malformed_input_is_explained_and_repaired(talk: Talk) -> None:
    broken = says(use("bash", raw='{"command": "touch a'))
    outcome = await talk(broken, says(use("bash", {"comand": "touch b"})), DONE)
    assert isinstance(outcome, Report)
    assert talk.workspace.commands == []
    assert "not valid JSON" in talk.model.results(1)[0]["content"]
    assert "comand: is not a field here" in talk.model.results(2)[0]["content"]


async def test_malformed_input_again_and_again_is_a_failure(talk: Talk) -> None:
    wrong = [says(use("bash", {"comand": str(number)})) for number in range(3)]
    failure = await talk.fails(*wrong, DONE)
    assert failure.kind == "protocol"
    assert len(talk.model.asked) == 3


async def test_good_input_in_between_wipes_the_slate(talk: Talk) -> None:
    wrong = says(use("bash", {"comand": "x"}))
    outcome = await talk(wrong, wrong, says(bash("true")), wrong, wrong, DONE)
    assert isinstance(outcome, Report)


async def test_an_unknown_tool_is_answered_with_those_there_are(talk: Talk) -> None:
    assert isinstance(await talk(says(use("bush", {"command": "true"})), DONE), Report)
    result = talk.model.results()[0]
    assert result["is_error"] is True
    assert "did you mean 'bash'" in result["content"]
    assert "report" in result["content"]


async def test_an_invalid_report_goes_back_to_the_model(talk: Talk) -> None:
    outcome = await talk(says(use("report", {"status": "perfect"})), DONE)
    assert isinstance(outcome, Report)
    assert "summary: is missing" in talk.model.results()[0]["content"]


async def test_the_same_action_five_times_is_a_loop(talk: Talk) -> None:
    failure = await talk.fails(says(bash("ls")))
    assert failure.kind == "protocol"
    assert "5 times" in failure.summary
    assert '"command": "ls"' in failure.evidence
    assert len(talk.workspace.commands) == 4


@pytest.mark.parametrize("cycle", [2, 4])
async def test_the_same_few_actions_in_turn_are_a_loop(talk: Talk, cycle: int) -> None:
    failure = await talk.fails(*(says(bash(f"echo {number % cycle}")) for number in range(30)))
    assert failure.kind == "protocol"
    assert f"the same cycle of {cycle} actions, 5 times" in failure.summary
    assert len(talk.workspace.commands) == 5 * cycle - 1


async def test_a_command_between_changes_is_not_a_loop(talk: Talk) -> None:
    turns = [says(bash("make test" if number % 2 else f"echo {number}")) for number in range(16)]
    assert isinstance(await talk(*turns, DONE), Report)


async def test_turns_run_out(talk: Talk) -> None:
    failure = await talk.fails(
        *(says(bash(f"echo {number}")) for number in range(9)), workers={"coder": worker_settings(turns=5)}
    )
    assert failure.kind == "budget"
    assert len(talk.model.asked) == 5


async def test_calls_of_one_turn_run_in_order(talk: Talk) -> None:
    (talk.workspace.folder / "a.txt").write_text("one\n")
    view = {"command": "view", "path": "a.txt"}
    replace = {"command": "str_replace", "path": "a.txt", "old_str": "one", "new_str": "two"}
    calls = [
        use("str_replace_based_edit_tool", given, id=f"t{number}")
        for number, given in enumerate([view, view, replace, view])
    ]
    assert isinstance(await talk(says(*calls), DONE), Report)
    results = talk.model.results()
    assert [result["tool_use_id"] for result in results] == ["t0", "t1", "t2", "t3"]
    assert results[1]["content"] == "     1\tone"
    assert results[3]["content"] == "     1\ttwo"


async def test_nothing_after_the_report_is_done(talk: Talk) -> None:
    report = use("report", {"status": "done", "summary": "there"}, id="t2")
    outcome = await talk(says(bash("true", "t1"), report, bash("touch late", "t3")))
    assert isinstance(outcome, Report)
    assert talk.workspace.commands == ["true"]


async def test_nothing_of_an_answer_that_was_cut_is_done(talk: Talk) -> None:
    assert isinstance(await talk(says(bash("touch a"), stop="max_tokens"), DONE), Report)
    assert talk.workspace.commands == []
    assert talk.model.results()[0]["is_error"] is True


async def test_answers_that_never_fit_are_too_complex(talk: Talk) -> None:
    failure = await talk.fails(says(text("and then"), stop="max_tokens"))
    assert failure.kind == "too_complex"
    assert len(talk.model.asked) == 3


async def test_a_refusal_ends_it(talk: Talk) -> None:
    failure = await talk.fails(says(text("I won't."), bash("touch a"), stop="refusal"))
    assert failure == Failure(kind="refusal", summary="the model refused", evidence="I won't.")
    assert talk.workspace.commands == []


async def test_a_full_context_is_too_complex(talk: Talk) -> None:
    assert (await talk.fails(says(text("so"), stop="model_context_window_exceeded"))).kind == "too_complex"


async def test_a_pause_is_sent_back_as_it_is_while_a_tool_of_theirs_runs(talk: Talk) -> None:
    theirs = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    assert isinstance(await talk(says(text("wait"), theirs, stop="pause_turn"), DONE), Report)
    assert talk.model.asked[1]["messages"][-1]["role"] == "assistant"
    assert talk.model.asked[1]["messages"][-1]["content"][-1]["type"] == "server_tool_use"


async def test_a_paused_turn_continues_after_a_text_and_without_an_action(talk: Talk) -> None:
    paused = says(text("wait"), bash("touch a"), stop="pause_turn")
    assert isinstance(await talk(paused, DONE), Report)
    assert talk.workspace.commands == []
    assert talk.model.results()[0]["is_error"] is True


async def test_a_service_that_only_pauses_is_given_up(talk: Talk) -> None:
    failure = await talk.fails(says(text("wait"), stop="pause_turn"))
    assert failure.kind == "protocol"
    assert len(talk.model.asked) == 4


@pytest.mark.parametrize("stop", ["new_reason", None])
async def test_an_unknown_stop_is_tried_once_more_and_nothing_is_done(talk: Talk, stop: str | None) -> None:
    failure = await talk.fails(says(bash("touch a"), stop=stop))
    assert failure.kind == "protocol"
    assert len(talk.model.asked) == 2
    assert talk.workspace.commands == []
    assert talk.model.asked[0]["messages"] == talk.model.asked[1]["messages"]


async def test_a_stream_that_breaks_inside_a_tool_call_is_asked_again(talk: Talk) -> None:
    whole: list[tuple[str, Body]] = [
        ("message_start", {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}),
        ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": bash("")}),
        (
            "content_block_delta",
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "input_json_delta", "partial_json": '{"command": "touch a"}'},
            },
        ),
    ]
    assert isinstance(await talk(sse(whole), DONE), Report)
    assert talk.workspace.commands == []
    assert talk.model.asked[0] == talk.model.asked[1]


async def test_the_output_of_a_tool_is_capped(talk: Talk) -> None:
    assert isinstance(await talk(says(bash("seq 100000")), DONE, output_chars=1000), Report)
    result = talk.model.results()[0]["content"]
    assert len(result) < 1200
    assert result.startswith("1\n2\n")
    assert result.endswith("100000\n[exit code 0]")


@pytest.mark.parametrize("depth", [100, 400, 900, 990, 2000, 50_000])
async def test_input_of_any_depth_does_no_harm(talk: Talk, depth: int) -> None:
    nested = "[" * depth + "]" * depth
    deep = [
        says(use("bash", raw=f'{{"command": {nested}}}')),
        says(use("report", raw=f'{{"status": "done", "summary": "x", "result": {{"a": {nested}}}}}')),
    ]
    assert isinstance(await talk(*deep, DONE), Report)


async def test_halves_of_characters_do_no_harm(talk: Talk) -> None:
    lone = says(text("half \ud800"), use("bash", raw='{"command": "echo \\ud800"}'), use("b\ud800", {}, id="t2"))
    whole = says(use("bash", raw='{"command": "echo \ud83d\ude00; ls"}'))
    (talk.workspace.folder / "\udcff").touch()
    assert isinstance(await talk(whole, lone, DONE), Report)
    assert talk.workspace.commands == ["echo \N{GRINNING FACE}; ls"]


async def test_time_runs_out(talk: Talk) -> None:
    failure = await talk.fails(says(bash("sleep 60")), workers={"coder": worker_settings(time_s=0.3)})
    assert failure.kind == "budget"
    assert "0.3 s" in failure.summary


async def test_a_command_that_hangs_is_reported_as_stopped(talk: Talk) -> None:
    assert isinstance(await talk(says(bash("sleep 60")), DONE, command_s=1), Report)
    assert "did not finish" in talk.model.results()[0]["content"]
