"""A simulated planner's next move, from the script and the `<state>` alone: which steps of the script fit what is true.

It always gets on: what failed and nobody scripted is tried again with the evidence, and when all has landed it says so.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, assert_never

from pydantic import JsonValue

from agents.simulated.behaviours import BreakStream, Hang, Http, Malformed, Mute, Trouble
from agents.simulated.moves import Cut, Move, Refuse, Say, Spent, Stall, Text, ToolUse, call
from agents.simulated.request import Request
from agents.simulated.script import Call, PlannerScript, Script, Step

QUOTED = 700  # characters of evidence that guidance quotes
CLOSED = frozenset({"merged", "dropped"})
NO = "Rejected: "
UNDECIDED = frozenset({"failed", "blocked"})


@dataclass(frozen=True, slots=True)
class Seen:
    """One subtask, as the state shows it."""

    id: str
    title: str
    status: str
    failures: int
    kind: str
    evidence: str
    asked: bool
    pending: bool
    """A question about it is open."""
    answer: str

    @property
    def waits_for_decision(self) -> bool:
        if self.pending:
            return False
        return self.status in UNDECIDED or (self.status == "escalated" and bool(self.answer))


def play_planner(script: Script, request: Request, spent: Spent) -> Move:
    """What the planner does next: meets an error, explores, or hands in a revision."""
    part = script.planner
    for index, fault in enumerate(part.faults):
        key = (request.run, "planner", index, 0)
        if spent(key) < fault.times:
            return Move(_struck(fault, spent(key)), spends=key, pace=part.pace)
    seen = tuple(_seen(request.state))
    key, later = (request.run, "planner", len(part.faults), 0), part.once_planned
    if later is not None and seen and spent(key) < later.times:
        return Move(_struck(later, spent(key)), spends=key, pace=part.pace)
    if not seen and (next_call := _unexplored(part.explore, request)):
        blocks = (Text("I look at the repository first."), call("explore", 0, next_call.tool, dict(next_call.input)))
        return Move(Say(blocks), pace=part.pace)
    revision = revise(part, seen, area=str(request.state.get("area") or ""), rejected=_rejected(request.state))
    said = Text(str(revision["assessment"]))
    return Move(Say((said, call("submit", len(request.turns), "submit_revision", revision))), pace=part.pace)


def _struck(fault: Trouble, times: int) -> Refuse | Say | Cut | Stall:
    """What a call of the planner meets."""
    plan = call("submit", 0, "submit_revision", {"assessment": "The answer that was on its way."})
    match fault:
        case Http():
            return Refuse(fault.status, fault.message, fault.retry_after, fault.headers, fault.body)
        case BreakStream():
            return Cut(Say((plan,)), fault.how)
        case Hang():
            return Stall(Say((plan,)), fault.seconds, fault.pings)
        case Mute():
            return Say((Text(fault.text),) if fault.text else (), stop_reason=fault.stop_reason)
        case Malformed(how="json"):
            return Say((replace(plan, id=f"toolu_simulated_malformed-{times}", broken='{"assessment": "It'),))
        case Malformed(how="schema"):
            return Say((ToolUse(f"toolu_simulated_malformed-{times}", "submit_revision", {"add": "everything"}),))
        case Malformed():
            return Say((ToolUse(f"toolu_simulated_malformed-{times}", "launch_rocket", {"to": "moon"}),))
        case _:
            assert_never(fault)


def _unexplored(explore: Iterable[Call], request: Request) -> Call | None:
    offered = [one for one in explore if one.tool in request.tools]
    done = sum(turn.step == "explore" for turn in request.turns)
    return offered[done] if done < len(offered) else None


def revise(part: PlannerScript, seen: tuple[Seen, ...], *, area: str = "", rejected: str = "") -> dict[str, JsonValue]:
    """The revision for a state: all steps that fit, merged; then whatever failed and no step is about."""
    by_id = {one.id: one for one in seen}
    operations: dict[str, list[Any]] = {}
    assessments: list[str] = []
    steps = [step for step in part.steps if _is_for(step, area)]
    for filled in (found for step in steps for found in _fitting(step, seen, rejected)):
        useful = False
        for name in ("add", "revise", "split", "retry", "drop", "ask"):
            kept = [item for item in filled.get(name, ()) if _holds(name, item, by_id, operations)]
            useful = useful or bool(kept)
            if kept:
                operations.setdefault(name, []).extend(kept)
        if useful:
            assessments.append(str(filled["assessment"]))
    decided = {item["id"] for name in ("revise", "split", "retry", "drop") for item in operations.get(name, ())}
    decided |= {item.get("about") for item in operations.get("ask", ())}
    for one in seen:
        if one.waits_for_decision and one.id not in decided:
            name, item = _otherwise(one)
            operations.setdefault(name, []).append(item)
            assessments.append(f"{one.id} {'needs an answer' if name == 'ask' else 'is tried again'}.")
    if operations:
        return {"assessment": " ".join(dict.fromkeys(assessments)), **operations}
    return _nothing_to_change(part, seen, area=area)


def _is_for(step: Step, area: str) -> bool:
    return not area if step.when.area is None else bool(area) and fnmatchcase(area, step.when.area)


def _otherwise(one: Seen) -> tuple[str, dict[str, JsonValue]]:
    """What to do about a subtask that no step of the script is about."""
    quoted = one.evidence[-QUOTED:]
    if one.status == "blocked" and not one.asked:
        question = f"The worker of {one.id!r} stopped for want of information: {quoted or one.title}"
        return "ask", {"about": one.id, "question": question}
    guidance = f"The last attempt failed ({one.kind or 'unknown'}): {quoted}\nTake another way."
    if one.answer:
        guidance = f"A human answered: {one.answer}"
    return "retry", {"id": one.id, "guidance": guidance}


def _nothing_to_change(part: PlannerScript, seen: tuple[Seen, ...], *, area: str) -> dict[str, JsonValue]:
    if seen and all(one.status in CLOSED for one in seen):
        synthesis = f"{area}: {', '.join(one.title for one in seen)}." if area else part.synthesis
        return {"assessment": "Everything has landed.", "finished": True, "synthesis": synthesis}
    counts: dict[str, int] = {}
    for one in seen:
        counts[one.status] = counts.get(one.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "nothing is planned"
    return {"assessment": f"The plan stands: {said}."}


def _fitting(step: Step, seen: tuple[Seen, ...], rejected: str) -> Iterator[dict[str, Any]]:
    """The step's revision, once for each subtask it is about; nothing where it does not fit."""
    when = step.when
    statuses = {one.id: one.status for one in seen}
    fits = (
        (not when.start or not seen)
        and all(statuses.get(id_) == "merged" for id_ in when.merged)
        and (not when.all_merged or (bool(seen) and set(statuses.values()) <= CLOSED))
        and (when.rejected is None or (bool(rejected) and fnmatchcase(rejected, when.rejected)))
    )
    if not fits:
        return
    document = step.revision.model_dump(mode="json", exclude_unset=True)
    if any(new.id in statuses for new in step.revision.add):
        document.pop("add", None)  # what it adds was added; a part of it may be gone from the state since
    if when.failed is None and when.answered is None:
        if when.rejected is not None:
            yield _with(document, answer=rejected)
        elif when.start or when.merged or when.all_merged:
            yield document
        return
    for one in seen:
        if _about(step, one):
            yield _filled(document, one)


