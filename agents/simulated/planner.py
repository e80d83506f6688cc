"""The next turn of a simulated planner, derived from the script and the `<state>`: a revision of all matching steps.

It always makes progress: unscripted failures are retried with their evidence, and the plan is finished once everything
has landed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import JsonValue

from agents.simulated.behaviours import BehaviourMessage, BehaviourTurn, InvalidCall, Text, TimesStruck, call, strike
from agents.simulated.prompt import PromptRequest
from agents.simulated.script import PlannerScript, PlannerStep, Script

QUOTED = 700  # characters of evidence in guidance
SUBMIT = "submit_revision"
CLOSED = frozenset({"merged", "dropped"})
UNDECIDED = frozenset({"failed", "blocked"})
OPERATIONS = ("add", "revise", "split", "retry", "drop", "ask")
REJECTION = "Rejected: "

_INVALID = InvalidCall(SUBMIT, broken='{"assessment": "It', misfit={"add": "everything"})
_INTERRUPTED = BehaviourMessage((call("submit", 0, SUBMIT, {"assessment": "The answer that was on its way."}),))


@dataclass(frozen=True, slots=True)
class PlannedSubtask:
    """A subtask in the state."""

    id: str
    title: str
    status: str
    failures: int
    kind: str
    evidence: str
    asked: bool
    pending: bool
    """Whether a question about it is open."""
    answer: str

    @property
    def needs_decision(self) -> bool:
        if self.pending:
            return False
        return self.status in UNDECIDED or (self.status == "escalated" and bool(self.answer))


def play_planner(script: Script, request: PromptRequest, times_struck: TimesStruck) -> BehaviourTurn:
    """Return the next turn of the planner: a fault, exploration, or a revision."""
    part = script.planner
    subtasks = read_subtasks(request.state)
    faults = list(part.faults)
    closed = read_closed(request.state)
    if part.once_planned is not None and (subtasks or closed):
        faults.append(part.once_planned)
    for index, fault in enumerate(faults):
        key = (request.run, "planner", index, 0)
        if (struck := times_struck(key)) < fault.times:
            return strike(fault, key, _INTERRUPTED, _INVALID, pace=part.pace, times_struck=struck)
    explored = request.done("explore")
    explore = [each for each in part.explore if each.tool in request.tools]
    if not (subtasks or closed) and explored < len(explore):
        tool = explore[explored]
        blocks = (Text("I look at the repository first."), call("explore", explored, tool.tool, dict(tool.input)))
        return BehaviourTurn(BehaviourMessage(blocks), part.pace)
    area, reason = str(request.state.get("area") or ""), _rejection(request.state)
    revision = revise(part, subtasks, area=area, rejected=reason, closed=closed)
    text = Text(str(revision["assessment"]))
    return BehaviourTurn(BehaviourMessage((text, call("submit", len(request.turns), SUBMIT, revision))), part.pace)


def revise(
    part: PlannerScript, subtasks: tuple[PlannedSubtask, ...], *, area: str = "", rejected: str = "", closed: int = 0
) -> dict[str, JsonValue]:
    """Return the revision for a state: all matching steps, then all failures that no step handles."""
    by_id = {each.id: each for each in subtasks}
    operations: dict[str, list[Any]] = {}
    assessments: list[str] = []
    for revision in (each for step in part.steps for each in _fitting(step, subtasks, area, rejected, closed)):
        useful = False
        for name in OPERATIONS:
            for item in revision.get(name, ()):
                if _applies(name, item, by_id, operations):
                    operations.setdefault(name, []).append(item)
                    useful = True
        if useful:
            assessments.append(str(revision["assessment"]))
    decided = {item["id"] for name in ("revise", "split", "retry", "drop") for item in operations.get(name, ())}
    decided |= {item.get("about") for item in operations.get("ask", ())}
    for each in subtasks:
        if each.needs_decision and each.id not in decided:
            name, item = _unscripted(each)
            operations.setdefault(name, []).append(item)
            assessments.append(f"{each.id} {'needs an answer' if name == 'ask' else 'is retried'}.")
    if operations:
        return {"assessment": " ".join(dict.fromkeys(assessments)), **operations}
    return _nothing_to_change(part, subtasks, area=area, closed=closed)


def _unscripted(subtask: PlannedSubtask) -> tuple[str, dict[str, JsonValue]]:
    """Return the operation for a subtask that no step of the script handles."""
    quoted = subtask.evidence[-QUOTED:]
    if subtask.status == "blocked" and not subtask.asked:
        question = f"The worker of {subtask.id!r} stopped because information is missing: {quoted or subtask.title}"
        return "ask", {"about": subtask.id, "question": question}
    guidance = f"The last attempt failed ({subtask.kind or 'unknown'}): {quoted}\nTry another approach."
    if subtask.answer:
        guidance = f"A human answered: {subtask.answer}"
    return "retry", {"id": subtask.id, "guidance": guidance}


def _nothing_to_change(
    part: PlannerScript, subtasks: tuple[PlannedSubtask, ...], *, area: str, closed: int
) -> dict[str, JsonValue]:
    if (subtasks or closed) and all(each.status in CLOSED for each in subtasks):
        synthesis = f"{area}: {', '.join(each.title for each in subtasks)}." if area else part.synthesis
        return {"assessment": "Everything has landed.", "finished": True, "synthesis": synthesis}
    counts = Counter(each.status for each in subtasks)
    listed = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing is planned"
    return {"assessment": f"The plan stays as it is: {listed}."}


def _fitting(
    step: PlannerStep, subtasks: tuple[PlannedSubtask, ...], area: str, rejected: str, closed: int
) -> Iterator[dict[str, Any]]:
    """Yield the step's revision once per matching subtask."""
    when = step.when
    statuses = {each.id: each.status for each in subtasks}
    fits = (
        (not area if when.area is None else fnmatchcase(area, when.area) and bool(area))
        and (not when.start or not (subtasks or closed))
        and all(statuses.get(id_) == "merged" for id_ in when.merged)
        and (not when.all_merged or (bool(subtasks or closed) and set(statuses.values()) <= CLOSED))
        and (when.rejected is None or (bool(rejected) and fnmatchcase(rejected, when.rejected)))
    )
    if not fits:
        return
    document = step.revision.model_dump(mode="json", exclude_unset=True)
    if any(new.id in statuses for new in step.revision.add):
        document.pop("add", None)  # already added, and parts may no longer be in the state
    if when.failed is not None or when.answered is not None:
        for each in subtasks:
            if _is_about(step, each):
                evidence = each.evidence[-QUOTED:]
                yield _filled(document, id=each.id, title=each.title, evidence=evidence, answer=each.answer)
    elif when.rejected is not None:
        yield _filled(document, answer=rejected)
    elif when.start or when.merged or when.all_merged:
        yield document


