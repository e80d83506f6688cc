"""Facts in words: the line a person reads when something happens. Knows nothing of terminals."""

from collections.abc import Sequence
from itertools import chain
from typing import assert_never

from dashboards.figures import duration, untested
from dashboards.safe import safe
from fleet.core import facts as f
from fleet.core.flat import is_flat
from fleet.core.outages import in_words
from fleet.core.plan import PLANNER, Plan, Subtask
from fleet.core.state import Outage, RunState, Version

TITLE = 70
PART = 8  # subtasks named
NOTICED = 12  # notes on a plan
TAIL = 200  # characters of what a red gate said last
NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def said(state: RunState, fact: f.Fact) -> str | None:  # noqa: C901, PLR0912 - one case a fact
    """What happened, in a line; None for what would only be noise. `state` is the one after the fact."""
    match fact:
        case f.RunStarted():
            model = " with the simulated model" if fact.simulated else ""
            return f"run {safe(fact.run)} began on {safe(fact.base_name)} {safe(fact.base[:7])}{model}"
        case f.EngineStarted():
            bare = ", WITHOUT A SANDBOX" if fact.sandbox == "none" else ""
            return f"resumed, for the {_nth(fact.epoch - 1)} time{bare}" if fact.epoch > 1 else None
        case f.EngineStopped():
            return f"stopped ({safe(fact.why)}); `fleet resume {safe(state.run)}` goes on"
        case f.WarningNoted():
            return f"note: {safe(fact.text)}"
        case f.BaseChecked():
            return _base(fact)
        case f.PlannerCalled():
            return "the planner reads the repository" if fact.call == 1 else None
        case f.ModelCalled() | f.CallsHeld() | f.CallLost() | f.WorkerStarted() | f.BatchFormed() | f.Published():
            return None
        case f.CallRefused():
            return f"no further call: {safe(fact.why)}"
        case f.BudgetRanLow():
            return f"{safe(fact.why)}: the planner is told"
        case f.ServiceChanged():
            return _service(fact)
        case f.PlanRevised():
            return _revised(state, fact)
        case f.PlanGraded():
            return "\n".join(noticed_lines(fact.warnings)) or None
        case f.PlannerFailed():
            return f"planner failed: {_failure(fact.failure)}"
        case f.PlanApproved():
            return f"plan version {fact.version} approved by {safe(fact.by)}{_part(fact.subtasks)}"
        case f.PlanRejected():
            return f"plan version {fact.version} rejected by {safe(fact.by)}{_part(fact.subtasks)}: {safe(fact.reason)}"
        case f.AttemptStarted():
            return _started(state, fact)
        case f.AttemptVerified():
            return _done(state, fact.subtask)
        case f.AttemptCommitted():
            return f"{safe(fact.subtask)} reported done: {_count(len(fact.paths), 'file')} changed, being checked"
        case f.AttemptUnchanged():
            return f"{safe(fact.subtask)} reported done: no file changed, being checked"
        case f.AttemptFailed():
            how = "sent back" if fact.failure.kind == "integration" else f"failed, attempt {fact.number}"
            return f"{safe(fact.subtask)} {how}: {_failure(fact.failure)}"
        case f.RemedyChosen():
            return _remedy(fact)
        case f.BatchTested():
            return _tested(state, fact)
        case f.WorkLost():
            return _lost(state, fact)
        case f.PublishFailed():
            return f"{safe(state.result_branch)} could not be moved: {safe(fact.why)}"
        case f.QuestionAsked():
            return _question(state)
        case f.QuestionAnswered():
            return f"{safe(fact.question)} answered by {safe(fact.by)}: {safe(fact.answer, limit=200)}"
        case f.RetryRequested():
            return f"{safe(fact.subtask)} will be tried again, asked for by {safe(fact.by)}"
        case f.Paused():
            return f"paused by {safe(fact.by)}: nothing new begins"
        case f.Unpaused():
            return f"goes on, says {safe(fact.by)}"
        case f.DrainRequested():
            return "draining: nothing new begins, no call waits, what runs may finish (Ctrl-C again stops at once)"
        case f.CancelRequested():
            return f"cancelled by {safe(fact.by)}"
        case f.LimitsChanged():
            return f"limits changed by {safe(fact.by)}"
        case f.RollbackStarted():
            return f"ROLLING BACK, because {safe(fact.why, limit=300)}"
        case f.RunEnded():
            return f"ended: {fact.ending} — {safe(fact.why, limit=300)}"
        case f.RunReopened():
            return f"goes on again, asked for by {safe(fact.by)}"
        case _:
            assert_never(fact)