def _about(step: Step, one: Seen) -> bool:
    when = step.when
    return (
        one.waits_for_decision
        and (when.failed is None or fnmatchcase(one.id, when.failed))
        and (when.failures is None or one.failures == when.failures)
        and (when.kind is None or one.kind == when.kind)
        and (when.answered is None or (fnmatchcase(one.id, when.answered) and bool(one.answer)))
    )


def _filled(document: dict[str, Any], one: Seen) -> dict[str, Any]:
    return _with(document, id=one.id, title=one.title, evidence=one.evidence[-QUOTED:], answer=one.answer)


def _with(document: dict[str, Any], **values: str) -> dict[str, Any]:
    """The placeholders filled in. Through JSON text, so that a quotation mark in the evidence stays one."""
    text = json.dumps(document)
    for name, value in values.items():
        text = text.replace("{" + name + "}", json.dumps(value)[1:-1])
    filled: dict[str, Any] = json.loads(text)
    return filled


def _holds(name: str, item: Mapping[str, Any], by_id: Mapping[str, Seen], already: Mapping[str, list[Any]]) -> bool:
    """Whether an operation still makes sense: this is what lets every step fire once, without a memory."""
    about = item.get("about" if name == "ask" else "id")
    if any(other.get("about" if name == "ask" else "id") == about for other in already.get(name, ())):
        return False
    if name == "add":
        return True
    if name == "ask":
        return not by_id if about is None else about in by_id and not by_id[about].asked
    one = by_id.get(str(about))
    if one is None or one.status in CLOSED:
        return False
    return one.waits_for_decision if name in {"retry", "split"} else True


def _seen(state: Mapping[str, Any]) -> Iterator[Seen]:
    questions = list(_items(state.get("questions")))
    for item in _items(state.get("subtasks")):
        id_ = str(item.get("id", ""))
        failures = list(_items(item.get("failures")))
        last: Mapping[str, Any] = failures[-1] if failures else {}
        about = [question for question in questions if question.get("about", id_) == id_]
        answers = [str(question["answer"]) for question in about if question.get("answer")]
        yield Seen(
            id=id_,
            title=str(item.get("title", "")),
            status=str(item.get("status", "")),
            failures=len(failures),
            kind=str(last.get("class", "")),
            evidence=str(last.get("evidence") or last.get("summary") or ""),
            asked=bool(about),
            pending=any(not question.get("answer") for question in about),
            answer=answers[-1] if answers else "",
        )


def _rejected(state: Mapping[str, Any]) -> str:
    """Why a person said no to the plan as it stands; empty where nobody did. An older no shows in what was revised."""
    asked = f"May version {state.get('plan_version')} of the plan begin?"
    said = [str(one.get("answer") or "") for one in _items(state.get("questions")) if _asks(one, asked)]
    last = said[-1] if said else ""
    return last.removeprefix(NO).partition(". Revise or drop")[0] if last.startswith(NO) else ""


def _asks(question: Mapping[str, Any], words: str) -> bool:
    return str(question.get("question", "")).startswith(words)


def _items(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
