"""Revisions: the changes that a planner or a person makes to a plan, as pure operations on it.

A revision is applied completely or not at all. `revise_plan` returns the new plan or every problem; `revision_between`
turns a plan that a person edited into the revision that a planner would have submitted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import Field, JsonValue
from pydantic.json_schema import SkipJsonSchema

from fleet.core.base.ids import SubtaskId, did_you_mean
from fleet.core.base.paths import matches
from fleet.core.plans.plan import (
    PLANNER,
    Criterion,
    Effort,
    Estimate,
    FailureAction,
    Label,
    Plan,
    Risk,
    Subtask,
    Written,
)
from fleet.core.plans.validate import Known, Problem, plan_problems


class Change(Written):
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
    effort: SkipJsonSchema[Effort | None] = None  # a grammar holds 24 optional fields; a planner's `retry` has it
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
    why: str
    into: tuple[Subtask, ...] = Field(min_length=1)


class Retry(Written):
    """The same subtask again: with guidance, another worker kind, another model or another effort."""

    id: SubtaskId
    guidance: str = ""
    worker: str | None = None
    model: str | None = None
    effort: Effort | None = None


class Drop(Written):
    """A subtask that is no longer wanted."""

    id: SubtaskId
    why: str


class Ask(Written):
    """A question to a human."""

    about: SubtaskId | None = None
    question: str = Field(min_length=1)
    options: tuple[str, ...] = ()


class Revision(Written):
    """The argument of `submit_revision`."""

    assessment: str = Field(description="What you now believe, and why the plan changes.")
    add: tuple[Subtask, ...] = ()
    revise: tuple[Change, ...] = ()
    split: tuple[Split, ...] = ()
    retry: tuple[Retry, ...] = ()
    drop: tuple[Drop, ...] = ()
    ask: tuple[Ask, ...] = ()
    finished: bool = Field(default=False, description="True when the goal is reached and no subtask is open.")
    synthesis: str | None = Field(default=None, description="With finished: the outcome in a paragraph.")

    @property
    def changes_plan(self) -> bool:
        return bool(self.add or self.revise or self.split or self.retry or self.drop)


@dataclass(frozen=True, slots=True)
class SubtaskStatuses:
    """Which subtasks a revision may change. All ids are in the plan that it revises."""

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
    """The subtasks that the revising planner may change and depend on; None: all."""
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
    known: Known | None = None,
    *,
    is_valid: bool = False,
) -> Plan | tuple[Problem, ...]:
    """The plan after `revision`, or every problem with it. A plan may stay empty.

    `is_valid` says that the plan is, as that of a run is: its subtasks are looked at again only where they change.
    """
    after, known = apply(plan, revision), known or Known()
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


def _size_problems(revision: Revision, known: Known) -> Iterable[Problem]:
    """A run may grow without a limit, but nobody can follow a planner that plans all of it at once."""
    new = len(revision.add) + sum(len(split.into) for split in revision.split)
    if known.max_subtasks is not None and new > known.max_subtasks:
        most = f"at most {known.max_subtasks} in one revision (planner.max_subtasks)"
        yield Problem("add" if revision.add else "split", f"there are {new} new subtasks; {most}: add the others later")


def _target_problems(plan: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    ids = frozenset(plan.ids) if statuses.mine is None else statuses.mine
    seen: dict[SubtaskId, str] = {}
    for verb in ("revise", "split", "retry", "drop"):
        for index, item in enumerate(getattr(revision, verb)):
            at = f"{verb}[{index}].id"
            if item.id not in ids:
                yield Problem(at, f"no subtask is called {item.id!r}{did_you_mean(item.id, ids)}")
            elif item.id not in statuses.open:
                yield Problem(at, f"{item.id!r} is closed; it can't change any more")
            elif item.id in statuses.busy:
                yield Problem(at, f"{item.id!r} is in progress; wait for its report")
            elif verb == "retry" and item.id not in statuses.failed:
                yield Problem(at, f"{item.id!r} has not failed; there is nothing to retry")
            elif verb == "split" and statuses.depth.get(item.id, 0) >= statuses.max_depth:
                yield Problem(at, f"{item.id!r} is already {statuses.max_depth} splits deep; choose another way")
            first = seen.setdefault(item.id, f"{verb}[{index}]")
            verbs = {first.partition("[")[0], verb}
            if first != f"{verb}[{index}]" and verbs != {"revise", "retry"}:
                yield Problem(at, f"{item.id!r} is also in {first!r}; choose one")
    for index, ask in enumerate(revision.ask):
        if ask.about is not None and ask.about not in ids | {new.id for new in revision.add}:
            yield Problem(f"ask[{index}].about", f"no subtask is called {ask.about!r}{did_you_mean(ask.about, ids)}")


def _finish_problems(revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    if not revision.finished:
        return
    if not (revision.synthesis or "").strip():
        yield Problem("synthesis", "is missing; `finished` requires the outcome in a paragraph")
    mine = statuses.open if statuses.mine is None else statuses.open & statuses.mine
    still_open = sorted(mine - {drop.id for drop in revision.drop})
    if still_open or revision.add or revision.split:
        names = ", ".join(still_open) or "those just added"
        yield Problem("finished", f"is refused while a subtask is open: {names}")


def _need_problems(after: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    dropped = {drop.id for drop in revision.drop}
    out = dropped | statuses.split_or_dropped | {split.id for split in revision.split}
    for subtask in after.subtasks:
        for need in subtask.depends_on:
            if need in dropped and subtask.id not in out:
                yield Problem("drop", f"{subtask.id!r} depends on {need!r}: revise it, or drop it too")
            elif need in statuses.split_or_dropped and subtask.id not in out:
                yield Problem("depends_on", f"{subtask.id!r} depends on {need!r}, which was split or dropped before")


def _area_problems(plan: Plan, revision: Revision, statuses: SubtaskStatuses) -> Iterable[Problem]:
    """Where a planner exceeds its own subtasks, its area's paths, or the depth to which areas may be nested."""
    mine = statuses.mine
    new = {*(added.id for added in revision.add), *(part.id for split in revision.split for part in split.into)}
    bounds = ", ".join(statuses.bounds)
    for place, described in described_subtasks(revision):
        worker = getattr(described, "worker", None)
        if worker == PLANNER and not statuses.may_delegate:
            problem = f"{described.id!r} would be an area within an area; plan its steps yourself"
            yield Problem(f"{place}.worker", problem)
        for need in described.depends_on or ():
            if mine is not None and need in plan.ids and need not in mine | new:
                yield Problem(f"{place}.depends_on", f"{need!r} has another planner; depend on the area as a whole")
        if statuses.bounds and described.touches == () and worker != PLANNER:
            yield Problem(f"{place}.touches", f"is empty; name what {described.id!r} changes within {bounds}")
        stray = [path for path in described.touches or () if bounds and not matches(path, statuses.bounds)]
        if stray:
            yield Problem(f"{place}.touches", f"{', '.join(stray)}: outside of the area ({bounds})")