def _service(fact: f.ServiceChanged) -> str:
    whose = f"the models' service, for {safe(fact.scope)}," if fact.scope else "the models' service"
    if fact.condition == "up":
        return f"{whose} answers again"
    outage = Outage(condition=fact.condition, why=fact.why, since=fact.at)
    return f"WAITING: {safe(in_words(fact.scope, outage), limit=300)}; calls wait, nothing is lost"


def waiting_line(said: str, seconds: float) -> str:
    """What all calls wait for, for a status or a live line."""
    return f"for {duration(max(0.0, seconds))}: {safe(said, limit=200)}; asked again from time to time"


def _lost(state: RunState, fact: f.WorkLost) -> str:
    parts = []
    if fact.commits:
        parts.append(f"{_count(len(fact.commits), 'commit')} can't be read any more")
    if fact.again:
        parts.append(f"lands again{_part(fact.again)}")
    if fact.anew:
        parts.append(f"is done again{_part(fact.anew)}")
    if fact.unpublished:
        parts.append(f"{safe(state.result_branch)} is gone and comes again")
    return f"DAMAGE: {'; '.join(parts)}"


def _part(ids: Sequence[str] | None) -> str:
    if ids is None:
        return ""
    more = f" and {len(ids) - PART} more" if len(ids) > PART else ""
    return f" ({', '.join(map(safe, ids[:PART]))}{more})"


def _nth(number: int) -> str:
    return NTH.get(number, f"{number}.")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _title(state: RunState, id_: str) -> str:
    spec = state.plan.subtask(id_)
    return safe(spec.title if spec else "", limit=TITLE)


def _failure(failure: f.Failure) -> str:
    return f"{failure.kind}: {safe(failure.summary, limit=160)}"


def _revised(state: RunState, fact: f.PlanRevised) -> str | None:
    revision = fact.revision
    if not (revision.changes_plan or revision.ask or revision.finished):
        return None
    parts = [
        f"{len(items)} {word}"
        for word, items in (
            ("added", revision.add),
            ("revised", revision.revise),
            ("split", revision.split),
            ("to try again", revision.retry),
            ("dropped", revision.drop),
            (f"question{'s' * (len(revision.ask) != 1)} asked", revision.ask),
        )
        if items
    ]
    if revision.finished:
        parts.append("finished")
    whose = f"{safe(fact.area)}: " if fact.area is not None else ""
    line = f"{whose}plan version {state.plan.version}: {', '.join(parts)} — {safe(revision.assessment, limit=160)}"
    if state.plan.version == 1 and fact.area is None and is_flat(state.plan):
        line += "; it runs flat: one worker, no decomposition"
    asked = [_about(question.about, question.id, question.text) for question in state.open_questions()]
    return "\n".join([line, *(asked[-len(revision.ask) :] if revision.ask else ())])


def _started(state: RunState, fact: f.AttemptStarted) -> str:
    again = "" if fact.strategy == "first" else f", attempt {fact.number} ({fact.strategy})"
    begins = "gets a planner of its own" if fact.worker == PLANNER else "started"
    return f"{safe(fact.subtask)} {begins}{again}: {_title(state, fact.subtask)}"


def _done(state: RunState, id_: str) -> str | None:
    """What has nothing to land is done when its checks pass; the others when they have landed, which is said then."""
    last = state.subtasks[id_].last
    if last is None or not (last.worker == PLANNER or last.unchanged):
        return None
    return f"{safe(id_)} is done: {safe(last.report.summary if last.report else '', limit=300)}"


def _question(state: RunState) -> str:
    question = list(state.questions.values())[-1]
    return _about(question.about, question.id, question.text)


def _about(about: str | None, id_: str, text: str) -> str:
    where = f" about {safe(about)}" if about else ""
    return f"QUESTION {id_}{where}: {safe(text, limit=300)}  →  fleet answer {id_} TEXT"


def _base(fact: f.BaseChecked) -> str:
    if fact.failure is not None:
        return f"the gate could not be run on the base: {_failure(fact.failure)}"
    red = [check for check in fact.checks if not check.fine]
    said = ", ".join(
        f"{safe(check.command, limit=100)} — {safe(check.output.strip()[-TAIL:], limit=TAIL)}" for check in red
    )
    return f"the gate is RED on the base: {said}" if red else "the gate is green on the base"


def _remedy(fact: f.RemedyChosen) -> str | None:
    match fact.remedy:
        case "retry":
            return f"{safe(fact.subtask)} will be retried in {max(0.0, fact.not_before - fact.at):.1f} s"
        case "resolve":
            return f"{safe(fact.subtask)} will be fitted to what landed: once more, on the new base"
        case "skip":
            return f"{safe(fact.subtask)} is skipped, as its plan says"
        case "planner":
            return None


def _tested(state: RunState, fact: f.BatchTested) -> str | None:
    lines = []
    if fact.landed:
        names = ", ".join(safe(member.subtask) for member in fact.landed)
        total = len([s for s in state.subtasks.values() if not s.parts and s.id not in state.areas])
        more = untested(len(fact.landed), sum(member.tested for member in fact.landed))
        lines.append(f"landed {names} ({state.done} of {total}){more}")
    lines += [f"{safe(out.subtask)} sent back: {_failure(out.failure)}" for out in fact.ejected]
    if fact.red and not fact.ejected:
        suspects = [safe(id_) for id_ in state.landing.suspects]
        if suspects:
            who = f"one of {len(suspects)} is guilty" if len(suspects) > 1 else f"it is {suspects[0]}"
            lines.append(f"batch {fact.number} is red: {who}")
    return "\n".join(lines) or None


def plan_lines(plan: Plan, noticed: Sequence[str] = ()) -> list[str]:
    """A plan, for a person who has to say yes or no."""
    undone = [f"  undone by {safe(plan.rollback_plan, limit=TITLE)}, if a step fails"] if plan.rollback_plan else []
    return [plan_head(plan), *chain.from_iterable(map(step_lines, plan.subtasks)), *undone, *noticed_lines(noticed)]


def plan_head(plan: Plan) -> str:
    return f"Plan: {safe(plan.goal, limit=200)}  (version {plan.version}, {_count(len(plan.subtasks), 'subtask')})"


def step_lines(subtask: Subtask) -> list[str]:
    """A subtask: what it is, what it waits for, and what will be run to see whether it is done."""
    after = f"  after {', '.join(map(safe, subtask.depends_on))}" if subtask.depends_on else ""
    after += "  (an area: a planner of its own breaks it down)" if subtask.worker == PLANNER else ""
    after += f"  not before {subtask.not_before:%Y-%m-%d %H:%M %Z}" if subtask.not_before is not None else ""
    after += f"  if it fails: {subtask.failure_action}" if subtask.failure_action != "replan" else ""
    checks = [f"  {'':<20}   check: {safe(c.run or c.criterion, limit=100)}" for c in subtask.acceptance]
    return [f"  {safe(subtask.id):<20} {safe(subtask.title, limit=TITLE)}{after}", *checks]


def noticed_lines(warnings: Sequence[str]) -> list[str]:
    """What there is to say of a plan."""
    more = [f"  … and {len(warnings) - NOTICED} more"] if len(warnings) > NOTICED else []
    return [*(f"  note: {safe(text, limit=240)}" for text in warnings[:NOTICED]), *more]


def version_lines(version: Version, changes: Sequence[str]) -> list[str]:
    """A version of a plan, why it came to be, and what it changed."""
    whose = f"{version.by} of {version.area}" if version.area is not None else version.by
    head = f"version {version.plan.version}, by {safe(whose)}: {safe(version.why, limit=400)}"
    return [head, *(f"  {safe(line, limit=300)}" for line in changes or ("(nothing but who does it)",))]
