"""The next turn of a simulated worker, derived from the script and the request: its behavior and progress.

The output of a command is only searched for the exit marker.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import assert_never

from pydantic import JsonValue

from agents.simulated import behaviours as b
from agents.simulated.behaviours import (
    BehaviourMessage,
    BehaviourTurn,
    FaultKey,
    InvalidCall,
    Text,
    TimesStruck,
    ToolUse,
    call,
    strike,
)
from agents.simulated.prompt import PastTurn, PromptRequest, Result
from agents.simulated.script import UNSCRIPTED, Script

EVIDENCE = 1500  # characters of a failed command's output in a report

_INVALID = InvalidCall("bash", broken='{"command": "ls', misfit={"cmd": ["ls"], "timeout": "soon"})
_FIRST = frozenset({"look", "call"})
"""The first steps."""
_EXIT = re.compile(r"^exit: (\d+)\s*$", re.MULTILINE)


def play_worker(script: Script, request: PromptRequest, times_struck: TimesStruck) -> BehaviourTurn:
    """Return the next turn of the worker of the request's subtask."""
    name = str(request.subtask.get("id", ""))
    part = script.worker(name)
    number = min(request.attempt, len(part.attempts)) - 1
    faults: list[b.Fault] = []
    behaviour = _resolve(part.attempts[number], request)
    while isinstance(behaviour, b.Fault):
        faults.append(behaviour)
        behaviour = _resolve(behaviour.then or UNSCRIPTED, request)
    message = _work(behaviour, request)
    for depth, fault in enumerate(faults):
        key: FaultKey = (request.run, name, number, depth)
        struck = times_struck(key)
        if len(request.turns) == fault.turn and struck < fault.times:
            return strike(fault, key, message, _INVALID, pace=part.pace, times_struck=struck)
    return BehaviourTurn(message, part.pace)


def _resolve(behaviour: b.Work | b.Fault | b.Until, request: PromptRequest) -> b.Work | b.Fault:
    """Return the behavior for this attempt, if it depends on conditions."""
    while isinstance(behaviour, b.Until):
        met = (
            (behaviour.guided is None or behaviour.guided in request.guidance)
            and (behaviour.model is None or fnmatchcase(request.model, behaviour.model))
            and (behaviour.attempt is None or request.attempt >= behaviour.attempt)
        )
        behaviour = behaviour.then if met else behaviour.meanwhile
    return behaviour


def _work(work: b.Work, request: PromptRequest) -> BehaviourMessage:
    looks = request.done("look")
    if looks < work.turns and all(turn.step == "look" for turn in request.turns):
        return _look(request, looks)
    called = request.done("call")
    if called < len(work.calls) and all(turn.step in _FIRST for turn in request.turns):
        scripted = work.calls[called]
        return BehaviourMessage((Text("I use a tool."), call("call", called, scripted.tool, scripted.input)))
    match work:
        case b.WritingBehaviour():
            return _write_and_check(work, request)
        case b.Shell():
            return _run_commands(work, request)
        case b.FetchStep():
            return _fetch_files(work, request)
        case b.FalseClaim():
            return _report_done(request, work)
        case b.TooComplex():
            return _report_failed(request, "too_complex", work.message, recommendations=work.says.recommendations)
        case b.Fail():
            return _report_failed(request, work.kind, work.message, recommendations=work.says.recommendations)
        case b.AskBehaviour():
            summary = work.says.summary or "I can't go on without an answer."
            return _report({"status": "blocked", "summary": summary, "needs": list(work.needs)})
        case _:
            assert_never(work)


def _look(request: PromptRequest, number: int) -> BehaviourMessage:
    """Return the `number`-th turn of exploration."""
    paths = [str(path) for name in ("context", "touches") for path in _list(request.subtask, name)]
    if number == 0 or not paths:
        commands = ["ls", "ls -l tests 2>/dev/null | head -40"][: 1 + (number == 0)]
    else:
        path = shlex.quote(paths[(number - 1) % len(paths)])
        commands = [f"sed -n '1,120p' {path}", f"grep -n 'def \\|class ' {path} || true"]
    return BehaviourMessage((Text("First I look at what is there."), *_bash("look", commands, number=number)))


def _write_and_check(work: b.WritingBehaviour, request: PromptRequest) -> BehaviourMessage:
    files = {**work.files, **work.outside} if isinstance(work, b.OutOfBounds) else work.files
    last = next((turn for turn in reversed(request.turns) if turn.step not in _FIRST), None)
    if last is None:
        return _write(files, through=work.through)
    if last.step == "write" and (refused := _refuse(files, last)):
        return BehaviourMessage(
            (Text("The editor failed. I use the shell."), *_bash("rewrite", write_commands(refused)))
        )
    commands = _acceptance_commands(request.subtask) if {"bash", "Bash"} & request.tools else []
    if last.step in {"write", "rewrite"} and commands:
        checks = [f'{command}\necho "exit: $?"' for command in commands]
        return BehaviourMessage((Text("Now the checks."), *_bash("check", checks)))
    failed = [result for result in last.results if last.step == "check" and not _passed(result)]
    if failed and not isinstance(work, b.WrongResult):
        return _report_failed(request, "other", "My checks fail:\n" + failed[0].text[-EVIDENCE:])
    return _report_done(request, work, files)


