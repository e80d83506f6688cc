"""Grades a plan before a dollar is spent on it: pure, and only by what the plan itself says.

Errors are what can't be meant: a check that proves nothing, or can't run. They go back to the planner once; if it
insists they stand, because a plan that holds together is its author's to answer for. Warnings are for whoever reviews.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleet.core.command_lines import Runs, always_passes, check_problem
from fleet.core.ids import SubtaskId
from fleet.core.parameters import PLACEHOLDER
from fleet.core.paths import matches
from fleet.core.plan import PLANNER, WORKER_SUCCEEDED, Plan, Subtask
from fleet.core.revision import Revision, placed
from fleet.core.validate import Problem

HOT = 4  # subtasks that change one file
NAMED = 6  # ids or paths named in a warning
COARSE_LINES, COARSE_MINUTES, COARSE_PATHS, COARSE_CHECKS, COARSE_GOAL = 400, 90, 15, 10, 6_000
FINE_LINES = 2
COMPARED = 40_000  # pairs of patterns; a plan with more is hot anyway
EVERYTHING = frozenset({"*", "**", "**/*", ".", "./"})

_OUTSIDE = re.compile(
    r"\bas (?:discussed|above|agreed|before)\b|\bsee (?:above|the other)\b"
    r"|\bthe (?:previous|other) (?:subtask|task|step)\b",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)+[\w-]+\.[A-Za-z]{1,5}\b")


@dataclass(frozen=True, slots=True)
class Grade:
    """What a plan is like."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """For a person, who may run the plan all the same."""
        return (*map(str, self.errors), *self.warnings)


def grade(
    plan: Plan,
    *,
    about: Mapping[SubtaskId, str],
    open_: Collection[SubtaskId],
    runs: Runs | None = None,
    steps: Collection[str] = (),
) -> Grade:
    """The grade of what is new in a plan: `about` names those subtasks, each with where it stands in the document.

    `steps` are the workers that are programs: what they do outside of the repository no check on it can show.
    """
    new = [subtask for subtask in plan.subtasks if subtask.id in about]
    weighed = [subtask for subtask in plan.subtasks if subtask.id in about or subtask.id in open_]
    errors = tuple(
        Problem(f"{about[subtask.id]}.acceptance[{index}].run", problem)
        for subtask in new
        for index, criterion in enumerate(subtask.acceptance)
        if (problem := check_problem(criterion, runs))
    )
    return Grade(errors, (*_each(new, steps), *_hot(weighed, about), *_overlaps(weighed, about)))


def grade_revision(
    revision: Revision,
    after: Plan,
    open_: Collection[SubtaskId],
    runs: Runs | None = None,
    steps: Collection[str] = (),
) -> Grade:
    """The grade of what a revision describes anew. What it splits or drops is in nobody's way any more."""
    about = {made.id: place for place, made in placed(revision)}
    gone = {split.id for split in revision.split} | {drop.id for drop in revision.drop}
    return grade(after, about=about, open_=[id_ for id_ in open_ if id_ not in gone], runs=runs, steps=steps)


def grade_plan(
    plan: Plan, runs: Runs | None = None, steps: Collection[str] = (), *, gone: Collection[SubtaskId] = ()
) -> Grade:
    """The grade of a whole plan, as its author wrote it, without what is `gone`: split or dropped."""
    about = {subtask.id: f"subtasks[{index}]" for index, subtask in enumerate(plan.subtasks) if subtask.id not in gone}
    return grade(plan, about=about, open_=(), runs=runs, steps=steps)


# ---- subtasks -------------------------------------------------------------------------------------------------------


def _each(new: list[Subtask], steps: Collection[str]) -> Iterator[str]:
    """What can be said of one subtask alone, gathered by what it is."""
    work = [subtask for subtask in new if subtask.worker != PLANNER]
    rules: tuple[tuple[str, Callable[[Subtask], object]], ...] = (
        (
            "nothing but guards: no check shows that the work was done",
            lambda subtask: subtask.worker not in steps and _only_guards(subtask),
        ),
        ("a guard that always passes", _idle_guard),
        ("too coarse for one worker; split it", _is_coarse),
        ("a placeholder that nothing fills in; declare it in [parameters]", _is_unfilled),
        ("the goal speaks of what its worker can't see", lambda subtask: _OUTSIDE.search(subtask.goal)),
    )
    for said, rule in rules:
        if found := [subtask.id for subtask in work if rule(subtask)]:
            yield f"{_named(found)}: {said}"
    if len(work) > 1 and (fine := [subtask.id for subtask in work if _is_fine(subtask)]):
        yield f"{_named(fine)}: too fine; put it together with its neighbour"
    for subtask in work:
        if missing := _unseen(subtask):
            yield f"{subtask.id}: the goal names {_named(missing)}, neither in `touches` nor in `context`"


