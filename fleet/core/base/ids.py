"""Names of things: runs, subtasks, attempts, commits, and the refs that keep commits alive.

Knows nothing of where a name came from. A name that a model chose is checked here before it is used anywhere.
"""

import re

RunId = str
SubtaskId = str
QuestionId = str
Sha = str

_SLUG = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_UNSAFE = re.compile(r"\.\.|\.lock$")


def is_slug(text: str) -> bool:
    """Whether `text` may name a subtask: safe as a ref, a file name and an argument."""
    return _SLUG.fullmatch(text) is not None and _UNSAFE.search(text) is None


def slug(text: str, *, limit: int = 24) -> str:
    """The readable core of a title, for run names: `Add a text kit!` becomes `add-a-text-kit`."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    short = ""
    for word in words:
        longer = f"{short}-{word}" if short else word
        if len(longer) > limit:
            break
        short = longer
    return short or "run"


def run_refs(run: str) -> str:
    """The folder of a run's refs in the store."""
    return f"refs/fleet/{run}"


def base_ref(run: str) -> str:
    return f"{run_refs(run)}/base"


def tip_ref(run: str) -> str:
    """The integration branch of a run, in the store."""
    return f"{run_refs(run)}/tip"


def attempt_ref(run: str, subtask: str, number: int) -> str:
    """What keeps the commit of a finished attempt alive until it is explicitly discarded."""
    return f"{run_refs(run)}/attempts/{subtask}/{number}"


def kept_ref(run: RunId, subtask: SubtaskId, number: int) -> str:
    """What an attempt left behind that failed before it was done: never taken for finished work."""
    return f"{run_refs(run)}/kept/{subtask}/{number}"


def aside_ref(run: RunId, commit: Sha) -> str:
    """What stood on the integration branch and was not put there by the run, as far as its journal knows."""
    return f"{run_refs(run)}/aside/{commit}"


def result_branch(run: str) -> str:
    """The one branch that appears in the user's repository."""
    return f"fleet/{run}"
