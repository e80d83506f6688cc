"""Two pieces of work that don't go together: which others the one that comes later stands against.

A candidate whose own checks passed on its own base and whose merged tree is red is at odds with something that landed
since; the worker who tries again is told with what. Names come from the plan and texts from workers: evidence, no more.
"""

import re
from collections.abc import Iterator

from fleet.core.facts import AttemptFailed, CheckRun, Failure
from fleet.core.failures import evidence
from fleet.core.ids import SubtaskId
from fleet.core.state import Attempt, RunState, SubtaskState

NAMED = 5  # others named, at most
_WORD = re.compile(r"[\w./-]+")


def sent_back(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...], at: float) -> AttemptFailed:
    """The end of an attempt that is guilty of a red tree."""
    mine = state.subtasks[id_].attempts[-1]
    checks = (*mine.checks, *failed)
    return AttemptFailed(at=at, subtask=id_, number=mine.number, failure=blamed(state, id_, failed), checks=checks)


def blamed(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...]) -> Failure:
    """Why a candidate is sent back whose merged tree is red."""
    mine = state.subtasks[id_].attempts[-1]
    since = list(landed_since(state, mine))
    near = [other for other in since if _touches(other, mine, failed)]
    summary = f"merged onto what landed meanwhile, it fails: {', '.join(check.criterion for check in failed)}"
    if not since:
        return Failure(kind="integration", summary=summary, evidence=evidence(failed))
    what = "that touches what fails" if near else "none of which touches what fails by name"
    intents = "\n".join(intent(state, other.id) for other in (near or since)[-NAMED:])
    return Failure(
        kind="integration",
        summary=f"{summary}; it stands against {', '.join(other.id for other in near[-NAMED:])}" if near else summary,
        evidence=f"{evidence(failed)}\n\nIts own checks passed on its own base. Landed since, {what}:\n{intents}",
    )


def landed_since(state: RunState, attempt: Attempt) -> Iterator[SubtaskState]:
    """What landed after an attempt was given its base, oldest first."""
    landed = [subtask for subtask in state.subtasks.values() if subtask.landed is not None and subtask.last is not None]
    landed.sort(key=lambda subtask: subtask.attempts[-1].ended_at or 0.0)
    return (subtask for subtask in landed if (subtask.attempts[-1].ended_at or 0.0) > attempt.started_at)


def intent(state: RunState, id_: SubtaskId) -> str:
    """What a piece of work was for, in a few lines."""
    spec, last = state.spec(id_), state.subtasks[id_].last
    said = last.report.summary if last is not None and last.report is not None else ""
    paths = ", ".join(last.paths[:NAMED]) if last is not None else ""
    return f"- {id_}: {spec.title}. {said}".rstrip() + (f" (changed {paths})" if paths else "")


def _touches(other: SubtaskState, mine: Attempt, failed: tuple[CheckRun, ...]) -> bool:
    """Whether it changed a file that the failing checks name, or one that this attempt changed as well."""
    words = {word.strip(".") for check in failed for word in _WORD.findall(f"{check.command}\n{check.output}")}
    paths = other.attempts[-1].paths
    return any(path in mine.paths or not words.isdisjoint(_names(path)) for path in paths)


def _names(path: str) -> tuple[str, ...]:
    """How a test's output speaks of a file: its path, its name, or the module it is."""
    stem = path.rsplit(".", 1)[0]
    return (path, path.rsplit("/", 1)[-1], stem, stem.replace("/", "."), f"./{path}", f"/repo/{path}")
