"""The linter: grades a plan before any money is spent on it. Pure, and based only on the plan.

Errors are checks that prove nothing or can't run. They go back to the planner once. If it submits the same plan again,
the plan is accepted, because a valid plan is its author's responsibility. Warnings are for the reviewer.
"""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.base.paths import matches
from fleet.core.plans.parameters import PLACEHOLDER
from fleet.core.plans.plan import PLANNER, WORKER_SUCCEEDED, Criterion, Plan, Subtask, ancestors, needs_of
from fleet.core.plans.revision import Problem, Revision, described_subtasks

# ---- command lines ---------------------------------------------------------------------------------------------------
# Examines the words of a check's command: whether it can fail, whether it can pass, and its programs.
#
# Does not run commands, and skips lines that only a shell could parse.


ALWAYS_PASS = frozenset("true : echo printf pwd date whoami sleep".split())
TESTS_OF_THE_ROOT = (["-d", "."], ["-e", "."], ["-d", "./"], ["-d", "/"])
JOINS = frozenset({"&&", "||", ";", "|", "&", "|&"})
KEYWORDS = frozenset("if then else elif fi for while until do done case esac function select set trap eval".split())
BUILT_IN = frozenset(
    "! . : [ alias break cd command continue declare echo exec exit export false getopts hash kill local printf pwd "
    "read readonly return shift source test time times true type ulimit umask unset wait".split()
)
SHOWN = 100  # characters of a command in a message

Runs = Callable[[str], bool]
"""Whether a program of this name exists where checks run."""
Part = tuple[str, list[str]]
"""Separator before a simple command, and its words."""


def check_problem(criterion: Criterion, runs: Runs | None = None) -> str | None:
    """Return why a check proves nothing or can't run, or None."""
    parts = _parts(criterion.run or "")
    if not parts or criterion.run is None:
        return None
    shown = f"`{criterion.run.strip()[:SHOWN]}`"
    if criterion.fails_before and always_passes(criterion.run):
        return f"{shown} always passes. Use a command that fails before the work and passes after it"
    if len(parts) == 1 and _never_passes(parts[0][1]):
        return f"{shown} can never pass"
    missing = [words[0] for _, words in parts if runs is not None and not _exists(words[0], runs)]
    return f"program {missing[0]!r} is not available to checks" if missing else None


def always_passes(line: str) -> bool:
    """Whether a command passes regardless of the work."""
    passes = False
    for join, words in _parts(line):
        part_passes = _part_always_passes(words)
        if join == "&&":
            passes = passes and part_passes
        elif join == "||":
            passes = passes or part_passes
        else:
            passes = part_passes
    return passes


def _parts(line: str) -> list[Part]:
    """Return the simple commands of a line. Empty if only a shell could parse it."""
    if "<<" in line or "`" in line:
        return []
    lexer = shlex.shlex(line.strip().replace("\n", " ; "), posix=True, punctuation_chars=";|&()<>{}")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    parts: list[Part] = [("", [])]
    after_redirection = False
    for token in tokens:
        if after_redirection:
            after_redirection = False
        elif token in JOINS:
            parts.append((token, []))
        elif token and set(token) <= set("<>&"):
            after_redirection = True
        elif parts[-1][1] or not re.fullmatch(r"\w+=.*", token, re.DOTALL):  # skips variables set for the command
            parts[-1][1].append(token)
    parts = [(join, words) for join, words in parts if words]
    return parts if all(_is_simple(words) for _, words in parts) else []


def _is_simple(words: list[str]) -> bool:
    is_program = re.fullmatch(r"[\w.:/+\[-]+", words[0]) is not None and words[0] not in KEYWORDS
    return is_program and not any(word and set(word) <= set("(){}") for word in words)


