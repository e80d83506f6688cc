"""Views: the state as others read it — the planner's shared state, and the status a script or a person asks for."""

from typing import Any

from fleet.core.approval import awaited, awaits_approval, stopped_by
from fleet.core.areas import Area, planning_of, seen_by, spent
from fleet.core.budget import over_budget, run_budgets
from fleet.core.calling import planner_is_lost
from fleet.core.facts import Role
from fleet.core.flat import is_flat
from fleet.core.ids import SubtaskId
from fleet.core.incidents import Incidents, Rate, rates_of
from fleet.core.outages import in_words
from fleet.core.plan import Subtask
from fleet.core.standing import Standing, counts, standing, standings
from fleet.core.state import Outage, Question, Review, RunState, SubtaskState, Tried
from fleet.core.stories import stories, story_of, story_view
from fleet.core.usage import Spend

EVIDENCE = 3_000  # characters of evidence a planner sees of one failure
GOAL = 1_000  # characters of an open subtask's goal it sees
HISTORY = 4  # failures of one subtask it sees
ROLES: tuple[Role, ...] = ("planner", "worker")  # that every run has
ROUNDED = {"dollars": 4, "tokens": 0, "minutes": 1, "attempts": 0}


def planner_state(state: RunState, now: float, area: Area = None) -> dict[str, Any]:
    """The `<state>` block of the model protocol: of the whole run, or of an area."""
    reading = planning_of(state, area).reading
    seen = seen_by(state, area)
    asked = (q for q in state.questions.values() if (q.about in seen if q.about is not None else q.area == area))
    return {
        "run": state.run,
        **({"area": area} if area is not None else {}),
        "goal": state.spec(area).goal if area is not None else state.plan.goal or state.goal[:2000],
        **({"flat": True} if state.policy.flat else {}),
        "plan_version": state.plan.version,
        "tip": state.tip,
        "budget": budget_left(state, now, area),
        "subtasks": [_for_planner(state, spec, now) for spec in state.plan.subtasks if spec.id in seen],
        "reports_since_last_call": list(reading.reports),
        "questions": [
            {"id": question.id, "about": question.about, "question": question.text, "answer": question.answer}
            for question in asked
        ],
    }


def area_view(state: RunState, area: SubtaskId) -> dict[str, Any]:
    """What an area is, for its planner: the subtask, and why an earlier attempt at it came to nothing."""
    spec, subtask = state.spec(area), state.subtasks[area]
    return {
        "subtask": spec.model_dump(mode="json", exclude_defaults=True),
        "attempt": len(subtask.attempts),
        "guidance": subtask.attempts[-1].guidance,
        "failures": _failures(subtask),
        "results": {need: _result(state.subtasks[need]) for need in spec.depends_on},
    }


def budget_left(state: RunState, now: float, area: Area = None) -> dict[str, float | str | None]:
    """What is left: of dollars and minutes always, None without a limit; and a word when it is little."""
    budgets = {budget.unit: budget.left for budget in run_budgets(state, now)}
    share = state.subtasks[area].attempts[-1].allowance if area is not None else None
    if area is not None and share is not None:
        own = max(0.0, share - spent(state, area))
        budgets["dollars"] = min(own, budgets.get("dollars", own))
    left = {f"{unit}_left": round(amount, ROUNDED[unit]) for unit, amount in budgets.items()}
    said: dict[str, float | str | None] = {"dollars_left": None, "minutes_left": None, **left}
    return {**said, "low": f"{state.low}: see that what is close gets done"} if state.low else said


def _for_planner(state: RunState, spec: Subtask, now: float) -> dict[str, Any]:
    subtask = state.subtasks[spec.id]
    where = standing(state, spec.id, now)
    last = subtask.last
    report = last.report if last is not None else None
    open_ = {} if subtask.closed else _to_do(spec)
    return {
        "id": spec.id,
        "title": spec.title,
        "status": "dropped" if where == "split" else where,
        "attempts": len(subtask.attempts),
        "depends_on": list(spec.depends_on),
        "worker": spec.worker,
        "result": _result(subtask),
        "recommendations": [*report.recommendations, *report.needs, *report.discovered] if report else [],
        "failures": _failures(subtask),
        **open_,
    }


def _to_do(spec: Subtask) -> dict[str, Any]:
    """What an open subtask asks for, so that it can be judged and revised."""
    checks = [criterion.run or criterion.criterion for criterion in spec.acceptance]
    return {"goal": spec.goal[:GOAL], "touches": list(spec.touches), "acceptance": checks}


