"""An audit as text: each commit of a result branch, and the records that led to it."""

from collections.abc import Iterator
from datetime import UTC, datetime

from dashboards.text.formats import counted, kind_mark
from dashboards.text.safe import safe, safe_block
from fleet.core.facts.facts import CheckRun
from fleet.core.plans.parameters import value_text
from fleet.features.audit.audit_view import AppliedReview, ApprovalView, AuditView, CommitView, LandingRecord
from fleet.read.subtask_view import AttemptView

OUTPUT = 6  # lines of a check's output; --json and its log have more
TEXT = 300
TESTED = {
    "unknown": "no record of what was tested",
    "itself": "this exact tree was tested",
    "with what landed on it": "tested only together with the next",
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
        return "audit passed: the result branch has no commits, as the journal says"
    verdict = f"audit passed: {counted(len(view.commits), 'commit')}, each accounted for in journal and git"
    unknown = sum(commit.landing is not None and commit.landing.tested == "unknown" for commit in view.commits)
    return f"{verdict}; {unknown} without a record of what was tested" if unknown else verdict


def _review(review: AppliedReview) -> str:
    rules = ", ".join(f"{key} {safe(value)}" for key, value in review.rules.items() if value not in (None, []))
    return {
        "human": f"a person approves the first plan, the rules approve changes to it ({rules})",
        "auto": f"the rules approve ({rules}); a person decides on what they stop",
        "none": "no review was requested",
    }.get(review.by or "", "from a version without review rules: a person approves the first plan, or none is needed")


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
        what = f"attempt {found.attempt}, {found.became or 'open'}"
        yield f"  finding    {place}: {safe(found.problem, limit=TEXT)} ({what})"
    if commit.landing is not None:
        yield from _landing_lines(commit.landing)
    yield from (f"  PROBLEM  {safe(problem, limit=TEXT)}" for problem in commit.problems)


def _approval(approval: ApprovalView) -> str:
    if approval.by is None or approval.at is None:
        return "missing, though the run requires one" if approval.asked_for else "not reviewed: no review was requested"
    later = f"; version {approval.in_force} was in force" if approval.in_force != approval.version else ""
    rules = "; ".join(map(safe, approval.stopped_by))
    stopped = f"; the rules stop it: {rules}" if rules else ""
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