def _part_always_passes(words: list[str]) -> bool:
    program, rest = words[0], [word for word in words[1:] if word != "]"]
    if program in {"test", "["}:
        return rest in TESTS_OF_THE_ROOT
    if program == "exit":
        return rest in ([], ["0"])
    return program in ALWAYS_PASS or (program == "ls" and rest in ([], ["."]))


def _never_passes(words: list[str]) -> bool:
    return words[0] == "false" or (words[0] == "exit" and words[1:] not in ([], ["0"]))


def _exists(program: str, runs: Runs) -> bool:
    return "/" in program or program in BUILT_IN or runs(program)


# ---- lint ------------------------------------------------------------------------------------------------------------


CONTENDED = 4  # subtasks that change one file
NAMED = 6  # ids or paths named in a warning
COARSE_LINES, COARSE_MINUTES, COARSE_PATHS, COARSE_CHECKS, COARSE_GOAL = 400, 90, 15, 10, 6_000
FINE_LINES = 2
COMPARED = 40_000  # pairs of patterns. A plan with more has contended files in any case
EVERYTHING = frozenset({"*", "**", "**/*", ".", "./"})

_REFERS_OUTSIDE = re.compile(
    r"\bas (?:discussed|above|agreed|before)\b|\bsee (?:above|the other)\b"
    r"|\bthe (?:previous|other) (?:subtask|task|step)\b",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?<![\w/.:-])(?:[\w.-]+/)+[\w-]+\.[A-Za-z]{1,5}\b")


@dataclass(frozen=True, slots=True)
class Grade:
    """The linter's result for a plan."""

    errors: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Return errors and warnings for a human, who may run the plan in any case."""
        return (*map(str, self.errors), *self.warnings)


def grade(
    plan: Plan,
    *,
    about: Mapping[SubtaskId, str],
    open_: Collection[SubtaskId],
    runs: Runs | None = None,
    steps: Collection[str] = (),
) -> Grade:
    """The grade of the new subtasks of a plan: `about` maps their ids to their places in the document.

    `steps` are the worker kinds that run programs: no check can show their effects outside of the repository.
    """
    new = [subtask for subtask in plan.subtasks if subtask.id in about]
    relevant = [subtask for subtask in plan.subtasks if subtask.id in about or subtask.id in open_]
    errors = tuple(
        Problem(f"{about[subtask.id]}.acceptance[{index}].run", problem)
        for subtask in new
        for index, criterion in enumerate(subtask.acceptance)
        if (problem := check_problem(criterion, runs))
    )
    warnings = (*_subtask_warnings(new, steps), *_contention(relevant, about), *_overlaps(relevant, about))
    return Grade(errors, warnings)


def grade_revision(
    revision: Revision,
    after: Plan,
    open_: Collection[SubtaskId],
    runs: Runs | None = None,
    steps: Collection[str] = (),
) -> Grade:
    """The grade of the subtasks that a revision describes. The subtasks that it splits or drops no longer count."""
    about = {described.id: place for place, described in described_subtasks(revision)}
    closed = {split.id for split in revision.split} | {drop.id for drop in revision.drop}
    return grade(after, about=about, open_=frozenset(open_) - closed, runs=runs, steps=steps)


def grade_plan(
    plan: Plan, runs: Runs | None = None, steps: Collection[str] = (), *, without: Collection[SubtaskId] = ()
) -> Grade:
    """Return the grade of an author's plan, without some subtasks, such as split ones."""
    places = {subtask.id: f"subtasks[{index}]" for index, subtask in enumerate(plan.subtasks)}
    about = {id_: place for id_, place in places.items() if id_ not in without}
    return grade(plan, about=about, open_=(), runs=runs, steps=steps)


# ---- single subtasks ------------------------------------------------------------------------------------------------


