"""The verbs `fleet audit` and `fleet commits`."""

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.formats import counted, kind_mark
from dashboards.text.safe import safe, safe_block
from fleet.cli import common
from fleet.cli.common import HERE, AsJson, Repo, RunArgument, RunName, reading
from fleet.core.facts.facts import CheckRun
from fleet.core.plans.parameters import value_text
from fleet.errors import FleetError, UsageError
from fleet.features.audit.attribution import commits_lines, commits_view, read_attribution
from fleet.features.audit.audit import audit_run, read_facts, read_result_branch
from fleet.features.audit.audit_view import (
    AppliedReview,
    ApprovalView,
    AuditView,
    CommitView,
    LandingRecord,
    audit_view,
)
from fleet.read.subtask_view import AttemptView
from fleet.runs.journal import Journal

# ---- audit text ------------------------------------------------------------------------------------------------------
# An audit as text: each commit of a result branch with the records that led to it.


OUTPUT = 6  # lines of a check's output; `--json` and the log have more
TEXT = 300
TESTED = {
    "unknown": "no record of the tests",
    "itself": "this exact tree was tested",
    "with what landed on it": "only tested together with the next commit",
}


def audit_lines(view: AuditView) -> Iterator[str]:
    tip = f" to {view.tip[:12]}" if view.tip else ""
    yield f"{safe(view.run)}{kind_mark(view)}"
    yield f"  epic     {safe(view.epic, limit=TEXT)}"
    for name, value in view.plan_values.items():
        yield f"  set      {safe(name)} = {safe(value_text(value), limit=TEXT)}"
    yield f"  branch   {safe(view.result_branch)}, from {safe(view.base_name)} {view.base[:12]}{tip}"
    yield f"  review   {_review(view.review)}"
    for commit in view.commits:
        yield ""
        yield from _commit_lines(commit)
    yield ""
    if view.not_published:
        yield f"not on the result branch yet: {', '.join(sha[:12] for sha in view.not_published)}"
    yield from (f"PROBLEM  {safe(problem, limit=TEXT)}" for problem in view.problems)
    yield _verdict(view)


def _verdict(view: AuditView) -> str:
    problems = len(view.problems) + sum(len(commit.problems) for commit in view.commits)
    if problems:
        return f"audit failed: {counted(problems, 'problem')}, marked PROBLEM above"
    if not view.commits:
        return "audit passed: the result branch has no commits, as recorded in the journal"
    verdict = f"audit passed: {counted(len(view.commits), 'commit')}, each matches the journal"
    unknown = sum(commit.landing is not None and commit.landing.tested == "unknown" for commit in view.commits)
    return f"{verdict}; {unknown} without a record of tests" if unknown else verdict


def _review(review: AppliedReview) -> str:
    rules = ", ".join(f"{key} {safe(value)}" for key, value in review.rules.items() if value not in (None, []))
    return {
        "human": f"a person approves the first plan, the rules approve changes to it ({rules})",
        "auto": f"the rules approve ({rules}), and a person decides on the rest",
        "none": "no review was requested",
    }.get(review.by or "", "not recorded: the run was started by a version of fleet without review rules")


def _commit_lines(commit: CommitView) -> Iterator[str]:
    subject = commit.subject if commit.on_branch else "(not on the branch)"
    yield f"{(commit.commit or '?')[:12]}  {safe(subject, limit=TEXT)}"
    for version in commit.plan or ():
        area = f" of the area {safe(version.area)}" if version.area else ""
        author = f"{safe(version.by)}{area}, {_time(version.at)}"
        yield f"  plan       version {version.version} by {author}: {safe(version.why, limit=TEXT)}"
    if commit.approval is not None:
        for rejection in commit.approval.rejections:
            reviewer = f"{safe(rejection.by)}, {_time(rejection.at)}"
            yield f"  rejected   version {rejection.version} by {reviewer}: {safe(rejection.why, limit=TEXT)}"
        yield f"  approval   {_approval(commit.approval)}"
    if (subtask := commit.subtask) is not None:
        split = f", split from {safe(subtask.split_from)}" if subtask.split_from else ""
        goal = f": {safe(subtask.spec.goal, limit=TEXT)}" if subtask.spec is not None else ""
        yield f"  subtask    {safe(subtask.id)}{split}{goal}"
    for attempt in commit.attempts or ():
        yield from _attempt_lines(attempt)
    for found in commit.findings or ():
        place = f"{safe(found.file, limit=TEXT)}:{found.line}"
        what = f"attempt {found.attempt}, {found.outcome or 'open'}"
        yield f"  finding    {place}: {safe(found.problem, limit=TEXT)} ({what})"
    if commit.landing is not None:
        yield from _landing_lines(commit.landing)
    yield from (f"  PROBLEM  {safe(problem, limit=TEXT)}" for problem in commit.problems)