def _result(subtask: SubtaskState) -> str:
    if subtask.parts:
        return f"split into {', '.join(subtask.parts)}"
    report = subtask.last.report if subtask.last is not None else None
    return report.summary if report else ""


def _failures(subtask: SubtaskState) -> list[dict[str, Any]]:
    failures = [
        {
            "attempt": attempt.number,
            "class": attempt.failure.kind,
            "strategy": attempt.strategy,
            "evidence": f"{attempt.failure.summary}\n{attempt.failure.evidence}"[-EVIDENCE:].strip(),
        }
        for attempt in subtask.attempts
        if attempt.failure is not None
    ]
    return failures[-HISTORY:]


# ---- status ---------------------------------------------------------------------------------------------------------


def run_word(state: RunState, now: float, *, alive: bool) -> str:
    """One word for how a run is: what a person asks first."""
    if state.ending is not None:
        return state.ending
    if not alive:
        return "interrupted"
    if state.draining:
        return "draining"
    if state.paused:
        return "paused"
    if awaits_approval(state) and not any(state.underway()) and state.planning.open is None:
        return "awaiting approval"
    if over_budget(state, now) is not None:
        return "over budget"
    if planner_is_lost(state) and not any(state.underway()):
        return "waiting for the planner"
    return "planning" if not state.plan.subtasks else "running"


def status(state: RunState, now: float, *, alive: bool) -> dict[str, Any]:
    """What `fleet status --json` prints. Its keys are public."""
    return {
        "run": state.run,
        "state": run_word(state, now, alive=alive),
        "why": state.ending_why,
        "goal": state.plan.goal or state.goal,
        "repository": state.repository,
        "plan_version": state.plan.version,
        "subtasks": dict(sorted(counts(state, now).items())),
        "agents": {"running": state.working() if alive else 0, "peak": state.peak, "limit": state.policy.workers},
        "attempts": state.attempts,
        "commits": state.commits,
        "commits_tested": commits_tested(state),
        "landing": {
            "batches": state.landing.batches,
            "red": state.landing.red,
            "gate_runs": sum(tried.gate_runs for tried in state.landing.tried),
        },
        "incidents": incident_counts(state.incidents),
        "tokens": {role: _tokens(spend) for role, spend in spend_by_role(state).items()},
        "cost_dollars": state.spent.dollars,
        "cost_by_role": {role: spend.dollars for role, spend in spend_by_role(state).items()},
        "cost_in_doubt": state.doubt.model_dump(),
        "budget": {
            budget.unit: {"limit": budget.limit, "left": round(budget.left, ROUNDED[budget.unit])}
            for budget in run_budgets(state, now)
        },
        "simulated": state.simulated,
        "sandbox": state.sandbox,
        "seconds": round(state.seconds(now), 3),
        "service": [service_view(scope, outage, now) for scope, outage in state.service.items()] if alive else [],
        "questions": [question_view(question) for question in state.open_questions()],
        "result_branch": state.result_branch if state.published else None,
        "base": state.base,
        "tip": state.tip,
        "never_green": [check.command for check in state.red_base],
        "warnings": list(state.warnings),
        "flat": is_flat(state.versions[0].plan) if state.versions else None,
        "plan_warnings": list(state.noticed),
        "plan_values": dict(state.values),
        "waiting_for_approval": {id_: list(stopped_by(state, id_)) for id_ in awaited(state)},
        "reviews": [review_view(review) for review in state.reviews],
        "planner": planner_health(state, now),
    }


def run_view(state: RunState, now: float, *, alive: bool) -> dict[str, Any]:
    """What `fleet show RUN --json` prints: how the run is, and the story of everything that failed."""
    return {
        "run": state.run,
        "state": run_word(state, now, alive=alive),
        "goal": state.plan.goal or state.goal,
        "simulated": state.simulated,
        "subtasks": dict(sorted(counts(state, now).items())),
        "rates": incident_counts(state.incidents),
        "incidents": [story_view(story) for story in stories(state, now)],
    }


def review_view(review: Review) -> dict[str, Any]:
    """Who approved or rejected what, when and in which version."""
    return {
        "version": review.version,
        "verdict": "rejected" if review.rejected else "approved",
        "subtasks": list(review.subtasks),
        "by": review.by,
        "automatic": review.automatic,
        "at": review.at,
        "why": review.why,
    }


def commits_tested(state: RunState) -> int:
    """How many of the commits that landed had their own tree tested, not only one further up."""
    return sum(attempt.tested for subtask in state.subtasks.values() for attempt in subtask.attempts)


