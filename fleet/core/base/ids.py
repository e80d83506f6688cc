"""Names of runs, subtasks, attempts and commits, and of the refs that keep commits alive.

A name that a model chose is checked with `is_slug` before it is used anywhere.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NewType

RunId = NewType("RunId", str)
SubtaskId = NewType("SubtaskId", str)
QuestionId = NewType("QuestionId", str)
Sha = NewType("Sha", str)

_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_UNSAFE = re.compile(r"\.\.|\.lock$")


def is_slug(text: str) -> bool:
    """Whether `text` may name a subtask: safe as a ref, a file name and an argument."""
    return _SLUG.fullmatch(text) is not None and _UNSAFE.search(text) is None


def slug(text: str, *, limit: int = 24) -> str:
    """The first words of a title, for run names: `Add a text kit!` becomes `add-a-text-kit`."""
    words = re.findall(r"[a-z0-9]+", text.lower())[:limit]
    while words and len("-".join(words)) > limit:
        words.pop()
    return "-".join(words) or "run"


def run_refs(run: RunId) -> str:
    """The folder of a run's refs in the store."""
    return f"refs/fleet/{run}"


def base_ref(run: RunId) -> str:
    return f"{run_refs(run)}/base"


def tip_ref(run: RunId) -> str:
    """The integration branch of a run, in the store."""
    return f"{run_refs(run)}/tip"


def attempt_ref(run: RunId, subtask: SubtaskId, number: int) -> str:
    """Keeps the commit of a finished attempt alive until it is explicitly discarded."""
    return f"{run_refs(run)}/attempts/{subtask}/{number}"


def kept_ref(run: RunId, subtask: SubtaskId, number: int) -> str:
    """Return the ref for the unfinished work of a failed attempt. It never counts as finished work."""
    return f"{run_refs(run)}/kept/{subtask}/{number}"


def taken_refs(run: RunId, result: Sha | None = None) -> str:
    """Return the prefix of the refs for copies of a result, or of all results without a name."""
    return f"{run_refs(run)}/taken/{result}/" if result else f"{run_refs(run)}/taken/"


def taken_ref(run: RunId, result: Sha, onto: Sha) -> str:
    """Keeps the copy of a result that passed on top of a commit of the user's."""
    return f"{taken_refs(run, result)}{onto}"


def aside_ref(run: RunId, commit: Sha) -> str:
    """Keeps a commit that was found on the integration branch although the journal does not record it."""
    return f"{run_refs(run)}/aside/{commit}"


def result_branch(run: RunId) -> str:
    """The only branch that a run creates in the user's repository."""
    return f"fleet/{run}"


# ---- nearest ---------------------------------------------------------------------------------------------------------
# Suggests the name that a wrong one is closest to, for messages.


def suggestion(wrong: str, right: Iterable[str]) -> str:
    """Return `did you mean 'x'?`, or an empty string if no name is similar."""
    matches = get_close_matches(wrong, list(right), n=1, cutoff=0.6)
    return f"did you mean {matches[0]!r}?" if matches else ""


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return the suggestion to append to a message, after a semicolon."""
    return f"; {near}" if (near := suggestion(wrong, right)) else ""
