"""Revisions: changes to a plan by a planner or a user, as pure operations.

A revision is applied completely or not at all. `revise_plan` returns the new plan or all problems. `revision_between`
converts a plan edited by a user to the equivalent revision.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import zip_longest

from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from fleet.core.base.ids import SubtaskId, did_you_mean, is_slug
from fleet.core.base.paths import matches, path_problem
from fleet.core.plans.limits import Machines
from fleet.core.plans.plan import (
    PLANNER,
    WORKER_SUCCEEDED,
    Criterion,
    Effort,
    Estimate,
    FailureAction,
    Label,
    Plan,
    Risk,
    Subtask,
    Written,
    find_cycle,
    needs_of,
)

# ---- validate --------------------------------------------------------------------------------------------------------
# Validates a plan. Reports all problems together, each with its path in the document.


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
class PlanContext:
    """Workers, checks and machines of a configuration. None: unknown."""

    max_subtasks: int | None = None
    """Maximum number of subtasks that one revision adds. None: no limit."""
    max_areas: int = 16
    workers: frozenset[str] | None = None
    checks: frozenset[str] | None = None
    machines: Machines | None = None

    def beside(self, plan: Plan) -> "PlanContext":
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
    known: PlanContext,
    *,
    also_ids: Collection[str] = (),
    places: Sequence[str] | None = None,
    since: Plan | None = None,
) -> tuple[Problem, ...]:
    """Return all problems of `plan`.

    `also_ids` are ids of subtasks that could not be read. `places` holds the location of each subtask in its author's
    document. `since` is the valid plan that this one is based on. Unchanged subtasks are not checked again.
    """
    if not plan.subtasks and not also_ids:
        return (Problem("subtasks", "is empty. A plan needs at least one subtask"),)
    problems = list(_count_problems(plan, known))
    ids = frozenset[str](plan.ids) | frozenset(also_ids)
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
                why = f"differs from the results file of {command!r} elsewhere in the plan: {found[command]}"
                yield Problem(f"{place}.acceptance[{index}].tests", why)


def _may_have_cycle(plan: Plan, before: Sequence[Subtask]) -> bool:
    """Whether a plan may have a cycle that was not there before: one goes through a subtask with other dependencies."""
    if any(
        now is not old and now.depends_on != old.depends_on for now, old in zip(plan.subtasks, before, strict=False)
    ):
        return True
    new = needs_of(plan.subtasks[len(before) :])  # older subtasks depend on these only if they have the same id
    is_new = all(subtask.id not in new for subtask in before)
    return not is_new or bool(find_cycle({id_: new.keys() & set(needs) for id_, needs in new.items()}))


def _count_problems(plan: Plan, known: PlanContext) -> Iterator[Problem]:
    areas = sum(subtask.worker == PLANNER for subtask in plan.subtasks)
    if areas > known.max_areas:
        yield Problem("subtasks", f"{areas} areas (worker {PLANNER!r}), but planner.max_areas is {known.max_areas}")
    for id_, count in Counter(plan.ids).items():
        if count > 1:
            yield Problem("subtasks", f"{count} subtasks have the id {id_!r}. Ids must be unique")


def subtask_problems(subtask: Subtask, ids: Collection[str], known: PlanContext, *, at: str) -> Iterator[Problem]:
    yield from _own_problems(subtask, at)
    yield from _text_problems(subtask, at)
    for need_index, need in enumerate(subtask.depends_on):
        if need == subtask.id:
            yield Problem(f"{at}.depends_on[{need_index}]", f"{need!r} depends on itself")
        elif need not in ids:
            yield Problem(f"{at}.depends_on[{need_index}]", f"unknown subtask {need!r}{did_you_mean(need, ids)}")
    for name, paths in (("touches", subtask.touches), ("context", subtask.context)):
        for path_index, path in enumerate(paths):
            if problem := path_problem(path):
                yield Problem(f"{at}.{name}[{path_index}]", problem)
    if not subtask.acceptance:
        yield Problem(
            f"{at}.acceptance", f"{subtask.id!r} has no acceptance criterion. Add a check that proves the work is done"
        )
    for index, criterion in enumerate(subtask.acceptance):
        yield from _criterion_problems(criterion, known, at=f"{at}.acceptance[{index}]")
    yield from _review_problems(subtask, at)
    if known.workers is not None and subtask.worker not in known.workers | {PLANNER}:
        hint = did_you_mean(subtask.worker, known.workers) or f"; known workers: {', '.join(sorted(known.workers))}"
        yield Problem(f"{at}.worker", f"unknown worker {subtask.worker!r}{hint}")
    if known.machines is not None and (problem := known.machines.problem(subtask)):
        yield Problem(f"{at}.labels" if subtask.labels else f"{at}.worker", problem)


def _own_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    if not is_slug(subtask.id):
        yield Problem(f"{at}.id", f"{subtask.id!r} is not 1 to 64 letters, digits, dots, dashes or underscores")
    if subtask.id == PLANNER:
        yield Problem(f"{at}.id", f"{PLANNER!r} is reserved for the planner. Choose another id")
    if subtask.not_before is not None and subtask.not_before.tzinfo is None:
        yield Problem(f"{at}.not_before", "is missing a time zone. Write 2026-01-31T02:00:00-05:00, or end it with Z")


def _text_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    for name, text, limit in (("title", subtask.title, LONGEST_TITLE), ("goal", subtask.goal, LONGEST_GOAL)):
        if not text.strip():
            yield Problem(f"{at}.{name}", f"{subtask.id!r} has an empty {name}")
        elif len(text) > limit:
            yield Problem(f"{at}.{name}", f"has {len(text)} characters, and the limit is {limit}")


def _review_problems(subtask: Subtask, at: str) -> Iterator[Problem]:
    """Return problems with the reviews of a subtask. Reviews can't be its only criteria."""
    seen = set[str]()
    for index, criterion in enumerate(subtask.acceptance):
        place = f"{at}.acceptance[{index}]"
        if criterion.review is None:
            for name in ("model", "votes", "threshold"):
                if getattr(criterion, name) is not None:
                    yield Problem(f"{place}.{name}", "is only allowed with `review`. Describe there what to look for")
            continue
        if not criterion.review.strip() or len(criterion.review) > LONGEST_REVIEW:
            yield Problem(f"{place}.review", f"must describe what to look for, in at most {LONGEST_REVIEW} characters")
        if not criterion.criterion.strip():
            yield Problem(f"{place}.criterion", "is empty. State what a review without findings proves")
        elif criterion.criterion in seen:
            yield Problem(f"{place}.criterion", f"appears twice among the reviews of {subtask.id!r}")
        seen.add(criterion.criterion)
        if criterion.run is not None or criterion.tests is not None:
            yield Problem(f"{place}.review", "can't be combined with `run` or `tests`. Add a separate criterion")
        if criterion.threshold is not None and criterion.threshold > (criterion.votes or criterion.threshold):
            yield Problem(f"{place}.threshold", f"is {criterion.threshold}, but there are only {criterion.votes} votes")
        if subtask.worker == PLANNER:
            yield Problem(f"{place}.review", "is not allowed for an area. Review its subtasks")
    if seen and all(each.review is not None for each in subtask.acceptance):
        why = f"{subtask.id!r} has only reviews. Add a criterion with a command, because a review is not a proof"
        yield Problem(f"{at}.acceptance", why)