def _subtask_warnings(new: list[Subtask], steps: Collection[str]) -> Iterator[str]:
    """Warnings that each concern single subtasks, grouped by the rule."""
    work = [subtask for subtask in new if subtask.worker != PLANNER]
    rules: tuple[tuple[str, Callable[[Subtask], object]], ...] = (
        (
            "only guards. Add a check that fails before the work is done",
            lambda subtask: subtask.worker not in steps and _has_only_guards(subtask),
        ),
        ("a guard that always passes", _has_idle_guard),
        ("too large for one worker. Split it", _is_coarse),
        ("an undeclared placeholder. Declare it in [parameters]", _has_placeholder),
        (
            "the goal refers to text that its worker can't see",
            lambda subtask: _REFERS_OUTSIDE.search(subtask.goal),
        ),
    )
    for warning, applies in rules:
        if ids := [subtask.id for subtask in work if applies(subtask)]:
            yield f"{_names(ids)}: {warning}"
    if len(work) > 1 and (fine := [subtask.id for subtask in work if _is_fine(subtask)]):
        yield f"{_names(fine)}: too small. Merge it with a related subtask"
    for subtask in work:
        if missing := _unlisted_paths(subtask):
            yield f"{subtask.id}: the goal names {_names(missing)}, which `touches` and `context` don't list"


def _has_only_guards(subtask: Subtask) -> bool:
    checks = [c for c in subtask.acceptance if c.criterion != WORKER_SUCCEEDED and c.review is None]
    return bool(checks) and not any(criterion.fails_before for criterion in checks)


def _has_idle_guard(subtask: Subtask) -> bool:
    guards = (criterion.run for criterion in subtask.acceptance if not criterion.fails_before and criterion.run)
    return any(always_passes(run) for run in guards)


def _has_placeholder(subtask: Subtask) -> bool:
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


def _unlisted_paths(subtask: Subtask) -> list[str]:
    """Paths that the goal names and the subtask does not list. A subtask that lists none finds its files itself."""
    listed = (*subtask.touches, *subtask.context)
    in_goal = dict.fromkeys(_PATH.findall(subtask.goal))
    return [path for path in in_goal if listed and not matches(path, listed)]


# ---- subtasks beside each other -------------------------------------------------------------------------------------


def _contention(subtasks: list[Subtask], about: Collection[SubtaskId]) -> Iterator[str]:
    for path, ids in _ids_by_path(subtasks).items():
        if len(ids) >= CONTENDED and any(id_ in about for id_ in ids):
            advice = "assign it to one subtask that the others depend on"
            yield f"{len(ids)} subtasks change {path} ({_names(ids)}); {advice}"


def _ids_by_path(subtasks: Iterable[Subtask]) -> dict[str, list[SubtaskId]]:
    by_path: dict[str, list[SubtaskId]] = {}
    for subtask in subtasks:
        for path in dict.fromkeys(subtask.touches):
            by_path.setdefault(path, []).append(subtask.id)
    return by_path


def _overlaps(subtasks: list[Subtask], about: Collection[SubtaskId]) -> Iterator[str]:
    """Pairs of subtasks that may run at the same time and change the same file."""
    by_path = _ids_by_path(subtasks)
    lands_before = ancestors(needs_of(subtasks))
    pairs: dict[tuple[SubtaskId, SubtaskId], str] = {}
    for path, other in _meeting_patterns({path: ids for path, ids in by_path.items() if len(ids) < CONTENDED}):
        for first in by_path[path]:
            for second in by_path[other]:
                ordered = first == second or lands_before(second, first) or lands_before(first, second)
                if not ordered and (first in about or second in about):
                    pairs.setdefault((first, second) if first < second else (second, first), path)
    for (first, second), path in list(pairs.items())[: 2 * NAMED]:
        yield f"{first} and {second} may run at the same time and both change {path}. Order them, or assign it to one"


def _meeting_patterns(by_path: Mapping[str, list[SubtaskId]]) -> Iterator[tuple[str, str]]:
    """Return pairs of patterns that can match the same file, because one equals or matches the other."""
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


def _names(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:NAMED])
    return f"{shown} and {len(names) - NAMED} more" if len(names) > NAMED else shown
