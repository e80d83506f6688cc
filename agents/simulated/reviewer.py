"""A simulated reviewer's next turn, from the script and the request alone: the findings that the script gives it."""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from agents.simulated.replies import Message, Turn, call
from agents.simulated.request import Request
from agents.simulated.script import Script, ScriptedFinding

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
