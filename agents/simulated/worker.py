"""A simulated worker's next move, from the script and the request alone: which behaviour, and how far it got."""

from fnmatch import fnmatchcase
from typing import assert_never

from pydantic import JsonValue

from agents.simulated.behaviours import (
    Ask,
    BreakStream,
    Claim,
    Fail,
    Fetch,
    Hang,
    Http,
    Malformed,
    Mute,
    Shell,
    Solve,
    Stray,
    TooComplex,
    Trouble,
    Until,
    Work,
    Wrong,
)
from agents.simulated.doing import fetch_files, look, report_done, report_failed, run_commands, write_and_check
from agents.simulated.moves import Cut, Key, Move, Refuse, Say, Spent, Stall, Text, ToolUse, call
from agents.simulated.request import Request
from agents.simulated.script import UNSCRIPTED, Script


def play_worker(script: Script, request: Request, spent: Spent) -> Move:
    """What the worker of the request's subtask does next."""
    name = str(request.subtask.get("id", ""))
    part = script.worker(name)
    number = min(request.attempt, len(part.attempts)) - 1
    behaviour = _now(part.attempts[number], request)
    depth = 0
    while isinstance(behaviour, Trouble):
        key: Key = (request.run, name, number, depth)
        struck = spent(key)
        if len(request.turns) == behaviour.turn and struck < behaviour.times:
            return Move(_trouble(behaviour, request, struck), spends=key, pace=part.pace)
        behaviour = _now(behaviour.then or UNSCRIPTED, request)
        depth += 1
    return Move(_work(behaviour, request), pace=part.pace)


def _now(behaviour: Work | Trouble | Until, request: Request) -> Work | Trouble:
    """What a behaviour is for this attempt: whether what it waits for has come."""
    while isinstance(behaviour, Until):
        met = (
            (behaviour.guided is None or behaviour.guided in request.guidance)
            and (behaviour.model is None or fnmatchcase(request.model, behaviour.model))
            and (behaviour.attempt is None or request.attempt >= behaviour.attempt)
        )
        behaviour = behaviour.then if met else behaviour.meanwhile
    return behaviour


def _trouble(trouble: Trouble, request: Request, struck: int) -> Say | Refuse | Cut | Stall:
    match trouble:
        case Http():
            return Refuse(trouble.status, trouble.message, trouble.retry_after, trouble.headers, trouble.body)
        case BreakStream():
            return Cut(_beneath(trouble, request), trouble.how)
        case Hang():
            return Stall(_beneath(trouble, request), trouble.seconds, trouble.pings)
        case Malformed():
            return Say((_malformed(trouble, struck),))
        case Mute():
            return Say((Text(trouble.text),) if trouble.text else (), stop_reason=trouble.stop_reason)
        case _:
            assert_never(trouble)


def _malformed(trouble: Malformed, struck: int) -> ToolUse:
    id_ = f"toolu_simulated_malformed-{struck}"
    match trouble.how:
        case "json":
            return ToolUse(id_, "bash", {}, broken='{"command": "ls')
        case "schema":
            return ToolUse(id_, "bash", {"cmd": ["ls"], "timeout": "soon"})
        case "tool":
            return ToolUse(id_, "launch_rocket", {"to": "moon"})
        case _:
            assert_never(trouble.how)


def _beneath(trouble: Trouble, request: Request) -> Say:
    """What the worker would have said."""
    behaviour = _now(trouble.then or UNSCRIPTED, request)
    while isinstance(behaviour, Trouble):
        behaviour = _now(behaviour.then or UNSCRIPTED, request)
    return _work(behaviour, request)


def _work(work: Work, request: Request) -> Say:
    looked = sum(turn.step == "look" for turn in request.turns)
    if looked < work.turns and looked == len(request.turns):
        return look(request, looked)
    match work:
        case Solve() | Wrong() | Stray():
            return write_and_check(work, request)
        case Shell():
            return run_commands(work, request)
        case Fetch():
            return fetch_files(work, request)
        case Claim():
            return report_done(request, work, {})
        case TooComplex():
            return report_failed(request, "too_complex", work.message, recommendations=work.says.recommendations)
        case Fail():
            return report_failed(request, work.kind, work.message, recommendations=work.says.recommendations)
        case Ask():
            return _blocked(work)
        case _:
            assert_never(work)


def _blocked(ask: Ask) -> Say:
    summary = ask.says.summary or "I can't go on without an answer."
    given: dict[str, JsonValue] = {"status": "blocked", "summary": summary, "needs": list(ask.needs)}
    return Say((call("report", 0, "report", given),))
