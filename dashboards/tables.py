"""Answers of the command line in plain text: runs, a status, a subtask."""

from collections.abc import Sequence
from typing import Any

from dashboards.figures import duration, money, untested
from dashboards.safe import safe, safe_block
from dashboards.stories import rates_lines, story_lines
from dashboards.words import waiting_line

NAMED = 8  # subtasks in a line


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their columns lined up."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))] if rows else []
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def policy_lines(said: dict[str, Any]) -> list[str]:
    """What `fleet explain-policy` prints."""
    ladder = [(row["kind"], "yes" if row["counts"] else "no", row["first"], row["what"]) for row in said["ladder"]]
    limits = [
        (row["key"], "none" if row["limit"] is None else f"{row['limit']:g}", row["then"]) for row in said["limits"]
    ]
    return [
        *columns([("FAILURE", "COUNTS", "FIRST", "WHAT IT IS"), *ladder]),
        "",
        *columns([("FAILURE_ACTION", "WHAT HAPPENS"), *said["failure_action"].items()]),
        "",
        *columns([("LIMIT", "IS", "WHAT IT BOUNDS, AND WHAT THEN"), *limits]),
    ]


def runs_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    head = ("RUN", "STATE", "LANDED", "COST", "TIME", "REPOSITORY", "GOAL")
    cells = [
        (
            safe(row["run"]),
            row["state"],
            f"{row['commits']} of {sum(row['subtasks'].values())}",
            money(row["cost_dollars"]),
            duration(row["seconds"]),
            safe(row["repository"]),
            safe(row["goal"], limit=50),
        )
        for row in rows
    ]
    return columns([head, *cells])


def status_lines(status: dict[str, Any]) -> list[str]:
    agents, subtasks = status["agents"], status["subtasks"]
    lines = [
        f"{safe(status['run'])}  {status['state']}{'  (simulated model)' if status['simulated'] else ''}",
        f"  goal       {safe(status['goal'], limit=100)}",
        f"  subtasks   {', '.join(f'{count} {name}' for name, count in subtasks.items()) or 'none planned yet'}",
        f"  agents     {agents['running']} running, {agents['peak']} at the peak, {agents['limit']} allowed",
        f"  attempts   {status['attempts']}",
        f"  commits    {status['commits']}{untested(status['commits'], status['commits_tested'])}",
        *rates_lines(status["incidents"]),
        f"  cost       {money(status['cost_dollars'])}",
        f"  time       {duration(status['seconds'])}",
        f"  branch     {safe(status['result_branch'] or 'nothing landed yet')}",
    ]
    if status["why"]:
        lines.append(f"  because    {safe(status['why'], limit=300)}")
    lines += [f"  WAITING    {waiting_line(wait['said'], wait['seconds'])}" for wait in status["service"]]
    if status["sandbox"] == "none":
        lines.append("  sandbox    NONE: commands run with your rights")
    lines += [f"  note       {safe(text)}" for text in status["warnings"]]
    lines += _waiting_lines(status)
    lines += [
        f"  QUESTION   {question['id']}: {safe(question['question'], limit=200)}  →  fleet answer {question['id']} TEXT"
        for question in status["questions"]
    ]
    return lines


def _waiting_lines(status: dict[str, Any]) -> list[str]:
    """What only a person's word can let begin, and what to type."""
    waits = status["waiting_for_approval"]
    if not waits:
        return []
    named = [f"{safe(id_)} ({'; '.join(map(safe, why))})" if why else safe(id_) for id_, why in waits.items()][:NAMED]
    more = f" and {len(waits) - NAMED} more" if len(waits) > NAMED else ""
    return [f"  APPROVAL   {', '.join(named)}{more} waits for it  →  fleet approve {safe(status['run'])}"]


def subtask_lines(view: dict[str, Any]) -> list[str]:
    spec = view["subtask"]
    lines = [f"{safe(spec['id'])}  {view['status']}  {safe(spec['title'])}", f"  {safe(spec['goal'], limit=600)}"]
    if spec["depends_on"]:
        lines.append(f"  after   {', '.join(map(safe, spec['depends_on']))}")
    if spec["not_before"]:
        lines.append(f"  not before {safe(spec['not_before'])}")
    if spec["touches"]:
        lines.append(f"  touches {', '.join(map(safe, spec['touches']))}")
    lines += [f"  check   {safe(c['run'] or c['criterion'])}  ({safe(c['criterion'])})" for c in spec["acceptance"]]
    if view["parts"]:
        lines.append(f"  split into {', '.join(map(safe, view['parts']))}")
    for attempt in view["attempts"]:
        lines += _attempt_lines(attempt)
    lines += map(_batch_line, view["batches"])
    for story in view["incidents"]:
        lines += story_lines(story, evidence=0)  # it stands with the attempts
    return lines


def _batch_line(batch: dict[str, Any]) -> str:
    """What was found out about it together with others."""
    members, suspects = batch["members"], batch["suspects"]
    size = "alone" if len(members) == 1 else f"of {len(members)}"
    found = f"landed {len(batch['landed'])}" if batch["landed"] else "red" if batch["red"] else "nothing landed"
    if len(suspects) == 1:
        found += f", {safe(suspects[0])} is suspected"
    elif suspects:
        found += f", one of {len(suspects)} is guilty: {', '.join(map(safe, suspects[:8]))}"
    if batch["sent_back"]:
        found += f", sent back: {', '.join(map(safe, batch['sent_back'][:8]))}"
    times = batch["gate_runs"]
    return f"Batch {batch['number']}  {size}  {found}  ({times} run{'s' * (times != 1)} of the gate)"


def _verdict(check: dict[str, Any]) -> str:
    return "passed" if check["passed"] else "FLAKY " if check["flaky"] else "FAILED"


def _attempt_lines(attempt: dict[str, Any]) -> list[str]:
    failure, report = attempt["failure"], attempt["report"]
    end = f"failed: {failure['kind']}" if failure else "open"
    if attempt["landed"]:
        end = "done, no file changed" if attempt["unchanged"] else f"landed as {safe(attempt['landed'][:7])}"
        end += "" if attempt["tested"] else ", tested with what landed on it"
    who = f"{safe(attempt['worker'])} ({safe(attempt['model'])})"
    turns = f"{attempt['turns']} turn{'s' * (attempt['turns'] != 1)}"
    spent = f"{turns}  {duration(attempt['seconds'])}  {money(attempt['cost_dollars'])}"
    lines = [f"Attempt {attempt['number']}  {who}  {attempt['strategy']}  {spent}  {end}"]
    if attempt["guidance"]:
        lines.append(f"  guidance  {safe(attempt['guidance'], limit=300)}")
    if report:
        lines.append(f"  reported  {report['status']}: {safe(report['summary'], limit=300)}")
    if attempt["paths"]:
        lines.append(f"  changed   {', '.join(map(safe, attempt['paths'][:12]))}")
    lines += [
        f"  {_verdict(check)}    {safe(check['command'])}  {duration(check['seconds'])}"
        + (f"  {safe(check['log'])}" if check["log"] else "")
        for check in attempt["checks"]
    ]
    if failure:
        lines.append(f"  failure   {safe(failure['summary'], limit=300)}")
        lines += [f"    {line}" for line in safe_block(failure["evidence"], lines=24).splitlines()]
    return lines
