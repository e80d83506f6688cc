"""The facts of a journal, from the classes that they are read with."""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel

from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts
from fleet.core.plans.revision import Ask, Drop, Retry, Revision, Split
from scripts.reference.page import code, table
from scripts.reference.shapes import default_text
from scripts.reference.source import class_doc, field_docs, field_types

PARTS: tuple[type[BaseModel], ...] = (
    facts.Failure,
    facts.Report,
    facts.CheckRun,
    facts.SetupRun,
    facts.Member,
    facts.Ejected,
    facts.SubtaskEstimate,
    facts.Spread,
    facts.Forecast,
    facts.Expectation,
    facts.Assumed,
    facts.CallTally,
    Revision,
    Split,
    Retry,
    Drop,
    Ask,
    Usage,
    Cost,
)
"""The parts of facts."""
WORDS = ("FailureKind", "Strategy", "Remedy", "Role", "ServiceCondition", "SetupNetwork", "Ending")
"""Fields that hold one word of a list."""
_PLAIN: Mapping[str, str] = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`true` or `false`",
    "JsonValue": "anything",
    "object": "anything",
}
SAME = {"at", "kind"}
"""Fields of every fact."""
COMMON: Mapping[str, str] = {
    "node": "The name of the node, as in `[nodes.NAME]`.",
    "about": "The subtask it concerns, if any.",
    "add": "New subtasks.",
    "answer": "The answer.",
    "area": "The area of the planner; none: the run's own planner.",
    "ask": "Questions to a human.",
    "attempt": "The number of the attempt, from 1.",
    "base": "The commit that it starts from.",
    "base_name": "The name of the base: a branch, a tag, `HEAD`.",
    "budget_attempts": "The new limit of attempts, in total.",
    "budget_dollars": "The new limit in dollars, in total.",
    "budget_minutes": "The new limit in minutes, in total.",
    "budget_tokens": "The new limit in tokens, in total.",
    "by": "Who asked for it.",
    "cache_read": "Tokens read from the cache.",
    "cache_write": "Tokens written to the cache.",
    "call": "The number of the planner call, from 1.",
    "calls": "The number of calls.",
    "checks": "The checks that ran, with their results.",
    "command": "The command that ran.",
    "commit": "The commit, pinned by a ref.",
    "condition": "The condition of the service for all callers.",
    "cost": "What it may cost at most.",
    "criterion": "What is true if it passes.",
    "discovered": "Unplanned work that it discovered.",
    "dollars": "The cost; none: the price is unknown.",
    "drop": "Subtasks that are no longer wanted.",
    "ejected": "The members that are sent back, each with the reason.",
    "ending": "How it ended.",
    "epoch": "The number of times an engine has taken over, including this one.",
    "error_kind": "The kind of failure, as the worker reported it.",
    "effort": "How hard the model tries; none: as it does by default.",
    "error_message": "The failure as the worker described it.",
    "evidence": "The end of what a check printed, a report, paths.",
    "exit_code": "The exit code; none if the command did not end.",
    "failure": "What went wrong.",
    "goal": "What the run is for.",
    "guidance": "What to do differently.",
    "host": "The name of the machine.",
    "id": "The subtask.",
    "input": "Tokens that were neither read from the cache nor written to it.",
    "into": "The parts.",
    "kind": "What kind of failure it is; [recovery](recovery.md#the-ladder) says what follows from it.",
    "members": "The candidates, in the order of the queue.",
    "model": "The model; none: the worker's own.",
    "needs": "What it needs to know.",
    "not_before": "The time before which no retry starts.",
    "number": "The number of the attempt, from 1.",
    "options": "Answers to choose from.",
    "output": "Tokens of the answer.",
    "passed": "Whether it passed.",
    "paths": "The files that changed.",
    "pid": "The process id.",
    "plan": "The plan that the run was given, if any.",
    "policy": "The limits and choices of the run: `[run]`, `[limits]`, `[landing]`, `[review]` and more.",
    "question": "The question; in an answer, its id.",
    "reason": "The reason for the refusal.",
    "recommendations": "Its advice to the planner.",
    "red": "Whether a check failed on the merged tree.",
    "remedy": "The remedy.",
    "report": "What the worker reported: a claim.",
    "repository": "The folder of the repository.",
    "result": "Its findings, for subtasks that depend on it.",
    "result_branch": "The branch that the work is published on.",
    "retry": "Subtasks to retry, with guidance.",
    "revise": "Subtasks to change, with the changed fields.",
    "revision": "The changes.",
    "role": "The purpose of the call.",
    "run": "The name of the run.",
    "sandbox": "The sandbox of commands.",
    "seconds": "How long it took.",
    "simulated": "Whether the model was a simulated one.",
    "split": "Subtasks that become several.",
    "status": "What a service answered in HTTP, or a worker reported: `done`, `failed` or `blocked`.",
    "strategy": "The reason for the attempt.",
    "subtask": "The subtask.",
    "summary": "A one-sentence summary.",
    "text": "The text.",
    "timed_out": "Whether it was stopped at its time limit.",
    "tip": "The commit of the integration branch at that time.",
    "tokens": "The number of tokens.",
    "tree": "The tree that was tested.",
    "turn": "The turn of the conversation, from 0.",
    "usage": "The tokens.",
    "version": "The version: of the plan, or of the program that took over.",
    "warnings": "The warnings.",
    "why": "The reason.",
    "worker": "The worker kind that the plan names.",
    "workers": "The new limit of concurrent attempts.",
}
"""Fields that mean the same in every fact. A field that differs is explained below it, in its class."""


def content() -> str:
    return "\n\n".join(
        (
            *(_section(f"`{fact.model_fields['kind'].default}`", fact) for fact in get_args(facts.Fact)),
            "## Parts of facts",
            *(_section(part.__name__, part) for part in PARTS),
            "## Lists of words",
            table(("word", "one of"), _words()),
        )
    )


def shapes() -> tuple[type[BaseModel], ...]:
    """Every fact there is, and the parts of facts."""
    return (*get_args(facts.Fact), *PARTS)


def rows(kind: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    """The fields of a fact, with their meaning."""
    types, docs = field_types(kind), field_docs(kind)
    return [
        (
            code(name),
            type_words(types[name]),
            default_text(field),
            field.description or docs.get(name) or COMMON.get(name, ""),
        )
        for name, field in kind.model_fields.items()
        if name in types and (name not in SAME or kind in PARTS) and not field.exclude
    ]


def _section(heading: str, kind: type[BaseModel]) -> str:
    found = rows(kind)
    fields = "\n\n" + table(("field", "type", "default", "meaning"), found) if found else ""
    return f"### {heading}\n\n{class_doc(kind)}{fields}"


def type_words(annotation: str) -> str:
    """`tuple[Sha, ...]` as a reader of JSON would say it."""
    if found := re.fullmatch(r"(.*) \| None", annotation):
        return f"{type_words(found[1])} or null"
    if found := re.fullmatch(r"tuple\[(.*), \.\.\.\]", annotation):
        return f"list of {type_words(found[1])}"
    if found := re.fullmatch(r"(?:dict|Mapping)\[\w+, (.*)\]", annotation):
        return f"table of {type_words(found[1])}"
    if found := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return ", ".join(code(word.strip("'")) for word in found[1].split(", "))
    return _PLAIN.get(annotation, code(annotation))


def _words() -> Iterator[tuple[str, str]]:
    for name in WORDS:
        yield code(name), ", ".join(map(code, get_args(getattr(facts, name))))