def _criterion_problems(criterion: Criterion, known: PlanContext, *, at: str) -> Iterator[Problem]:
    if criterion.review is not None:
        return  # see `_review_problems`
    if criterion.run is not None:
        if not criterion.run.strip() or "\0" in criterion.run:
            yield Problem(f"{at}.run", "is not a command")
    elif not criterion.criterion.strip():
        yield Problem(at, "has neither a command (`run`) nor the name of a check")
    elif known.checks is not None and criterion.criterion not in known.checks | {WORKER_SUCCEEDED}:
        yield Problem(f"{at}.run", f"is missing, and [checks.named] does not define {criterion.criterion!r}")


# ---- revision --------------------------------------------------------------------------------------------------------


class SubtaskChange(Written):
    """The fields of a subtask that change; the others stay as they are."""

    id: SubtaskId
    title: str | None = None
    goal: str | None = None
    acceptance: tuple[Criterion, ...] | None = None
    depends_on: tuple[SubtaskId, ...] | None = None
    touches: tuple[str, ...] | None = None
    context: tuple[str, ...] | None = None
    worker: str | None = None
    model: str | None = None
    effort: SkipJsonSchema[Effort | None] = (
        None  # a grammar may have 24 optional fields; a planner's `retry` sets this one
    )
    parameters: dict[str, JsonValue] | None = None
    labels: SkipJsonSchema[tuple[Label, ...] | None] = None
    risk: Risk | None = None
    estimate: Estimate | None = None
    failure_action: FailureAction | None = None
    not_before: datetime | None = None

    def onto(self, subtask: Subtask) -> Subtask:
        fields = {name: getattr(self, name) for name in self.model_fields_set - {"id"}}
        return subtask.model_copy(update={name: value for name, value in fields.items() if value is not None})


