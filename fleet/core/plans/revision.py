"""Revisions: what a planner (or a human) changes in a plan, as pure operations on it.

A revision is applied whole or not at all. `revise_plan` returns the new plan or every reason why not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import Field, JsonValue

from fleet.core.ids import SubtaskId
from fleet.core.nearest import did_you_mean
from fleet.core.paths import matches
from fleet.core.plan import PLANNER, Criterion, Estimate, FailureAction, Plan, Risk, Subtask, Written
from fleet.core.validate import Known, Problem, plan_problems


class Change(Written):
    """The fields of a subtask that change; what is left out stays."""

    id: SubtaskId
    title: str | None = None
    goal: str | None = None
    acceptance: tuple[Criterion, ...] | None = None
    depends_on: tuple[SubtaskId, ...] | None = None
    touches: tuple[str, ...] | None = None
    context: tuple[str, ...] | None = None
    worker: str | None = None
    model: str | None = None
    parameters: dict[str, JsonValue] | None = None
    risk: Risk | None = None
    estimate: Estimate | None = None
    failure_action: FailureAction | None = None
    not_before: datetime | None = None

    def onto(self, subtask: Subtask) -> Subtask:
        given = {name: getattr(self, name) for name in self.model_fields_set - {"id"}}
        return subtask.model_copy(update={name: value for name, value in given.items() if value is not None})


class Split(Written):
    """One subtask becomes several smaller ones."""

    id: SubtaskId
    why: str
    into: tuple[Subtask, ...] = Field(min_length=1)


class Retry(Written):
    """The same subtask again: with guidance, another worker kind or another model."""

    id: SubtaskId
    guidance: str = ""
    worker: str | None = None
    model: str | None = None


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
    """What `submit_revision` takes."""

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
class Standings:
    """What a revision may still touch. All ids are in the plan the revision is for."""

    open: frozenset[SubtaskId] = frozenset()
    """Neither merged nor given up."""
    busy: frozenset[SubtaskId] = frozenset()
    """Running, being verified or landing: too late to change."""
    failed: frozenset[SubtaskId] = frozenset()
    """Waiting for the planner's decision, or for an answer."""
    gone: frozenset[SubtaskId] = frozenset()
    """Dropped or split: nothing new may wait for them."""
    depth: Mapping[SubtaskId, int] = field(default_factory=dict)
    """How many splits deep a subtask came to be."""
    max_depth: int = 3
    mine: frozenset[SubtaskId] | None = None
    """Those that the planner who revises may change and build on; None: all."""
    bounds: tuple[str, ...] = ()
    """Of an area: the paths that its subtasks have to stay within."""
    may_delegate: bool = True
    """Whether it may give work to planners of areas."""


def revise_plan(
    plan: Plan, revision: Revision, standings: Standings, known: Known | None = None
) -> Plan | tuple[Problem, ...]:
    """The plan after `revision`, or every reason why it does not hold together. A plan may stay empty."""
    after = apply(plan, revision)
    problems = [
        *_target_problems(plan, revision, standings),
        *_finish_problems(revision, standings),
        *_need_problems(after, revision, standings),
        *_area_problems(plan, revision, standings),
        *(plan_problems(after, known or Known(), places=_places(plan, revision)) if after.subtasks else ()),
    ]
    return tuple(dict.fromkeys(problems)) or after


def _places(plan: Plan, revision: Revision) -> tuple[str, ...]:
    """Where each subtask of the plan after `revision` stands in the revision, or in the plan before it."""
    revised = {change.id: f"revise[{index}]" for index, change in enumerate(revision.revise)}
    return (
        *(revised.get(id_, f"subtasks[{index}]") for index, id_ in enumerate(plan.ids)),
        *(f"split[{index}].into[{part}]" for index, s in enumerate(revision.split) for part in range(len(s.into))),
        *(f"add[{index}]" for index in range(len(revision.add))),
    )


def apply(plan: Plan, revision: Revision) -> Plan:
    """The plan after `revision`, taken at its word: history was checked when it was made."""
    gone = {split.id: tuple(part.id for part in split.into) for split in revision.split}
    changes = {change.id: change for change in revision.revise}
    retries = {retry.id: retry for retry in revision.retry}
    subtasks: list[Subtask] = []
    for subtask in plan.subtasks:
        changed = changes[subtask.id].onto(subtask) if subtask.id in changes else subtask
        if subtask.id in retries:
            changed = _with_worker(changed, retries[subtask.id])
        subtasks.append(changed.model_copy(update={"depends_on": _rerouted(changed.depends_on, gone)}))
    for split in revision.split:
        parent = plan.subtask(split.id)
        subtasks += (_child(part, parent, gone) for part in split.into)
    subtasks += (new.model_copy(update={"depends_on": _rerouted(new.depends_on, gone)}) for new in revision.add)
    version = plan.version + 1 if revision.changes_plan else plan.version
    return plan.model_copy(update={"subtasks": tuple(subtasks), "version": version})


def _with_worker(subtask: Subtask, retry: Retry) -> Subtask:
    chosen = {"worker": retry.worker, "model": retry.model}
    return subtask.model_copy(update={name: value for name, value in chosen.items() if value is not None})


