"""A simulated model that follows its prompts and makes mistakes if a prompt lacks a rule.

It plans each case with its valid plan, and writes the known solution. For each rule below, it makes the mistake that
the rule prevents: rarely if the prompt has the rule, and usually without it. This shows, without an API key, whether
the evaluation detects a worse prompt. The results do not apply to real models.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, Literal

from evaluation.cases import Case, KnownSubtask

Json = dict[str, Any]
Rule = Literal["evidence", "touches", "owners", "checks"]
RULES: Mapping[Rule, tuple[str, str]] = {
    "evidence": ("planner.md", "**Checked by evidence.**"),
    "touches": ("planner.md", "**Minimal `touches`.**"),
    "owners": ("planner.md", "**One owner for every contract and every contended file.**"),
    "checks": ("coder.md", "**Run the acceptance commands** again"),
}
"""Text of each rule in a prompt. Without it, the mistake is: a check that proves nothing; unbounded touches; files that
two subtasks change at the same time; a report without work."""
SLIPS = {True: 0.06, False: 0.85}
"""Rates of mistakes with the rule and without it."""
PROVES_NOTHING = "test -f README.md"
THINKS_S = 0.02


def script_of(case: Case, prompts: Mapping[str, str], seed: int) -> Json:
    """The script of the simulated model for one run."""
    slips = {rule: _slips(case, rule, prompts, seed) for rule in RULES}
    start = {
        "when": {"start": True},
        "revision": {"assessment": "The parts.", "add": [_planned(case, each, slips) for each in case.subtasks]},
    }
    return {
        "label": f"evaluation of {case.name}, {seed}",
        "seed": seed,
        "pace": {"think_s": THINKS_S},
        "planner": {"steps": [start, *(_sharpened(each) for each in case.subtasks)]},
        "workers": {each.id: {"attempts": _attempts(case, each, slips)} for each in case.subtasks},
    }


def _slips(case: Case, rule: Rule, prompts: Mapping[str, str], seed: int) -> frozenset[str]:
    """The subtasks in which it makes the mistake. The same for the same seed, whatever else the prompts say."""
    file, words = RULES[rule]
    chance = Random(f"{case.name}/{seed}/{rule}")  # noqa: S311 - not a secret
    share = SLIPS[words in prompts.get(file, "")]
    return frozenset(each.id for each in case.subtasks if chance.random() < share)


def _planned(case: Case, subtask: KnownSubtask, slips: Mapping[Rule, frozenset[str]]) -> Json:
    touches = list(subtask.touches)
    if subtask.id in slips["owners"]:
        touches += [path for other in case.subtasks for path in other.touches if path not in touches][:2]
    if subtask.id in slips["touches"]:
        touches = ["**"]
    run = PROVES_NOTHING if subtask.id in slips["evidence"] else subtask.run
    planned = {"id": subtask.id, "title": subtask.title, "goal": subtask.goal, "touches": touches}
    criterion = {"criterion": subtask.title, "run": run}
    return {**planned, "acceptance": [criterion], "depends_on": list(subtask.depends_on)}


def _sharpened(subtask: KnownSubtask) -> Json:
    """Return the revision that replaces a check that proved nothing."""
    criterion = {"criterion": subtask.title, "run": subtask.run}
    return {
        "when": {"failed": subtask.id, "kind": "vacuous"},
        "revision": {
            "assessment": "The check passed before any work.",
            "revise": [{"id": subtask.id, "acceptance": [criterion]}],
            "retry": [{"id": subtask.id, "guidance": "The check is a real one now."}],
        },
    }


def _attempts(case: Case, subtask: KnownSubtask, slips: Mapping[Rule, frozenset[str]]) -> list[Json]:
    files = {path: case.solution[path] for path in subtask.touches}
    solve = {"do": "solve", "turns": 1, "files": files}
    careless = {"do": "until", "guided": "attempt failed", "meanwhile": {"do": "claim"}, "then": solve}
    return [careless if subtask.id in slips["checks"] else solve]