def _write(files: Mapping[str, str], *, through: str) -> BehaviourMessage:
    text = Text(f"I write {', '.join(files)}.")
    if through == "bash":
        return BehaviourMessage((text, *_bash("write", write_commands(files))))
    creates = (
        call("write", 0, "str_replace_based_edit_tool", {"command": "create", "path": path, "file_text": content})
        for path, content in files.items()
    )
    return BehaviourMessage((text, *creates))


def write_commands(files: Mapping[str, str]) -> list[str]:
    """Return shell commands that write the files."""
    commands = []
    for path, text in files.items():
        folder = path.rpartition("/")[0]
        make = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
        commands.append(f"{make}printf %s {shlex.quote(text)} > {shlex.quote(path)}")
    return commands


def _refuse(files: Mapping[str, str], turn: PastTurn) -> dict[str, str]:
    """Return the files that could not be written."""
    pairs = zip(files.items(), turn.results, strict=False)
    return {path: text for (path, text), result in pairs if result.is_error}


def _acceptance_commands(subtask: Mapping[str, object]) -> list[str]:
    criteria = (item for item in _list(subtask, "acceptance") if isinstance(item, dict))
    return [str(item["run"]) for item in criteria if item.get("run")]


def _passed(result: Result) -> bool:
    """Whether a command succeeded, according to the exit marker, or else to the client."""
    marks = _EXIT.findall(result.text)
    return marks[-1] == "0" if marks else not result.is_error


def _run_commands(work: b.Shell, request: PromptRequest) -> BehaviourMessage:
    """Run one command per turn."""
    done = request.done("run")
    if done < len(work.commands):
        return BehaviourMessage((Text("Next command."), *_bash("run", work.commands[done : done + 1], number=done)))
    return _report_done(request, work)


def _fetch_files(work: b.FetchStep, request: PromptRequest) -> BehaviourMessage:
    """Fetch all addresses in one turn."""
    fetched = next((turn for turn in reversed(request.turns) if turn.step == "fetch"), None)
    if fetched is None:
        inputs = ({"url": url, "path": path} for path, url in work.files.items())
        calls = (call("fetch", 0, "fetch", {**arguments}) for arguments in inputs)
        return BehaviourMessage((Text("I fetch the files."), *calls))
    refused = [result.text[-EVIDENCE:] for result in fetched.results if result.is_error]
    if refused:
        last_line = refused[0].strip().rpartition("\n")[2]
        return _report_failed(request, "tool", "\n".join(refused), because=last_line)
    return _report_done(request, work, work.files)


def _report_done(
    request: PromptRequest, work: b.WorkBehaviour, files: Mapping[str, str] | None = None
) -> BehaviourMessage:
    texts = work.says
    result: dict[str, JsonValue] = {"files": [*files]} if files else {}
    report: dict[str, JsonValue] = {
        "status": "done",
        "summary": texts.summary or f"{_title(request)}: written, and its checks pass.",
        "result": texts.result or result,
        "recommendations": list(texts.recommendations),
        "discovered": list(texts.discovered),
    }
    return _report(report)


def _report_failed(
    request: PromptRequest, kind: str, message: str, *, because: str = "", recommendations: Sequence[str] = ()
) -> BehaviourMessage:
    report: dict[str, JsonValue] = {
        "status": "failed",
        "summary": f"{_title(request)}: not done{f': {because}' if because else '.'}",
        "error": {"kind": kind, "message": message},
        "recommendations": list(recommendations),
    }
    return _report(report)


def _report(report: dict[str, JsonValue]) -> BehaviourMessage:
    """End the attempt. Empty lists are omitted."""
    return BehaviourMessage(
        (call("report", 0, "report", {name: value for name, value in report.items() if value != []}),)
    )


def _title(request: PromptRequest) -> str:
    return str(request.subtask.get("title") or request.subtask.get("id") or "The subtask")


def _bash(step: str, commands: Sequence[str], *, number: int = 0) -> tuple[ToolUse, ...]:
    return tuple(call(step, number, "bash", {"command": command}) for command in commands)


def _list(subtask: Mapping[str, object], name: str) -> list[object]:
    value = subtask.get(name)
    return value if isinstance(value, list) else []