def _child(part: Subtask, parent: Subtask | None, gone: Mapping[SubtaskId, tuple[SubtaskId, ...]]) -> Subtask:
    inherited = parent.depends_on if parent else ()
    needs = dict.fromkeys((*_rerouted(part.depends_on, gone), *_rerouted(inherited, gone)))
    return part.model_copy(update={"depends_on": tuple(need for need in needs if need != part.id)})


def _rerouted(needs: tuple[SubtaskId, ...], gone: Mapping[SubtaskId, tuple[SubtaskId, ...]]) -> tuple[SubtaskId, ...]:
    """Who needed a subtask that was split needs all its parts."""
    if not gone:
        return needs
    return tuple(dict.fromkeys(part for need in needs for part in gone.get(need, (need,))))


def _target_problems(plan: Plan, revision: Revision, standings: Standings) -> Iterable[Problem]:
    ids = frozenset(plan.ids) if standings.mine is None else standings.mine
    seen: dict[SubtaskId, str] = {}
    for verb in ("revise", "split", "retry", "drop"):
        for index, item in enumerate(getattr(revision, verb)):
            at = f"{verb}[{index}].id"
            if item.id not in ids:
                yield Problem(at, f"no subtask is called {item.id!r}{did_you_mean(item.id, ids)}")
            elif item.id not in standings.open:
                yield Problem(at, f"{item.id!r} is done with; it can't change any more")
            elif item.id in standings.busy:
                yield Problem(at, f"{item.id!r} is being worked on; wait for its report")
            elif verb == "retry" and item.id not in standings.failed:
                yield Problem(at, f"{item.id!r} has not failed; there is nothing to retry")
            elif verb == "split" and standings.depth.get(item.id, 0) >= standings.max_depth:
                yield Problem(at, f"{item.id!r} came from {standings.max_depth} splits already; choose another way")
            before = seen.setdefault(item.id, f"{verb}[{index}]")
            verbs = {before.partition("[")[0], verb}
            if before != f"{verb}[{index}]" and verbs != {"revise", "retry"}:
                yield Problem(at, f"{item.id!r} stands under {before!r} too; choose one")
    for index, ask in enumerate(revision.ask):
        if ask.about is not None and ask.about not in ids | {new.id for new in revision.add}:
            yield Problem(f"ask[{index}].about", f"no subtask is called {ask.about!r}{did_you_mean(ask.about, ids)}")


def _finish_problems(revision: Revision, standings: Standings) -> Iterable[Problem]:
    if not revision.finished:
        return
    if not (revision.synthesis or "").strip():
        yield Problem("synthesis", "is missing; `finished` comes with the outcome in a paragraph")
    mine = standings.open if standings.mine is None else standings.open & standings.mine
    left = sorted(mine - {drop.id for drop in revision.drop})
    if left or revision.add or revision.split:
        yield Problem("finished", f"is refused while a subtask is open: {', '.join(left) or 'those just added'}")


def _need_problems(after: Plan, revision: Revision, standings: Standings) -> Iterable[Problem]:
    dropped = {drop.id for drop in revision.drop}
    out = dropped | standings.gone | {split.id for split in revision.split}
    for subtask in after.subtasks:
        for need in subtask.depends_on:
            if need in dropped and subtask.id not in out:
                yield Problem("drop", f"{subtask.id!r} depends on {need!r}: revise it, or drop it too")
            elif need in standings.gone and subtask.id not in out:
                yield Problem("depends_on", f"{subtask.id!r} depends on {need!r}, which was split or dropped before")


def _area_problems(plan: Plan, revision: Revision, standings: Standings) -> Iterable[Problem]:
    """Each planner stays within what is its own: its subtasks, its paths, and how deep areas may be in each other."""
    new = {made.id for made in _made(revision)}
    for place, made in placed(revision):
        worker = getattr(made, "worker", None)
        if worker == PLANNER and not standings.may_delegate:
            yield Problem(f"{place}.worker", f"{made.id!r} would be an area within an area; plan its steps yourself")
        for need in made.depends_on or ():
            if standings.mine is not None and need in plan.ids and need not in standings.mine | new:
                yield Problem(f"{place}.depends_on", f"{need!r} is another planner's; depend on the area as a whole")
        stray = [path for path in made.touches or () if standings.bounds and not matches(path, standings.bounds)]
        if standings.bounds and made.touches == () and worker != PLANNER:
            yield Problem(
                f"{place}.touches", f"is empty; name what {made.id!r} changes within {', '.join(standings.bounds)}"
            )
        if stray:
            yield Problem(
                f"{place}.touches", f"{', '.join(stray)}: outside of the area ({', '.join(standings.bounds)})"
            )


def _made(revision: Revision) -> tuple[Subtask, ...]:
    return (*revision.add, *(part for split in revision.split for part in split.into))


def placed(revision: Revision) -> Iterable[tuple[str, Subtask | Change]]:
    """All that is described anew, with where it stands."""
    yield from ((f"add[{index}]", new) for index, new in enumerate(revision.add))
    for index, split in enumerate(revision.split):
        yield from ((f"split[{index}].into[{number}]", part) for number, part in enumerate(split.into))
    yield from ((f"revise[{index}]", change) for index, change in enumerate(revision.revise))
