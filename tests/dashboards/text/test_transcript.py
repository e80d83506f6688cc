"""A conversation as text: what an agent says, does and gets."""

from dashboards.text.event_text import transcript_lines


def test_the_summary_of_thinking_is_shown_as_what_an_agent_says() -> None:
    content = [
        {"type": "thinking", "thinking": "I look at\x1b[31m the tests.", "signature": "s"},
        {"type": "redacted_thinking", "data": "…"},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}},
    ]
    lines = list(transcript_lines([{"event": "answer", "turn": 1, "content": content}]))
    assert lines[1] == "   thinking"
    assert "I look at" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert lines[3:5] == ["   thinking (hidden by the service)", "   (thinking)"]
    assert lines[5] == "   → bash"


def test_the_time_of_a_command_is_shown_with_as_many_digits_as_matter() -> None:
    (line, *_) = transcript_lines([{"event": "command", "line": "true", "exit_code": 0, "seconds": 0.0033269880000261}])
    assert line.endswith("exit_code=0  seconds=0.00333")


def test_results_of_tools_are_not_headed_as_the_user() -> None:
    results = [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]
    told = [*results, {"type": "text", "text": "go on"}]
    heads = [next(transcript_lines([{"event": "user", "content": content}])) for content in (results, told, "hello")]
    assert heads == ["── results", "── user", "── user"]


def test_the_end_shows_no_value_of_the_program() -> None:
    assert list(transcript_lines([{"event": "end", "value": "status='done' summary='x'"}])) == ["── end"]


def test_what_a_model_was_given_is_left_out_and_an_answer_in_parts_is_text() -> None:
    no = {"type": "tool_result", "is_error": True, "content": [{"type": "text", "text": "no"}]}
    entries: list[dict[str, object]] = [
        {"event": "start", "model": "m", "system": "secret ways", "tools": ["bash"], "blocks": 2},
        {"event": "results", "content": [no]},
        {"event": "note", "content": "as text"},
    ]
    heads = ["── start  model=m", "── results", "   ← error", "     no", "── note", "     as text"]
    assert list(transcript_lines(entries)) == heads
