"""What `gh` and `glab` of ours have in common: the log of calls, the lock on the state, and faults."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.forge.scripted_forge import FOLDER, Json, ScriptedForge, commit_file, take_fault


class RefusedError(Exception):
    """The program prints this to its error stream and exits."""

    def __init__(self, message: str, code: int = 1, *, out: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.out = message, code, out


@dataclass(frozen=True, slots=True)
class Call:
    """One start of a program."""

    arguments: list[str]
    input: str
    state: Json
    remote: Path


def answer(
    program: str,
    perform: Callable[[Call], str],
    refusals: Mapping[str, RefusedError],
    limited: Callable[[Call, str], RefusedError],
) -> NoReturn:
    """Answer this process's arguments, and exit as the real program would."""
    arguments = sys.argv[1:]
    # the real programs read their standard input only where they are asked to
    given = sys.stdin.read() if "-" in arguments or any(each.endswith(("=-", "=@-")) for each in arguments) else ""
    forge = ScriptedForge(Path(os.environ[FOLDER]))
    fault, text, refused = None, "", None
    with forge.changing() as state:
        with (forge.folder / "calls.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps([program, *arguments]) + "\n")
        call = Call(arguments, given, state, forge.remote)
        fault = take_fault(state, "\n".join([program, *arguments, given]))
        try:
            text = _perform(call, fault, perform, refusals, limited)
        except RefusedError as why:
            refused = why
    if fault is not None and fault["kind"] == "slow":
        time.sleep(fault["seconds"])
    if fault is not None and fault["kind"] in {"dies_before", "dies_after"}:
        os.kill(os.getpid(), signal.SIGKILL)
    if refused is not None:
        sys.stdout.write(refused.out)
        sys.stdout.flush()
        sys.stderr.write(f"{refused.message}\n")
        sys.exit(refused.code)
    sys.stdout.write(text[: len(text) // 2] if fault is not None and fault["kind"] == "cut" else text)
    sys.exit(0)


def _perform(
    call: Call,
    fault: Json | None,
    perform: Callable[[Call], str],
    refusals: Mapping[str, RefusedError],
    limited: Callable[[Call, str], RefusedError],
) -> str:
    kind = fault["kind"] if fault is not None else ""
    if fault is None or kind in {"slow", "dies_after", "cut"}:
        return perform(call)
    if kind == "dies_before":
        return ""
    if kind in {"push", "force_push"}:
        onto = fault["onto"] if kind == "force_push" else None
        commit_file(call.remote, fault["branch"], fault["path"], fault["text"], onto=onto)
        return perform(call)
    if kind == "rate_limit":
        call.state["limit_ends"] = time.time() + fault.get("seconds", 0)
    raise refusals[kind] if kind in refusals else limited(call, kind)