def _only_guards(subtask: Subtask) -> bool:
    checks = [criterion for criterion in subtask.acceptance if criterion.criterion != WORKER_SUCCEEDED]
    return bool(checks) and not any(criterion.fails_before for criterion in checks)


def _idle_guard(subtask: Subtask) -> bool:
    guards = (criterion.run for criterion in subtask.acceptance if not criterion.fails_before and criterion.run)
    return any(always_passes(run) for run in guards)


def _is_unfilled(subtask: Subtask) -> bool:
    texts = (subtask.title, subtask.goal, *(criterion.run or "" for criterion in subtask.acceptance))
    return any(PLACEHOLDER.search(text) for text in texts)


def _is_coarse(subtask: Subtask) -> bool:
    estimate = subtask.estimate
    return (
        (estimate.lines or 0) > COARSE_LINES
        or (estimate.minutes or 0) > COARSE_MINUTES
        or len(subtask.touches) > COARSE_PATHS
        or len(subtask.acceptance) > COARSE_CHECKS
        or len(subtask.goal) > COARSE_GOAL
        or bool(EVERYTHING & set(subtask.touches))
    )


def _is_fine(subtask: Subtask) -> bool:
    return subtask.estimate.lines is not None and 0 < subtask.estimate.lines <= FINE_LINES


def _unseen(subtask: Subtask) -> list[str]:
    """Paths that the goal names and nobody gave it to read or to change. Without either, it looks for itself."""
    given = (*subtask.touches, *subtask.context)
    named = dict.fromkeys(_PATH.findall(subtask.goal))
    return [path for path in named if given and not matches(path, given)]


# ---- subtasks beside each other -------------------------------------------------------------------------------------


def _hot(subtasks: list[Subtask], about: Collection[SubtaskId]) -> Iterator[str]:
    for path, ids in _by_path(subtasks).items():
        if len(ids) >= HOT and any(id_ in about for id_ in ids):
            yield f"{path} is hot: {len(ids)} subtasks change it ({_named(ids)}); give it to one that the others need"


def _by_path(subtasks: Iterable[Subtask]) -> dict[str, list[SubtaskId]]:
    found: dict[str, list[SubtaskId]] = {}
    for subtask in subtasks:
        for path in dict.fromkeys(subtask.touches):
            found.setdefault(path, []).append(subtask.id)
    return found


def _overlaps(subtasks: list[Subtask], about: Collection[SubtaskId]) -> Iterator[str]:
    """Subtasks that may run at the same time and change the same file."""
    by_path = _by_path(subtasks)
    above = _ancestors(subtasks)
    pairs: dict[tuple[SubtaskId, SubtaskId], str] = {}
    for path, other in _same({path: ids for path, ids in by_path.items() if len(ids) < HOT}):
        for one in by_path[path]:
            for two in by_path[other]:
                ordered = one == two or two in above[one] or one in above[two]
                if not ordered and (one in about or two in about):
                    pairs.setdefault((one, two) if one < two else (two, one), path)
    for (one, two), path in list(pairs.items())[: 2 * NAMED]:
        yield f"{one} and {two} may run at the same time and both change {path}; order them, or give it to one"


def _same(by_path: Mapping[str, list[SubtaskId]]) -> Iterator[tuple[str, str]]:
    """Patterns that can name the same file: the same, or one that another names."""
    yield from ((path, path) for path, ids in by_path.items() if len(ids) > 1)
    wide = [path for path in by_path if "*" in path or "?" in path or path.endswith("/")]
    compared = 0
    for pattern in wide:
        for path in by_path:
            compared += 1
            if compared > COMPARED:
                return
            if path != pattern and matches(path, (pattern,)):
                yield path, pattern


def _ancestors(subtasks: Iterable[Subtask]) -> dict[SubtaskId, frozenset[SubtaskId]]:
    """All that must have landed before each. The plan has no circle: that was looked at before."""
    needs = {subtask.id: subtask.depends_on for subtask in subtasks}
    above: dict[SubtaskId, frozenset[SubtaskId]] = {}
    for start in needs:
        trail = [start]
        while trail:
            id_ = trail[-1]
            left = [need for need in needs.get(id_, ()) if need not in above]
            if left:
                trail += left[:1]
                continue
            above[id_] = frozenset(needs.get(id_, ())).union(*(above[need] for need in needs.get(id_, ())))
            trail.pop()
    return above


def _named(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown
