"""Whether a plan is valid as a whole. Every problem is reported at once, each with its path in the document."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from fleet.core.base.ids import SubtaskId, did_you_mean, is_slug
from fleet.core.base.paths import path_problem
from fleet.core.plans.limits import Machines
from fleet.core.plans.plan import PLANNER, WORKER_SUCCEEDED, Criterion, Plan, Subtask, find_cycle, needs_of

LONGEST_TITLE = 200
LONGEST_GOAL = 50_000
LONGEST_REVIEW = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a document, and its place."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Known:
    """What a configuration offers to a plan. What is None is unknown."""

    max_subtasks: int | None = None
    """The most subtasks that one revision adds; None: no limit."""
    max_areas: int = 16
    workers: frozenset[str] | None = None
    checks: frozenset[str] | None = None
    machines: Machines | None = None

    def beside(self, plan: Plan) -> "Known":
        """Also with the workers and checks of a running plan, which was accepted under its own configuration."""
        workers = {subtask.worker for subtask in plan.subtasks}
        named = {
            check.criterion
            for subtask in plan.subtasks
            for check in subtask.acceptance
            if check.run is None and check.review is None
        }
        return replace(
            self,
            workers=self.workers | workers if self.workers is not None else None,
            checks=self.checks | named if self.checks is not None else None,
        )


def plan_problems(
    plan: Plan,
    known: Known,
    *,
    also_ids: Collection[str] = (),
    places: Sequence[str] | None = None,
    since: Plan | None = None,
) -> tuple[Problem, ...]:
    """Every problem of `plan`.

    `also_ids` are ids of subtasks that could not be read; `places` holds the place of each subtask of the plan in its
    author's document. `since` is the valid plan that this one was made of: what is still the very same is not looked
    at again.
    """
    if not plan.subtasks and not also_ids:
        return (Problem("subtasks", "is empty; a plan needs at least one subtask"),)
    problems = list(_count_problems(plan, known))
    ids = frozenset(plan.ids) | frozenset(also_ids)
    places = places or [f"subtasks[{index}]" for index in range(len(plan.subtasks))]
    before = since.subtasks if since is not None else ()
    for place, subtask, old in zip_longest(places, plan.subtasks, before):
        if subtask is not old:
            problems += subtask_problems(subtask, ids, known, at=place)
    if since is None:
        problems += _results_problems(plan, places)
    if _may_have_cycle(plan, before) and (cycle := find_cycle(needs_of(plan.subtasks))):
        problems.append(Problem("subtasks", f"depend on each other in a cycle: {' → '.join(cycle)}"))
    return tuple(problems)


def _results_problems(plan: Plan, places: Sequence[str]) -> Iterator[Problem]:
    """One command has one answer on a tree, so it can't leave its results in two places."""
    found = dict[str, str]()
    for place, subtask in zip(places, plan.subtasks, strict=False):
        for index, criterion in enumerate(subtask.acceptance):
            command = criterion.run or criterion.criterion
            if criterion.tests and found.setdefault(command, criterion.tests) != criterion.tests:
                why = f"is not where {command!r} leaves its results elsewhere in the plan: {found[command]}"
                yield Problem(f"{place}.acceptance[{index}].tests", why)


def _may_have_cycle(plan: Plan, before: Sequence[Subtask]) -> bool:
    """Whether a plan may have a cycle that was not there before: one goes through a subtask with other dependencies."""
    if any(
        now is not old and now.depends_on != old.depends_on for now, old in zip(plan.subtasks, before, strict=False)
    ):
        return True
    new = needs_of(plan.subtasks[len(before) :])  # nothing older depends on these, unless it has the same id
    is_new = all(subtask.id not in new for subtask in before)
    return not is_new or bool(find_cycle({id_: new.keys() & set(needs) for id_, needs in new.items()}))


def _count_problems(plan: Plan, known: Known) -> Iterator[Problem]:
    areas = sum(subtask.worker == PLANNER for subtask in plan.subtasks)
    if areas > known.max_areas:
        yield Problem(
            "subtasks", f"there are {areas} areas (worker {PLANNER!r}); at most {known.max_areas} (planner.max_areas)"
        )
    for id_, count in Counter(plan.ids).items():
        if count > 1:
            yield Problem("subtasks", f"{count} subtasks are called {id_!r}; every id must be unique")