def _is_about(step: PlannerStep, subtask: PlannedSubtask) -> bool:
    when = step.when
    return (
        subtask.needs_decision
        and (when.failed is None or fnmatchcase(subtask.id, when.failed))
        and (when.failures is None or subtask.failures == when.failures)
        and (when.kind is None or subtask.kind == when.kind)
        and (when.answered is None or (fnmatchcase(subtask.id, when.answered) and bool(subtask.answer)))
    )


def _filled(document: dict[str, Any], **values: str) -> dict[str, Any]:
    """Fill in the placeholders in the JSON text, with quotation marks escaped."""
    text = json.dumps(document)
    for name, value in values.items():
        text = text.replace("{" + name + "}", json.dumps(value)[1:-1])
    filled: dict[str, Any] = json.loads(text)
    return filled


def _applies(
    name: str, item: Mapping[str, Any], by_id: Mapping[str, PlannedSubtask], already: Mapping[str, list[Any]]
) -> bool:
    """Whether an operation still applies. Each step therefore fires only once, although the planner is stateless."""
    key = "about" if name == "ask" else "id"
    about = item.get(key)
    if any(other.get(key) == about for other in already.get(name, ())):
        return False
    if name == "add":
        return True
    if name == "ask":
        return not by_id if about is None else about in by_id and not by_id[about].asked
    subtask = by_id.get(str(about))
    if subtask is None or subtask.status in CLOSED:
        return False
    return subtask.needs_decision or name not in {"retry", "split"}


def read_closed(state: Mapping[str, Any]) -> int:
    """Return the number of closed subtasks that the state only counts."""
    closed = state.get("closed")
    count = closed.get("count") if isinstance(closed, Mapping) else 0
    return count if isinstance(count, int) else 0


def read_subtasks(state: Mapping[str, Any]) -> tuple[PlannedSubtask, ...]:
    return tuple(_subtask(item, _tables(state.get("questions"))) for item in _tables(state.get("subtasks")))


def _subtask(item: Mapping[str, Any], questions: list[Mapping[str, Any]]) -> PlannedSubtask:
    id_, failures = str(item.get("id", "")), _tables(item.get("failures"))
    last = failures[-1] if failures else {}
    about = [question for question in questions if question.get("about", id_) == id_]
    answers = [str(question["answer"]) for question in about if question.get("answer")]
    return PlannedSubtask(
        id=id_,
        title=str(item.get("title", "")),
        status=str(item.get("status", "")),
        failures=len(failures),
        kind=str(last.get("class", "")),
        evidence=str(last.get("evidence") or last.get("summary") or ""),
        asked=bool(about),
        pending=len(answers) < len(about),
        answer=answers[-1] if answers else "",
    )


def _rejection(state: Mapping[str, Any]) -> str:
    """Return why a person rejected the current version of the plan, or an empty string."""
    asked = f"Approve version {state.get('plan_version')} of the plan?"
    questions = [each for each in _tables(state.get("questions")) if str(each.get("question", "")).startswith(asked)]
    answer = str(questions[-1].get("answer") or "") if questions else ""
    return answer.removeprefix(REJECTION).partition(". Revise or drop")[0] if answer.startswith(REJECTION) else ""


def _tables(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
