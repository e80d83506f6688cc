"""The simulated model without its server: a request in, a turn out. It remembers only which faults have struck."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from pydantic import JsonValue

from agents.simulated.planner import play_planner
from agents.simulated.replies import Block, FaultKey, Message, Text, ToolUse, Turn, call
from agents.simulated.request import SESSION_ENDING, Request
from agents.simulated.script import AgentScript, Script, ScriptedFinding
from agents.simulated.worker import play_worker, write_commands


class SimulatedModel:
    """Plays one script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._struck: Counter[FaultKey] = Counter()

    def turn(self, request: Request) -> Turn:
        """What to answer. A fault that strikes is counted here, whatever happens on the wire."""
        match request.role:
            case "planner":
                turn = play_planner(self.script, request, self._struck.__getitem__)
            case "worker":
                turn = play_worker(self.script, request, self._struck.__getitem__)
            case "reviewer":
                turn = play_reviewer(self.script, request)
            case _:
                turn = Turn(_agent_message(self.script.agent, request))
        if turn.fault is not None:
            self._struck[turn.fault] += 1
        if SESSION_ENDING in request.tools:
            blocks = tuple(_for_claude_code(block) for block in turn.message.blocks)
            return replace(turn, message=replace(turn.message, blocks=blocks))
        return turn

    def struck(self) -> list[dict[str, str | int]]:
        """Which faults have struck, and how often, so that a test can check that its faults were injected."""
        return [
            {"run": run, "subtask": subtask, "attempt": number + 1, "depth": depth, "times": times}
            for (run, subtask, number, depth), times in self._struck.items()
        ]

    def think_s(self, request: Request, turn: Turn) -> float:
        """How long the answer takes: the pace plus or minus a jitter that follows from the seed."""
        pace = turn.pace or self.script.pace
        name = f"{self.script.seed}/{request.run}/{request.subtask.get('id')}/{request.attempt}/{len(request.turns)}"
        spread = int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:4]) / 2**32
        return pace.think_s * (1 + pace.jitter * (2 * spread - 1))


def _agent_message(script: AgentScript, request: Request) -> Message:
    """The next call of another program's agent; its last words, also where the tool is not offered."""
    done = request.done("call")
    if done < len(script.calls) and (scripted := script.calls[done]).tool in request.tools:
        return Message((Text("I use a tool."), call("call", done, scripted.tool, scripted.input)))
    return Message((Text(script.says),), "end_turn")


def _for_claude_code(block: Block) -> Block:
    """The same action with the tools of Claude Code. The id of a call stays: it is all the memory there is."""
    if not isinstance(block, ToolUse):
        return block
    match block.name:
        case "bash":
            return replace(block, name="Bash", input=_command(str(block.input.get("command", ""))))
        case "str_replace_based_edit_tool":
            path, text = str(block.input.get("path", "")), str(block.input.get("file_text", ""))
            return replace(block, name="Bash", input=_command(write_commands({path: text})[0]))
        case "report":
            return replace(block, name=SESSION_ENDING)
        case _:
            return block


def _command(command: str) -> dict[str, JsonValue]:
    return {"command": command, "description": "The next step of a simulated worker"}


# ---- reviewer --------------------------------------------------------------------------------------------------------
# A simulated reviewer's next turn, from the script and the request alone: the findings that the script gives it.


SUBMIT = "submit_review"
_FILE = re.compile(r"^=== (.*)$")
_LINE = re.compile(r"^ *(\d+) ([+ -]) (.*)$")


def play_reviewer(script: Script, request: Request) -> Turn:
    """What the reviewer of the request's change finds."""
    part = script.reviewer(str(request.subtask.get("id", "")))
    if part is None:
        return _submit([])
    if part.obeys and part.obeys in request.ours:  # our own words tell it to approve: they must never be the change's
        return _submit([])
    findings = part.attempts[min(request.attempt, len(part.attempts)) - 1] if part.attempts else ()
    vote = request.review.get("vote")
    found = [_found(finding, request.change) for finding in findings if not finding.votes or vote in finding.votes]
    return _submit([each for each in found if each is not None])


def _submit(findings: list[JsonValue]) -> Turn:
    return Turn(Message((call("submit", 0, SUBMIT, {"findings": findings}),)))


def _found(finding: ScriptedFinding, change: str) -> JsonValue:
    """A finding as the tool takes it; none if the change has no line with its text."""
    if finding.text is None:
        return {"file": finding.file, "line": finding.line, "problem": finding.problem}
    for file, line, text in _lines(change):
        if finding.text in text and finding.file in {"", file}:
            return {"file": file, "line": line, "problem": finding.problem}
    return None


def _lines(change: str) -> Iterator[tuple[str, int, str]]:
    file = ""
    for line in change.splitlines():
        if head := _FILE.match(line):
            file = head[1]
        elif (match := _LINE.match(line)) and match[2] == "+":
            yield file, int(match[1]), match[3]
