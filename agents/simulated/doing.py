"""Workers that do something: they look around, write files, run commands and look at how those ended.

Each answer follows from the request alone. What a command printed is only ever searched for our own mark.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from agents.simulated.behaviours import Fetch, Reading, Says, Shell, Solve, Stray, Wrong
from agents.simulated.moves import Say, Text, ToolUse, call
from agents.simulated.request import Request, Result, Turn

EVIDENCE = 1500  # characters of a failed command's output that a report quotes

_EXIT = re.compile(r"^exit: (\d+)\s*$", re.MULTILINE)


def look(request: Request, number: int) -> Say:
    """The `number`-th turn of looking around."""
    paths = [str(path) for name in ("context", "touches") for path in _list(request.subtask, name)]
    if number == 0 or not paths:
        commands = ["ls", "ls -l tests 2>/dev/null | head -40"][: 1 + (number == 0)]
    else:
        path = shlex.quote(paths[(number - 1) % len(paths)])
        commands = [f"sed -n '1,120p' {path}", f"grep -n 'def \\|class ' {path} || true"]
    return Say((Text("First I look at what is there."), *_bash("look", commands)))


def write_and_check(behaviour: Solve | Wrong | Stray, request: Request) -> Say:
    """The next turn of a worker that writes files."""
    files = dict(behaviour.files)
    if isinstance(behaviour, Stray):
        files |= behaviour.outside
    last = _last_doing(request.turns)
    if last is None:
        return _write(files, through=behaviour.through)
    if last.step == "write" and (refused := _refused(files, last)):
        return Say((Text("The editor would not; I use the shell."), *_bash("rewrite", map_files(refused))))
    commands = acceptance_commands(request.subtask) if {"bash", "Bash"} & request.tools else []
    if last.step in {"write", "rewrite"} and commands:
        checks = [f'{command}\necho "exit: $?"' for command in commands]
        return Say((Text("Now the checks."), *_bash("check", checks)))
    failed = [result for result in last.results if last.step == "check" and not passed(result)]
    if failed and not isinstance(behaviour, Wrong):
        return report_failed(request, "other", "My checks fail:\n" + failed[0].text[-EVIDENCE:])
    return report_done(request, behaviour, files)


def run_commands(behaviour: Shell, request: Request) -> Say:
    """The next turn of a worker that runs what it was told to run, one command a turn."""
    done = sum(turn.step == "run" for turn in request.turns)
    if done < len(behaviour.commands):
        return Say((Text("Next command."), *_bash("run", behaviour.commands[done : done + 1])))
    return report_done(request, behaviour, {})


def fetch_files(behaviour: Fetch, request: Request) -> Say:
    """The next turn of a worker that fetches what it was told to fetch, all at once."""
    fetched = next((turn for turn in reversed(request.turns) if turn.step == "fetch"), None)
    if fetched is not None:
        refused = [result.text[-EVIDENCE:] for result in fetched.results if result.is_error]
        if refused:
            said = refused[0].strip().rpartition("\n")[2]
            return report_failed(request, "tool", "\n".join(refused), because=said)
        return report_done(request, behaviour, dict.fromkeys(behaviour.files, ""))
    calls = (
        call("fetch", index, "fetch", {"url": url, "path": path})
        for index, (path, url) in enumerate(behaviour.files.items())
    )
    return Say((Text("I fetch what is asked for."), *calls))


def report_done(request: Request, behaviour: Reading, files: Mapping[str, str]) -> Say:
    title = str(request.subtask.get("title") or request.subtask.get("id") or "The subtask")
    says: Says = behaviour.says
    result: dict[str, JsonValue] = {"files": list(files)} if files else {}
    given: dict[str, JsonValue] = {
        "status": "done",
        "summary": says.summary or f"{title}: written, and its checks pass.",
        "result": dict(says.result) or result,
    }
    for name in ("recommendations", "discovered"):
        if texts := getattr(says, name):
            given[name] = list(texts)
    return Say((call("report", 0, "report", given),))


def report_failed(
    request: Request, kind: str, message: str, *, because: str = "", recommendations: Sequence[str] = ()
) -> Say:
    title = str(request.subtask.get("title") or request.subtask.get("id") or "The subtask")
    given: dict[str, JsonValue] = {
        "status": "failed",
        "summary": f"{title}: not done{f': {because}' if because else '.'}",
        "error": {"kind": kind, "message": message},
    }
    if recommendations:
        given["recommendations"] = list(recommendations)
    return Say((call("report", 0, "report", given),))


def acceptance_commands(subtask: Mapping[str, object]) -> list[str]:
    criteria = (item for item in _list(subtask, "acceptance") if isinstance(item, dict))
    return [str(item["run"]) for item in criteria if item.get("run")]


def passed(result: Result) -> bool:
    """How a command ended: by our mark, or where that is missing by what the client says."""
    marks = _EXIT.findall(result.text)
    return marks[-1] == "0" if marks else not result.is_error


def map_files(files: Mapping[str, str]) -> list[str]:
    """Shell commands that write the files."""
    return [_shell_write(path, text) for path, text in files.items()]


def _shell_write(path: str, text: str) -> str:
    quoted = shlex.quote(path)
    folder = path.rpartition("/")[0]
    made = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    return f"{made}printf %s {shlex.quote(text)} > {quoted}"


def _write(files: Mapping[str, str], *, through: str) -> Say:
    names = ", ".join(files)
    if through == "bash":
        return Say((Text(f"I write {names}."), *_bash("write", map_files(files))))
    creates = (
        call("write", index, "str_replace_based_edit_tool", {"command": "create", "path": path, "file_text": text})
        for index, (path, text) in enumerate(files.items())
    )
    return Say((Text(f"I write {names}."), *creates))


def _refused(files: Mapping[str, str], turn: Turn) -> dict[str, str]:
    """The files whose writing came back as an error."""
    pairs = zip(files.items(), turn.results, strict=False)
    return {path: text for (path, text), result in pairs if result.is_error}


def _last_doing(turns: Sequence[Turn]) -> Turn | None:
    return next((turn for turn in reversed(turns) if turn.step != "look"), None)


def _bash(step: str, commands: Sequence[str]) -> tuple[ToolUse, ...]:
    return tuple(call(step, index, "bash", {"command": command}) for index, command in enumerate(commands))


def _list(subtask: Mapping[str, object], name: str) -> list[object]:
    value = subtask.get(name)
    return value if isinstance(value, list) else []