def spend_by_role(state: RunState) -> dict[Role, Spend]:
    return {**{role: Spend() for role in ROLES}, **state.spend}


def planner_health(state: RunState, now: float) -> dict[str, Any]:
    """Whether the run's planner answers, and when it is asked again where it does not."""
    planning = state.planning
    failing = planning.last_failure
    return {
        "calls": planning.calls,
        "failures_in_a_row": planning.failures,
        "last_failure": failing.summary if failing is not None else None,
        "next_try_s": round(max(0.0, planning.not_before - now), 1) if failing is not None else None,
    }


def service_view(scope: str, outage: Outage, now: float) -> dict[str, Any]:
    """What calls wait for at the models' service."""
    return {
        "family": scope or None,
        "condition": outage.condition,
        "why": outage.why,
        "since": outage.since,
        "seconds": round(now - outage.since, 3),
        "said": in_words(scope, outage),
    }


def question_view(question: Question) -> dict[str, Any]:
    return {
        "id": question.id,
        "about": question.about,
        "question": question.text,
        "options": list(question.options),
        "answer": question.answer,
    }


def _tokens(spend: Spend) -> dict[str, int]:
    return {"calls": spend.calls, **spend.usage.model_dump()}


def incident_counts(incidents: Incidents) -> dict[str, Any]:
    """What became of incidents: each rate with what it is a rate of, None where nothing closed."""
    rates = rates_of(incidents)
    return {
        "opened": rates.opened,
        "open": rates.opened - rates.total.closed,
        **_rate(rates.total),
        "by_class": {kind: {"opened": opened, **_rate(rate)} for kind, (opened, rate) in rates.by_class.items()},
        "by_strategy": {name: _rate(rate) for name, rate in rates.by_strategy.items()},
    }


def _rate(rate: Rate) -> dict[str, Any]:
    share = rate.share
    return {
        "closed": rate.closed,
        "recovered": rate.recovered,
        "unrecovered": rate.closed - rate.recovered,
        "rate": round(share, 4) if share is not None else None,
    }


def subtask_rows(state: RunState, now: float) -> list[tuple[Subtask, SubtaskState, Standing]]:
    where = standings(state, now)
    return [(spec, state.subtasks[spec.id], where[spec.id]) for spec in state.plan.subtasks]


def subtask_view(state: RunState, spec: Subtask, now: float) -> dict[str, Any]:
    """What `fleet show SUBTASK --json` prints."""
    subtask = state.subtasks[spec.id]
    return {
        "subtask": spec.model_dump(mode="json"),
        "status": standing(state, spec.id, now),
        "landed": subtask.landed,
        "parts": list(subtask.parts),
        "dropped": subtask.dropped,
        "cost_dollars": subtask.spend.dollars,
        "tokens": _tokens(subtask.spend),
        "attempts": [
            {
                "number": attempt.number,
                "worker": attempt.worker,
                "model": attempt.model,
                "strategy": attempt.strategy,
                "guidance": attempt.guidance,
                "base": attempt.base,
                "commit": attempt.commit,
                "landed": attempt.landed,
                "unchanged": attempt.unchanged,
                "tested": attempt.tested,
                "paths": list(attempt.paths),
                "turns": attempt.turn,
                "cost_dollars": attempt.spend.dollars,
                "tokens": _tokens(attempt.spend),
                "seconds": round((attempt.ended_at or now) - attempt.started_at, 3),
                "report": attempt.report.model_dump(mode="json") if attempt.report else None,
                "failure": attempt.failure.model_dump(mode="json") if attempt.failure else None,
                "checks": [check.model_dump(mode="json") for check in attempt.checks],
            }
            for attempt in subtask.attempts
        ],
        "batches": [batch_view(tried) for tried in state.landing.tried if _concerns(tried, spec.id)],
        "incidents": [story_view(story_of(state, one, now)) for one in state.incidents if one.subtask == spec.id],
    }


def _concerns(tried: Tried, id_: SubtaskId) -> bool:
    return id_ in tried.members or id_ in tried.suspects


def batch_view(tried: Tried) -> dict[str, Any]:
    """One step of landing: what was tested together, and whom that left under suspicion."""
    return {
        "number": tried.number,
        "members": list(tried.members),
        "alone": tried.alone,
        "red": tried.red,
        "suspects": list(tried.suspects),
        "landed": list(tried.landed),
        "sent_back": list(tried.ejected),
        "failed": list(tried.failed),
        "gate_runs": tried.gate_runs,
        "seconds": round(tried.seconds, 3),
    }
