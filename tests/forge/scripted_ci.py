"""The checks of a scripted forge: a rule is green at a commit when a file there has a text."""

from dataclasses import dataclass
from pathlib import Path

from tests.forge.scripted_forge import Json, head_of, new_id, text_at


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One rule at one commit."""

    run: int
    name: str
    is_completed: bool
    is_green: bool
    log: str
    at: str


def check_runs(state: Json, remote: Path, pull: Json) -> list[CheckRun]:
    """The checks of the head of a pull request. Each look at a pending one brings it nearer to its end."""
    head = head_of(remote, pull["head"])
    rules = [rule for rule in state["ci"] if rule["pull"] in {None, pull["number"]}]
    return [_run(state, remote, head, rule) for rule in rules]


def run_of(state: Json, number: int) -> CheckRun | None:
    found = next((each for each in state["runs"].values() if each["run"] == number), None)
    return CheckRun(number, found["name"], True, found["green"], found["log"], "") if found is not None else None


def _run(state: Json, remote: Path, head: str, rule: Json) -> CheckRun:
    key = f"{head}/{rule['name']}/{rule['pull']}"
    known = state["runs"].get(key)
    if known is None:
        green = rule["text"] in text_at(remote, head, rule["path"])
        log = rule["log"] or f"{rule['path']} lacks {rule['text']}"
        known = {"run": new_id(state), "name": rule["name"], "green": green, "log": log, "looks": rule["pending"]}
        state["runs"][key] = known
    is_completed = known["looks"] <= 0
    known["looks"] -= 1
    return CheckRun(known["run"], rule["name"], is_completed, known["green"], known["log"], pull_time(known["run"]))


def pull_time(number: int) -> str:
    return f"2026-11-02T10:{number // 60 % 60:02}:{number % 60:02}Z"