class Split(Written):
    """One subtask becomes several smaller ones."""

    id: SubtaskId
    """Subtask to split."""
    why: str
    """Reason for the split."""
    into: tuple[Subtask, ...] = Field(min_length=1)
    """Subtasks that replace it."""


class Retry(Written):
    """The same subtask again: with guidance, another worker kind, another model or another effort."""

    id: SubtaskId
    """Subtask to retry."""
    guidance: str = ""
    """Instructions for the next attempt."""
    worker: str | None = None
    """Worker kind of the next attempt. Null: unchanged."""
    model: str | None = None
    """Model of the next attempt. Null: the worker's default."""
    effort: Effort | None = None
    """Reasoning effort of the model. Null: the model's default."""


class Drop(Written):
    """A subtask that is no longer wanted."""

    id: SubtaskId
    """Subtask to drop."""
    why: str
    """Reason for dropping it."""


class Ask(Written):
    """A question to a human."""

    about: SubtaskId | None = None
    """Subtask that the question concerns, if any."""
    question: str = Field(min_length=1)
    """Text of the question."""
    options: tuple[str, ...] = ()
    """Suggested answers."""


class Revision(Written):
    """The argument of `submit_revision`."""

    assessment: str = Field(description="Your current assessment, and why the plan changes.")
    add: tuple[Subtask, ...] = ()
    """New subtasks."""
    revise: tuple[SubtaskChange, ...] = ()
    """Subtasks to change, with their changed fields."""
    split: tuple[Split, ...] = ()
    """Subtasks to split into several."""
    retry: tuple[Retry, ...] = ()
    """Subtasks to retry, with guidance."""
    drop: tuple[Drop, ...] = ()
    """Subtasks to drop."""
    ask: tuple[Ask, ...] = ()
    """Questions to a human."""
    finished: bool = Field(default=False, description="True when the goal is reached and no subtask is open.")
    synthesis: str | None = Field(default=None, description="With finished: the outcome in a paragraph.")

    @property
    def changes_plan(self) -> bool:
        return bool(self.add or self.revise or self.split or self.retry or self.drop)


@dataclass(frozen=True, slots=True)
class SubtaskStatuses:
    """Status of subtasks for the checks of a revision. All ids belong to the revised plan."""

    open: frozenset[SubtaskId] = frozenset()
    """Neither merged, dropped nor split."""
    busy: frozenset[SubtaskId] = frozenset()
    """Running, verifying or landing: too late to change."""
    failed: frozenset[SubtaskId] = frozenset()
    """Waiting for the planner's decision or for an answer."""
    split_or_dropped: frozenset[SubtaskId] = frozenset()
    """No other subtask may newly depend on them."""
    depth: Mapping[SubtaskId, int] = field(default_factory=dict)
    """The number of splits that led to each subtask."""
    max_depth: int = 3
    mine: frozenset[SubtaskId] | None = None
    """Subtasks that the revising planner may change and depend on. None: all."""
    bounds: tuple[str, ...] = ()
    """The paths that all subtasks of the planner's area have to stay within."""
    may_delegate: bool = True
    """Whether the planner may create areas."""


