"""Candidates whose merged tree is red: which landed work they may contradict.

Such a candidate passed its own checks on its own base, so it contradicts something that landed since. The evidence for
the next worker names it. Names come from the plan and texts from workers, so they are evidence and nothing more.
"""

import re
from collections.abc import Iterator
from itertools import takewhile

from fleet.core.base.ids import SubtaskId
from fleet.core.state.facts import AttemptFailed, CheckRun, Failure
from fleet.core.state.failures import evidence
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt, SubtaskState

NAMED = 5  # subtasks or paths named, at most
_WORD = re.compile(r"[\w./-]+")


def send_back(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...], at: float) -> AttemptFailed:
    """The failure of an attempt whose change made a tree red, as a fact."""
    attempt, failure = state.subtasks[id_].attempts[-1], integration_failure(state, id_, failed)
    checks = (*attempt.checks, *failed)
    return AttemptFailed(at=at, subtask=id_, number=attempt.number, failure=failure, checks=checks)


def integration_failure(state: RunState, id_: SubtaskId, failed: tuple[CheckRun, ...]) -> Failure:
    """Why a candidate with a red merged tree is sent back."""
    attempt = state.subtasks[id_].attempts[-1]
    since = list(landed_since(state, attempt))
    near = [other for other in since if _is_near(other, attempt, failed)]
    names = ", ".join(check.criterion for check in failed)
    if not since:
        summary = f"passes its own checks, but fails: {names}"
        return Failure(kind="integration", summary=summary, evidence=evidence(failed))
    summary = f"merged onto what landed meanwhile, it fails: {names}"
    what = "touching what fails" if near else "none of which touches what fails by name"
    intents = "\n".join(intent(state, other.id) for other in (near or since)[-NAMED:])
    return Failure(
        kind="integration",
        summary=f"{summary}; it conflicts with {', '.join(other.id for other in near[-NAMED:])}" if near else summary,
        evidence=f"{evidence(failed)}\n\nIts own checks passed on its own base. Landed since, {what}:\n{intents}",
    )


def landed_since(state: RunState, attempt: Attempt) -> Iterator[SubtaskState]:
    """The subtasks whose commits landed after an attempt started, oldest first."""
    since = takewhile(lambda batch: batch.at > attempt.started_at, reversed(state.landing.tested))
    landed = [state.subtasks[id_] for batch in since for id_ in reversed(batch.landed)]
    return (subtask for subtask in reversed(landed) if subtask.landed is not None)


def intent(state: RunState, id_: SubtaskId) -> str:
    """A landed subtask in a line: its title, report and paths."""
    spec, last = state.spec(id_), state.subtasks[id_].last
    summary = last.report.summary if last is not None and last.report is not None else ""
    paths = ", ".join(last.paths[:NAMED]) if last is not None else ""
    return f"- {id_}: {spec.title}. {summary}".rstrip() + (f" (changed {paths})" if paths else "")


def _is_near(other: SubtaskState, attempt: Attempt, failed: tuple[CheckRun, ...]) -> bool:
    """Whether a subtask changed a file that the failing checks name or that the attempt changed as well."""
    words = {word.strip(".") for check in failed for word in _WORD.findall(f"{check.command}\n{check.output}")}
    paths = other.attempts[-1].paths
    return any(path in attempt.paths or not words.isdisjoint(_names(path)) for path in paths)


def _names(path: str) -> tuple[str, ...]:
    """How a test's output may name a file: by its path, its name or its module."""
    stem = path.rsplit(".", 1)[0]
    return (path, path.rsplit("/", 1)[-1], stem, stem.replace("/", "."), f"./{path}", f"/repo/{path}")