def described_subtasks(revision: Revision) -> Iterable[tuple[str, Subtask | Change]]:
    """Each new or changed subtask of a revision, with its place in it."""
    yield from ((f"add[{index}]", new) for index, new in enumerate(revision.add))
    for index, split in enumerate(revision.split):
        yield from ((f"split[{index}].into[{number}]", part) for number, part in enumerate(split.into))
    yield from ((f"revise[{index}]", change) for index, change in enumerate(revision.revise))


def with_reviews(plan: Plan, revision: Revision) -> Revision:
    """A planner's revision that keeps the reviews of what it revises or splits: it writes none itself."""
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
        each.model_copy(update={"into": tuple(_reviewed(part, reviews.get(each.id, ())) for part in each.into)})
        for each in revision.split
    )
    return revision.model_copy(update={"revise": revise, "split": split})


def _reviewed(part: Subtask, reviews: tuple[Criterion, ...]) -> Subtask:
    if not reviews or part.worker == PLANNER:
        return part
    return part.model_copy(update={"acceptance": (*part.acceptance, *reviews)})


# ---- from an edited plan --------------------------------------------------------------------------------------------

CHANGEABLE = tuple(name for name in Change.model_fields if name != "id")


def revision_between(before: Plan, after: Plan, *, why: str, without: Collection[SubtaskId] = ()) -> Revision | str:
    """The revision that leads from `before` to `after`, or why there is none. Whether it is allowed is checked later.

    `without` are subtasks of `before` that were split or dropped already: leaving them out drops nothing.
    """
    if before.goal != after.goal:
        return "the goal of a run can't be changed; only its subtasks can be edited"
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


def _change_between(old: Subtask, new: Subtask) -> Change | str:
    changed = {name: getattr(new, name) for name in CHANGEABLE if getattr(old, name) != getattr(new, name)}
    removed = [name for name, value in changed.items() if value is None]
    if removed:
        return f"{new.id}: {', '.join(removed)} can be changed, but not removed"
    return Change.model_validate({"id": new.id, **changed})