Parts = Mapping[SubtaskId, tuple[SubtaskId, ...]]
"""The parts of each subtask that a revision splits."""


def revise_plan(
    plan: Plan,
    revision: Revision,
    statuses: SubtaskStatuses,
    known: PlanContext | None = None,
    *,
    is_valid: bool = False,
) -> Plan | tuple[Problem, ...]:
    """Return the plan after `revision`, or all its problems. A plan may remain empty.

    `is_valid` states that the plan is valid, so that unchanged subtasks are not checked again.
    """
    after, known = apply(plan, revision), known or PlanContext()
    since = plan if is_valid else None
    problems = [
        *_size_problems(revision, known),
        *_target_problems(plan, revision, statuses),
        *_finish_problems(revision, statuses),
        *_need_problems(after, revision, statuses),
        *_area_problems(plan, revision, statuses),
        *(plan_problems(after, known, places=_places(plan, revision), since=since) if after.subtasks else ()),
    ]
    return tuple(dict.fromkeys(problems)) or after


def _places(plan: Plan, revision: Revision) -> tuple[str, ...]:
    """The place of each subtask of the plan after `revision`, in the revision or in the plan before it."""
    revised = {change.id: f"revise[{index}]" for index, change in enumerate(revision.revise)}
    return (
        *(revised.get(id_, f"subtasks[{index}]") for index, id_ in enumerate(plan.ids)),
        *(f"split[{index}].into[{part}]" for index, s in enumerate(revision.split) for part in range(len(s.into))),
        *(f"add[{index}]" for index in range(len(revision.add))),
    )


def apply(plan: Plan, revision: Revision, places: Mapping[SubtaskId, int] | None = None) -> Plan:
    """The plan after `revision`, without a check: a revision in the journal was checked before it was recorded.

    `places` has the index of each subtask, where it is known: then a revision costs what it changes.
    """
    parts_of = {split.id: tuple(part.id for part in split.into) for split in revision.split}
    changes = {change.id: change for change in revision.revise}
    retries = {retry.id: retry for retry in revision.retry}
    if places is None or parts_of:
        places = {subtask.id: place for place, subtask in enumerate(plan.subtasks)}
    changed: dict[int, Subtask] = {}
    for id_ in places if parts_of else (id_ for id_ in {**changes, **retries} if id_ in places):
        place = places[id_]
        before = after = plan.subtasks[place]
        if id_ in changes:
            after = changes[id_].onto(after)
        if id_ in retries:
            after = _with_worker(after, retries[id_])
        needs = _rerouted(after.depends_on, parts_of)
        if needs != after.depends_on:
            after = after.model_copy(update={"depends_on": needs})
        if after is not before:
            changed[place] = after
    new: list[Subtask] = []
    for split in revision.split:
        parent = plan.subtask(split.id)
        new += (_part(part, parent, parts_of) for part in split.into)
    new += (added.model_copy(update={"depends_on": _rerouted(added.depends_on, parts_of)}) for added in revision.add)
    subtasks = _with(plan.subtasks, changed, new) if changed or new else plan.subtasks
    version = plan.version + 1 if revision.changes_plan else plan.version
    return plan.model_copy(update={"subtasks": subtasks, "version": version})


def _with(before: tuple[Subtask, ...], changed: Mapping[int, Subtask], new: Iterable[Subtask]) -> tuple[Subtask, ...]:
    subtasks = [*before, *new]
    for place, subtask in changed.items():
        subtasks[place] = subtask
    return tuple(subtasks)


def _with_worker(subtask: Subtask, retry: Retry) -> Subtask:
    chosen = {"worker": retry.worker, "model": retry.model, "effort": retry.effort}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    return subtask.model_copy(update=chosen) if chosen else subtask