def _approval(approval: ApprovalView) -> str:
    if approval.by is None or approval.at is None:
        return "missing, though the run requires one" if approval.required else "not reviewed: no review was requested"
    later = f"; version {approval.plan_version} was in force" if approval.plan_version != approval.version else ""
    rules = "; ".join(map(safe, approval.broken_rules))
    stopped = f"; not approved by the rules: {rules}" if rules else ""
    return f"version {approval.version} by {safe(approval.by)}, {_time(approval.at)}{later}{stopped}"


def _attempt_lines(attempt: AttemptView) -> Iterator[str]:
    failure = attempt.failure
    worker = f"{safe(attempt.worker)} ({safe(attempt.model or 'no model')})"
    worker += f" on {safe(attempt.node)}" if attempt.node else ""
    outcome = "landed" if attempt.landed else "open"
    if failure is not None:
        outcome = f"failed: {safe(failure.kind)}: {safe(failure.summary, limit=TEXT)}"
    yield f"  attempt {attempt.number}  {worker}, {attempt.strategy}, {_time(attempt.started_at)}: {outcome}"
    if attempt.guidance:
        yield f"    guidance {safe(attempt.guidance, limit=TEXT)}"
    for told in attempt.instructions:
        yield f"    told     {safe(told, limit=TEXT)}"
    for check in attempt.checks:
        yield from _check_lines(check)


def _landing_lines(landing: LandingRecord) -> Iterator[str]:
    tree = f"tree {landing.tree[:12]}, " if landing.tree else ""
    published = f", published {_time(landing.published_at)}" if landing.published_at is not None else ""
    yield f"  landing    batch {landing.batch}, {_time(landing.at)}{published}; {tree}{TESTED[landing.tested]}"
    for check in landing.checks:
        yield from _check_lines(check)


def _check_lines(check: CheckRun) -> Iterator[str]:
    verdict = "passed" if check.passed else "FLAKY " if check.flaky else "FAILED"
    log = f"  {safe(check.log)}" if check.log else ""
    yield f"    {verdict}   {safe(check.command, limit=TEXT)}{log}"
    if check.output.strip():
        yield from (f"             | {line}" for line in safe_block(check.output, lines=OUTPUT).splitlines())


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ---- verbs -----------------------------------------------------------------------------------------------------------


PERIODS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def commits(
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Count commits since this time: 1w, 3d, 12h, or a day such as 2026-11-02."
        ),
    ] = None,
    repo: Repo = HERE,
    as_json: AsJson = False,
) -> None:
    """Show statistics about commits made by fleet.

    Counts commits on all branches by week, model and worker, and the share that was reverted later. fleet's commits are
    recognized by the trailers in their messages.

    \b
    Examples:
      fleet commits --since 1w
      fleet commits --repo ../service --json | jq .commits
    """
    earliest = _parse_since(since, time.time()) if since is not None else None
    view = commits_view(common.run_async(lambda: read_attribution(repo, since=earliest)), since=since)
    common.show_view(view, commits_lines, as_json=as_json)


def _parse_since(text: str, now: float) -> float:
    """Return the time that a period or a date stands for."""
    period = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if period is not None:
        return max(0.0, now - int(period[1]) * PERIODS[period[2]])
    try:
        day = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"invalid value for --since: {text!r}", hint="use 1w, 3d, 12h or a day such as 2026-11-02"
        ) from error
    return (day if day.tzinfo is not None else day.replace(tzinfo=UTC)).timestamp()


def audit(
    run: RunArgument = None,
    named: RunName = None,
    repo: Repo = HERE,
    moved_to: Annotated[
        Path | None,
        typer.Option("--moved-to", metavar="DIR", help="The new path of the run's repository, if it was moved."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every commit on a run's result branch against the journal.

    Compares the records of each commit (epic, plan, approval, subtask, attempts, checks, landing) with git. Exits with
    code 1 if they differ or a record is missing.

    \b
    Examples:
      fleet audit RUN
      fleet audit RUN --json | jq '.commits[] | {commit, problems}'
      fleet audit RUN --moved-to ../service && git merge fleet/RUN
    """
    folder = common.run_to_read(run, named, repo)
    with Journal(folder.journal) as journal:
        with reading(folder, journal) as facts:
            before = read_facts(facts)
        if (state := before.state) is None:
            raise FleetError(f"{folder.journal} does not contain a run: {'; '.join(before.problems) or 'it is empty'}")
        path = moved_to or Path(state.repository)
        if moved_to is None and not path.exists():
            raise UsageError(f"the repository {path} no longer exists", hint="if it was moved, use --moved-to DIR")
        name, tip = state.result_branch, before.published
        branch = common.run_async(lambda: read_result_branch(path, name, base=state.base, instead=tip))
        with reading(folder, journal) as facts:
            result = audit_run(read_facts(facts), state, branch)  # read again, because more may have landed
    common.show_view(audit_view(result), audit_lines, as_json=as_json)
    if not result.holds:
        raise typer.Exit(1)