def subtask_problems(subtask: Subtask, ids: Collection[SubtaskId], known: Known, *, at: str) -> Iterator[Problem]:
    yield from _own_problems(subtask, at)
    yield from _text_problems(subtask, at)
    for need_index, need in enumerate(subtask.depends_on):
        if need == subtask.id:
            yield Problem(f"{at}.depends_on[{need_index}]", f"{need!r} depends on itself")
        elif need not in ids:
            yield Problem(f"{at}.depends_on[{need_index}]", f"no subtask is called {need!r}{did_you_mean(need, ids)}")
    for name, paths in (("touches", subtask.touches), ("context", subtask.context)):
        for path_index, path in enumerate(paths):
            if problem := path_problem(path):
                yield Problem(f"{at}.{name}[{path_index}]", problem)
    if not subtask.acceptance:
        yield Problem(
            f"{at}.acceptance", f"{subtask.id!r} has no acceptance criterion, so nothing could show that it is done"
        )
    for index, criterion in enumerate(subtask.acceptance):
        yield from _criterion_problems(criterion, known, at=f"{at}.acceptance[{index}]")
    yield from _review_problems(subtask, at)
    if known.workers is not None and subtask.worker not in known.workers | {PLANNER}:
        hint = did_you_mean(subtask.worker, known.workers) or f"; there are {', '.join(sorted(known.workers))}"
        yield Problem(f"{at}.worker", f"no worker kind is called {subtask.worker!r}{hint}")
    if known.machines is not None and (problem := known.machines.problem(subtask)):
        yield Problem(f"{at}.labels" if subtask.labels else f"{at}.worker", problem)


def _own_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    if not is_slug(subtask.id):
        yield Problem(f"{at}.id", f"{subtask.id!r}: 1 to 64 letters, digits, dots, dashes or underscores")
    if subtask.id == PLANNER:
        yield Problem(f"{at}.id", f"{PLANNER!r} is the planner's name in the logs; choose another")
    if subtask.not_before is not None and subtask.not_before.tzinfo is None:
        yield Problem(f"{at}.not_before", "has no time zone; write 2026-01-31T02:00:00-05:00, or end it with Z")


def _text_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    for name, text, limit in (("title", subtask.title, LONGEST_TITLE), ("goal", subtask.goal, LONGEST_GOAL)):
        if not text.strip():
            yield Problem(f"{at}.{name}", f"{subtask.id!r} has an empty {name}")
        elif len(text) > limit:
            yield Problem(f"{at}.{name}", f"has {len(text)} characters; at most {limit}")


def _review_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    """What is wrong with the reviews of a subtask. They are never all that it is judged by."""
    seen = set[str]()
    for index, criterion in enumerate(subtask.acceptance):
        place = f"{at}.acceptance[{index}]"
        if criterion.review is None:
            for name in ("model", "votes", "threshold"):
                if getattr(criterion, name) is not None:
                    yield Problem(f"{place}.{name}", "belongs to a review; say in `review` what to look for")
            continue
        if not criterion.review.strip() or len(criterion.review) > LONGEST_REVIEW:
            yield Problem(f"{place}.review", f"say what to look for, in at most {LONGEST_REVIEW} characters")
        if not criterion.criterion.strip():
            yield Problem(f"{place}.criterion", "is empty; say what is true when the review finds nothing")
        elif criterion.criterion in seen:
            yield Problem(f"{place}.criterion", f"is there twice among the reviews of {subtask.id!r}")
        seen.add(criterion.criterion)
        if criterion.run is not None or criterion.tests is not None:
            yield Problem(f"{place}.review", "is beside `run` or `tests`; make the command a criterion of its own")
        if criterion.threshold is not None and criterion.threshold > (criterion.votes or criterion.threshold):
            yield Problem(f"{place}.threshold", f"is {criterion.threshold}, and there are {criterion.votes} votes")
        if subtask.worker == PLANNER:
            yield Problem(f"{place}.review", "is about an area, which has no change of its own: review its subtasks")
    if seen and all(each.review is not None for each in subtask.acceptance):
        why = f"{subtask.id!r} has nothing but reviews; a command has to decide, too: a review alone proves nothing"
        yield Problem(f"{at}.acceptance", why)


def _criterion_problems(criterion: Criterion, known: Known, *, at: str) -> Iterator[Problem]:
    if criterion.review is not None:
        return  # see `_review_problems`
    if criterion.run is not None:
        if not criterion.run.strip() or "\0" in criterion.run:
            yield Problem(f"{at}.run", "is not a command")
    elif not criterion.criterion.strip():
        yield Problem(at, "has neither a command (`run`) nor the name of a check")
    elif known.checks is not None and criterion.criterion not in known.checks | {WORKER_SUCCEEDED}:
        yield Problem(f"{at}.run", f"is missing, and [checks.named] has no {criterion.criterion!r}")