def _part(part: Subtask, parent: Subtask | None, parts_of: Parts) -> Subtask:
    """A part of a split, with the dependencies of the split subtask as well."""
    inherited = parent.depends_on if parent else ()
    needs = _rerouted((*part.depends_on, *inherited), parts_of)
    return part.model_copy(update={"depends_on": tuple(need for need in dict.fromkeys(needs) if need != part.id)})


def _rerouted(needs: tuple[SubtaskId, ...], parts_of: Parts) -> tuple[SubtaskId, ...]:
    """The dependencies, with all parts of a split subtask in its place."""
    if not parts_of:
        return needs
    return tuple(dict.fromkeys(part for need in needs for part in parts_of.get(need, (need,))))


def _size_problems(revision: Revision, known: PlanContext) -> Iterable[Problem]:
    """Limit the number of subtasks that one revision adds. The run itself may grow without a limit."""
    new = len(revision.add) + sum(len(split.into) for split in revision.split)
    if known.max_subtasks is not None and new > known.max_subtasks:
        most = f"a revision may add at most {known.max_subtasks} (planner.max_subtasks)"
        yield Problem("add" if revision.add else "split", f"{new} new subtasks; {most}. Add the others later")


def _target_problems(plan: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    ids = frozenset(plan.ids) if statuses.mine is None else statuses.mine
    seen: dict[SubtaskId, str] = {}
    for verb in ("revise", "split", "retry", "drop"):
        for index, item in enumerate(getattr(revision, verb)):
            at = f"{verb}[{index}].id"
            if item.id not in ids:
                yield Problem(at, f"unknown subtask {item.id!r}{did_you_mean(item.id, ids)}")
            elif item.id not in statuses.open:
                yield Problem(at, f"{item.id!r} is closed and can't be changed")
            elif item.id in statuses.busy:
                yield Problem(at, f"{item.id!r} is in progress. Wait for its report")
            elif verb == "retry" and item.id not in statuses.failed:
                yield Problem(at, f"{item.id!r} has not failed and can't be retried")
            elif verb == "split" and statuses.depth.get(item.id, 0) >= statuses.max_depth:
                yield Problem(at, f"{item.id!r} is already {statuses.max_depth} splits deep and can't be split again")
            first = seen.setdefault(item.id, f"{verb}[{index}]")
            verbs = {first.partition("[")[0], verb}
            if first != f"{verb}[{index}]" and verbs != {"revise", "retry"}:
                yield Problem(at, f"{item.id!r} is also in {first!r}; choose one")
    for index, ask in enumerate(revision.ask):
        if ask.about is not None and ask.about not in ids | {new.id for new in revision.add}:
            yield Problem(f"ask[{index}].about", f"unknown subtask {ask.about!r}{did_you_mean(ask.about, ids)}")


def _finish_problems(revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    if not revision.finished:
        return
    if not (revision.synthesis or "").strip():
        yield Problem("synthesis", "is required with `finished`: describe the outcome in a paragraph")
    mine = statuses.open if statuses.mine is None else statuses.open & statuses.mine
    still_open = sorted(mine - {drop.id for drop in revision.drop})
    if still_open or revision.add or revision.split:
        names = ", ".join(still_open) or "those just added"
        yield Problem("finished", f"is not allowed while subtasks are open: {names}")


def _need_problems(after: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    dropped = {drop.id for drop in revision.drop}
    out = dropped | statuses.split_or_dropped | {split.id for split in revision.split}
    for subtask in after.subtasks:
        for need in subtask.depends_on:
            if need in dropped and subtask.id not in out:
                yield Problem("drop", f"{subtask.id!r} depends on {need!r}: revise it, or drop it too")
            elif need in statuses.split_or_dropped and subtask.id not in out:
                yield Problem("depends_on", f"{subtask.id!r} depends on {need!r}, which was split or dropped earlier")


def _area_problems(plan: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    """Return problems with the limits of an area: its subtasks, its paths and its depth."""
    mine = statuses.mine
    new = {*(added.id for added in revision.add), *(part.id for split in revision.split for part in split.into)}
    bounds = ", ".join(statuses.bounds)
    for place, described in described_subtasks(revision):
        worker = getattr(described, "worker", None)
        if worker == PLANNER and not statuses.may_delegate:
            problem = f"{described.id!r} can't be an area inside an area. Plan its steps yourself"
            yield Problem(f"{place}.worker", problem)
        for need in described.depends_on or ():
            if mine is not None and need in plan.ids and need not in mine | new:
                yield Problem(f"{place}.depends_on", f"{need!r} belongs to another area. Depend on the area instead")
        if statuses.bounds and described.touches == () and worker != PLANNER:
            yield Problem(f"{place}.touches", f"is empty. List the files of {described.id!r} within {bounds}")
        stray = [path for path in described.touches or () if bounds and not matches(path, statuses.bounds)]
        if stray:
            yield Problem(f"{place}.touches", f"{', '.join(stray)}: outside the area ({bounds})")


def described_subtasks(revision: Revision) -> Iterable[tuple[str, Subtask | SubtaskChange]]:
    """Each new or changed subtask of a revision, with its place in it."""
    yield from ((f"add[{index}]", new) for index, new in enumerate(revision.add))
    for index, split in enumerate(revision.split):
        yield from ((f"split[{index}].into[{number}]", part) for number, part in enumerate(split.into))
    yield from ((f"revise[{index}]", change) for index, change in enumerate(revision.revise))


def with_reviews(plan: Plan, revision: Revision) -> Revision:
    """Return a planner's revision with the reviews of the revised or split subtasks.

    Planners can't write reviews.
    """
    reviews = {subtask.id: subtask.reviews for subtask in plan.subtasks if subtask.reviews}
    if not reviews:
        return revision
    revise = tuple(
        change.model_copy(update={"acceptance": (*change.acceptance, *reviews[change.id])})
        if change.acceptance is not None and change.id in reviews and change.worker != PLANNER
        else change
        for change in revision.revise
    )
    split = tuple(
        each.model_copy(update={"into": tuple(_review(part, reviews.get(each.id, ())) for part in each.into)})
        for each in revision.split
    )
    return revision.model_copy(update={"revise": revise, "split": split})


def _review(part: Subtask, reviews: tuple[Criterion, ...]) -> Subtask:
    if not reviews or part.worker == PLANNER:
        return part
    return part.model_copy(update={"acceptance": (*part.acceptance, *reviews)})


# ---- from an edited plan --------------------------------------------------------------------------------------------

CHANGEABLE = tuple(name for name in SubtaskChange.model_fields if name != "id")


def revision_between(before: Plan, after: Plan, *, why: str, without: Collection[SubtaskId] = ()) -> Revision | str:
    """Return the revision from `before` to `after`, or why there is none. Does not check whether it is allowed.

    `without` are subtasks of `before` that were split or dropped already, so leaving them out does not drop them.
    """
    if before.goal != after.goal:
        return "can't change the goal of a run. You can edit only its subtasks"
    old = {subtask.id: subtask for subtask in before.subtasks}
    new = {subtask.id: subtask for subtask in after.subtasks}
    changes = []
    for id_, subtask in new.items():
        if id_ in old and subtask != old[id_]:
            change = _change_between(old[id_], subtask)
            if isinstance(change, str):
                return change
            changes.append(change)
    return Revision(
        assessment=why,
        add=tuple(subtask for id_, subtask in new.items() if id_ not in old),
        revise=tuple(changes),
        drop=tuple(Drop(id=id_, why=why) for id_ in old if id_ not in new and id_ not in without),
    )


def _change_between(old: Subtask, new: Subtask) -> SubtaskChange | str:
    changed = {name: getattr(new, name) for name in CHANGEABLE if getattr(old, name) != getattr(new, name)}
    removed = [name for name, value in changed.items() if value is None]
    if removed:
        return f"{new.id}: {', '.join(removed)} can be changed, but not removed"
    return SubtaskChange.model_validate({"id": new.id, **changed})
