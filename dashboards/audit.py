"""An audit in plain text: each commit of a result branch, and the chain that led to it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from dashboards.reviewing import value_lines
from dashboards.safe import safe, safe_block

PRINTED = 6  # lines of what a check printed; --json and its log have more
SENTENCE = 300


def audit_lines(view: dict[str, Any]) -> list[str]:
    return list(_lines(view))


def _lines(view: dict[str, Any]) -> Iterator[str]:
    simulated = "  (simulated model)" if view["simulated"] else ""
    tip = f" to {view['tip'][:12]}" if view["tip"] else ""
    yield f"{safe(view['run'])}{simulated}"
    yield f"  epic     {safe(view['epic'], limit=SENTENCE)}"
    yield from (f"  set      {line.removeprefix('Set: ')}" for line in value_lines(view["plan_values"]))
    yield f"  branch   {safe(view['result_branch'])}, from {safe(view['base_name'])} {view['base'][:12]}{tip}"
    yield f"  review   {_review(view['review'])}"
    for commit in view["commits"]:
        yield ""
        yield from _commit(commit)
    yield ""
    if view["not_published"]:
        yield f"not on the result branch yet: {', '.join(sha[:12] for sha in view['not_published'])}"
    yield from (f"DOES NOT HOLD  {safe(problem, limit=SENTENCE)}" for problem in view["problems"])
    yield _verdict(view)


def _verdict(view: dict[str, Any]) -> str:
    commits = view["commits"]
    found = len(view["problems"]) + sum(len(commit["problems"]) for commit in commits)
    if found:
        return f"the audit does not hold: {found} problem{'s' * (found != 1)}, marked DOES NOT HOLD above"
    if not commits:
        return "nothing is on the result branch, and the journal says so too"
    said = f"the audit holds: {len(commits)} commit{'s' * (len(commits) != 1)}, each accounted for in journal and git"
    silent = sum(commit["landing"]["tested"] == "unknown" for commit in commits)
    return f"{said}; of {silent} of them there is no record of what was tested" if silent else said


def _commit(commit: dict[str, Any]) -> Iterator[str]:
    named = commit["subject"] if commit["on_branch"] else "(not on the branch)"
    yield f"{(commit['commit'] or '?')[:12]}  {safe(named, limit=SENTENCE)}"
    if commit["landing"] is not None:
        yield from _chain(commit)
    yield from (f"  DOES NOT HOLD  {safe(problem, limit=SENTENCE)}" for problem in commit["problems"])


def _chain(commit: dict[str, Any]) -> Iterator[str]:
    for version in commit["plan"]:
        area = f" of the area {safe(version['area'])}" if version["area"] else ""
        yield (
            f"  plan       version {version['version']} by {safe(version['by'])}{area}, {_when(version['at'])}: "
            f"{safe(version['why'], limit=SENTENCE)}"
        )
    if commit["approval"] is not None:
        for no in commit["approval"]["rejections"]:
            why = safe(no["why"], limit=SENTENCE)
            yield f"  rejected   version {no['version']} by {safe(no['by'])}, {_when(no['at'])}: {why}"
        yield f"  approval   {_approval(commit['approval'])}"
    yield f"  subtask    {_subtask(commit['subtask'])}"
    for attempt in commit["attempts"]:
        yield from _attempt(attempt)
    yield from _landing(commit["landing"])


def _review(review: dict[str, Any]) -> str:
    rules = ", ".join(f"{key} {safe(value)}" for key, value in review["rules"].items() if value not in (None, []))
    return {
        "human": f"the first plan by a person, what changed it by the rules ({rules})",
        "auto": f"by the rules ({rules}); what they stop by a person",
        "none": "none: the run was begun without one",
    }.get(review["by"], "as before there were rules: the first plan by a person, or none")


def _approval(approval: dict[str, Any]) -> str:
    if approval["by"] is None:
        return (
            "none yet, though the run asked for one" if approval["asked_for"] else "not reviewed: nobody asked for it"
        )
    later = f"; version {approval['in_force']} was in force" if approval["in_force"] != approval["version"] else ""
    stopped = "; ".join(map(safe, approval["stopped_by"]))
    why = f"; the rules stop it: {stopped}" if stopped else ""
    return f"version {approval['version']} by {safe(approval['by'])}, {_when(approval['at'])}{later}{why}"


def _subtask(subtask: dict[str, Any]) -> str:
    split = f", split from {safe(subtask['split_from'])}" if subtask["split_from"] else ""
    goal = f": {safe(subtask['goal'], limit=SENTENCE)}" if "goal" in subtask else ""
    return f"{safe(subtask['id'])}{split}{goal}"


def _attempt(attempt: dict[str, Any]) -> Iterator[str]:
    failure = attempt["failure"]
    who = f"{safe(attempt['worker'])} ({safe(attempt['model'] or 'no model')})"
    end = "landed" if attempt["landed"] else "open"
    if failure is not None:
        end = f"failed: {safe(failure['kind'])}: {safe(failure['summary'], limit=SENTENCE)}"
    yield f"  attempt {attempt['number']}  {who}, {attempt['strategy']}, {_when(attempt['started_at'])}: {end}"
    if attempt["guidance"]:
        yield f"    told     {safe(attempt['guidance'], limit=SENTENCE)}"
    for check in attempt["checks"]:
        yield from _check(check)


def _landing(landing: dict[str, Any]) -> Iterator[str]:
    tree = f"tree {landing['tree'][:12]}, " if landing["tree"] else ""
    tested = {
        "unknown": "what was tested is not on record",
        "itself": "tested itself",
        "with what landed on it": "tested with what landed on it",
    }[landing["tested"]]
    published = f", published {_when(landing['published_at'])}" if landing["published_at"] is not None else ""
    yield f"  landing    batch {landing['batch']}, {_when(landing['at'])}{published}; {tree}{tested}"
    for check in landing["checks"]:
        yield from _check(check)


def _check(check: dict[str, Any]) -> Iterator[str]:
    verdict = "passed" if check["passed"] else "FLAKY " if check["flaky"] else "FAILED"
    log = f"  {safe(check['log'])}" if check["log"] else ""
    yield f"    {verdict}   {safe(check['command'], limit=SENTENCE)}{log}"
    if check["output"].strip():
        yield from (f"             | {line}" for line in safe_block(check["output"], lines=PRINTED).splitlines())


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
