"""The facts of a journal, from the classes that they are read with."""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel

from fleet.core import facts
from fleet.core.revision import Ask, Drop, Retry, Revision, Split
from fleet.core.usage import Cost, Usage
from scripts.reference.page import code, table
from scripts.reference.shapes import default_of
from scripts.reference.source import said_of, said_of_fields, types_of_fields

PARTS: tuple[type[BaseModel], ...] = (
    facts.Failure,
    facts.Report,
    facts.CheckRun,
    facts.Member,
    facts.Ejected,
    Revision,
    Split,
    Retry,
    Drop,
    Ask,
    Usage,
    Cost,
)
"""What facts are made of."""
WORDS = ("FailureKind", "Strategy", "Remedy", "Role", "ServiceCondition", "Ending")
"""Fields that hold one word of a list."""
_PLAIN: Mapping[str, str] = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`true` or `false`",
    "JsonValue": "anything",
}
SAME = {"at", "kind"}
"""What every fact has."""
COMMON: Mapping[str, str] = {
    "about": "The subtask that it is about, if it is about one.",
    "add": "New subtasks.",
    "answer": "What was answered.",
    "area": "The area whose planner it was; none: the run's own.",
    "ask": "Questions to a human.",
    "attempt": "The number of the attempt, from 1.",
    "base": "The commit that it starts from.",
    "base_name": "How the base was named: a branch, a tag, `HEAD`.",
    "budget_attempts": "Attempts in all, from now on.",
    "budget_dollars": "Dollars in all, from now on.",
    "budget_minutes": "Minutes in all, from now on.",
    "budget_tokens": "Tokens in all, from now on.",
    "by": "Who asked for it.",
    "cache_read": "Tokens read from the cache.",
    "cache_write": "Tokens written to the cache.",
    "call": "The number of the planner call, from 1.",
    "calls": "So many calls.",
    "checks": "The checks that were run, with how they ended.",
    "command": "What was run.",
    "commit": "The commit, which a ref keeps.",
    "condition": "How the service is to all callers.",
    "cost": "What it may cost at most.",
    "criterion": "What is true when it passes.",
    "discovered": "Work it saw that nobody planned.",
    "dollars": "What it cost; none: the price is not known.",
    "drop": "Subtasks that are no longer wanted.",
    "ejected": "Those that are sent back, each with why.",
    "ending": "How it ended.",
    "epoch": "How many times an engine has taken over, with this one.",
    "error_kind": "Why it failed, by its own account.",
    "error_message": "The same in words.",
    "evidence": "The end of what a check printed, a report, paths.",
    "exit_code": "With what the command ended; none where it never did.",
    "failure": "What went wrong.",
    "goal": "What the run is for.",
    "guidance": "What to do differently.",
    "host": "The name of the machine.",
    "id": "The subtask.",
    "input": "Tokens that were neither read from the cache nor written to it.",
    "into": "The parts.",
    "kind": "What kind of failure it is; [recovery](../recovery.md#the-ladder) says what follows from it.",
    "members": "The candidates, the first of the queue first.",
    "model": "The model; none: the worker's own.",
    "needs": "What it needs to know.",
    "not_before": "A time before which nothing more is tried.",
    "number": "The number of the attempt, from 1.",
    "options": "Answers to choose from.",
    "output": "Tokens of the answer.",
    "passed": "Whether it ended as it should.",
    "paths": "The files that changed.",
    "pid": "The process.",
    "plan": "The plan that the run was given, where it was given one.",
    "policy": "The limits and choices of the run: `[run]`, `[limits]`, `[landing]`, `[review]` and more.",
    "question": "What is asked; in an answer, the question's id.",
    "reason": "Why not.",
    "recommendations": "What it advises the planner.",
    "red": "Whether a check failed on the merged tree.",
    "remedy": "What is done.",
    "report": "What the worker said. A claim.",
    "repository": "The folder of the repository.",
    "result": "What it found out, for those that depend on it.",
    "result_branch": "The branch that the work is published on.",
    "retry": "Subtasks to try again, with what to do differently.",
    "revise": "Subtasks that change, with the fields that do.",
    "revision": "What changed.",
    "role": "What the call was for.",
    "run": "The name of the run.",
    "sandbox": "What commands run in.",
    "seconds": "How long it took.",
    "simulated": "Whether the model was a simulated one.",
    "split": "Subtasks that become several.",
    "status": "What was said: by a service in HTTP, by a worker as `done`, `failed` or `blocked`.",
    "strategy": "Why it is made.",
    "subtask": "The subtask.",
    "summary": "In a sentence.",
    "text": "In words.",
    "timed_out": "Whether it was ended because it took too long.",
    "tip": "Where the integration branch stood then.",
    "tokens": "So many tokens.",
    "tree": "The tree that it is about.",
    "turn": "The turn of the conversation, from 0.",
    "usage": "The tokens.",
    "version": "The version: of the plan, or of the program that took over.",
    "warnings": "What was noticed.",
    "why": "The reason, in words.",
    "worker": "The worker kind that the plan names.",
    "workers": "Attempts at once, from now on.",
}
"""Fields that mean the same wherever they stand. What differs says so below the field, in its class."""


def made() -> str:
    return "\n\n".join(
        (
            *(_section(f"`{fact.model_fields['kind'].default}`", fact) for fact in get_args(facts.Fact)),
            "## What facts are made of",
            *(_section(part.__name__, part) for part in PARTS),
            "## Lists of words",
            table(("word", "one of"), _words()),
        )
    )


def shapes() -> tuple[type[BaseModel], ...]:
    """Every fact there is, and what facts are made of."""
    return (*get_args(facts.Fact), *PARTS)


def rows(kind: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    """The fields of a fact, with their meaning."""
    types, said = types_of_fields(kind), said_of_fields(kind)
    return [
        (
            code(name),
            _in_words(types[name]),
            default_of(field),
            field.description or said.get(name) or COMMON.get(name, ""),
        )
        for name, field in kind.model_fields.items()
        if name in types and (name not in SAME or kind in PARTS) and not field.exclude
    ]


def _section(heading: str, kind: type[BaseModel]) -> str:
    found = rows(kind)
    fields = "\n\n" + table(("field", "type", "default", "meaning"), found) if found else ""
    return f"### {heading}\n\n{said_of(kind)}{fields}"


def _in_words(annotation: str) -> str:
    """`tuple[Sha, ...]` as a reader of JSON would say it."""
    if found := re.fullmatch(r"(.*) \| None", annotation):
        return f"{_in_words(found[1])} or null"
    if found := re.fullmatch(r"tuple\[(.*), \.\.\.\]", annotation):
        return f"list of {_in_words(found[1])}"
    if found := re.fullmatch(r"dict\[str, (.*)\]", annotation):
        return f"table of {_in_words(found[1])}"
    if found := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return ", ".join(code(word.strip("'")) for word in found[1].split(", "))
    return _PLAIN.get(annotation, code(annotation))


def _words() -> Iterator[tuple[str, str]]:
    for name in WORDS:
        yield code(name), ", ".join(map(code, get_args(getattr(facts, name))))
