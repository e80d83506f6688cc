"""The text of a rehearsal: the verdict, the measurements or redone commits, and the recommended settings."""

from collections.abc import Iterator, Sequence

from dashboards.text.formats import counted, duration, money
from dashboards.text.safe import safe
from fleet.core.plans.plan import Plan
from fleet.features.rehearse.rehearsal_view import (
    GateView,
    LeftOutCommit,
    PastCommitNote,
    PastTasksView,
    RedoneCommit,
    RehearsalView,
    WorkerScore,
)

SHOWN = 8  # commits listed per kind
TEXT = 160
LISTED = 12  # commits listed as left out
TITLE, WHY = 56, 110
LAST_LINES = 12  # of a failed gate's output


def plan_line(plan: Plan) -> str:
    """Summarize how many commits of a plan are independent."""
    free = sum(not subtask.depends_on for subtask in plan.subtasks)
    return f"{counted(len(plan.subtasks), 'commit')}, {free} of which do not depend on another"


def rehearsal_lines(view: RehearsalView) -> Iterator[str]:
    yield ""
    yield _verdict(view)
    yield f"  rehearsal  {safe(view.run)} of {safe(view.repository)}, without model calls, free of charge"
    yield f"  commits    {view.landed} of {view.commits} landed, from {view.base[:12]} to {view.head[:12]}"
    yield f"  tree       {_tree(view)}"
    yield from _gate_lines(view.gate)
    yield f"  attempts   {view.attempts}"
    processor = f", {view.processor_s:g} s of CPU time" if view.processor_s is not None else ""
    yield f"  time       {duration(view.seconds)}{processor}: {view.landed_an_hour} commits per hour"
    yield f"  workers    this machine can run about {view.workers}, limited by its {view.limited_by}"
    yield from _commit_lines("red in history: the gate fails on these commits, but they landed", view.red_in_history)
    yield from _commit_lines("flaky: the gate failed, then passed on the same tree", view.flaky)
    yield from _commit_lines("not replayed by workers: the rehearsal made these changes itself", view.by_hand)
    yield ""
    yield "Recommended settings (write them to fleet.toml with `fleet rehearse --write`)"
    for setting in view.settings:
        yield f"  {setting.key} = {setting.value}   {setting.reason}"


def _verdict(view: RehearsalView) -> str:
    if view.succeeded:
        return "REHEARSED  the resulting tree matches history"
    if not view.clean:
        return "FAILED  the rehearsal left a branch in the repository"
    return "FAILED  the resulting tree differs from history"


def _tree(view: RehearsalView) -> str:
    if view.tree_equal:
        return "matches history"
    more = f" and {len(view.differing) - SHOWN} more" if len(view.differing) > SHOWN else ""
    return f"DIFFERS in {', '.join(map(safe, view.differing[:SHOWN]))}{more}"


def _gate_lines(gate: GateView | None) -> Iterator[str]:
    if gate is None:
        yield "  gate       none configured: only the trees were compared"
        return
    word = "green" if gate.green == gate.tries else "RED" if gate.green == 0 else "FLAKY"
    yield (
        f"  gate       {word} in the sandbox, passed {gate.green} of {gate.tries} times: "
        f"{safe(gate.command, limit=TEXT)}"
    )
    yield (
        f"             {gate.seconds:g} s, {gate.processor_s:g} s of CPU time, {gate.peak_mib} MiB of memory, "
        f"{gate.disk_mib} MiB of disk, setup {gate.setup_s:g} s"
    )
    for line in gate.output.strip().splitlines()[-LAST_LINES:]:
        yield f"             | {safe(line, limit=TEXT)}"


def _commit_lines(title: str, notes: Sequence[PastCommitNote]) -> Iterator[str]:
    if not notes:
        return
    yield ""
    yield f"{len(notes)} {title}"
    for note in notes[:SHOWN]:
        yield f"  {note.commit[:12]} {safe(note.title, limit=60)}"
        if lines := note.text.strip().splitlines():
            yield f"               {safe(lines[0], limit=TEXT)}"
    if len(notes) > SHOWN:
        yield f"  … and {len(notes) - SHOWN} more (--json lists all)"


# ---- for real --------------------------------------------------------------------------------------------------------


def past_tasks_lines(view: PastTasksView) -> Iterator[str]:
    yield ""
    yield _score_line(view)
    yield f"  rehearsal  {safe(view.run)} of {safe(view.repository)}, for real{_model(view)}"
    yield f"  commits    {view.tried} redone from their messages, each on its parent ({_left_out(view)})"
    yield f"  landed     {view.landed} of {view.tried}: the worker finished, and the gate passed"
    if view.with_tests:
        yield f"  tests      {view.passed} of {view.with_tests} pass the tests added by the original commit"
    if view.by_gate:
        yield f"  gate only  {view.by_gate_landed} of {view.by_gate} landed without such tests: only the gate passed"
    yield f"  cost       {_cost(view)}"
    yield f"  time       {duration(view.seconds)}, {counted(view.attempts, 'attempt')}"
    if view.ending not in {"landed", "partial"}:
        yield f"  ended      {view.ending}: {safe(view.ending_why, limit=WHY)}"
    yield ""
    yield "commit        landed  tests   attempts    dollars  seconds  subject"
    for commit in view.redone:
        yield from _redone_lines(commit)
    yield ""
    yield "By worker and model of the last attempt"
    yield from map(_worker, view.workers)
    yield from _left_out_lines(view.left_out)


def _score_line(view: PastTasksView) -> str:
    each = "" if view.dollars_each is None else f", at {money(view.dollars_each)} each"
    landed = f"{view.landed} of {counted(view.tried, 'commit')} landed"
    tests = f", {view.passed} of {view.with_tests} pass the original tests" if view.with_tests else ""
    return f"REHEARSED FOR REAL  {landed}{tests}{each}{'   (simulated model)' if view.simulated else ''}"


def _model(view: PastTasksView) -> str:
    return ", with the SIMULATED model: results don't apply to real models" if view.simulated else ""


def _left_out(view: PastTasksView) -> str:
    waiting = len(view.redone) - view.tried
    untried = f"{waiting} not tried, " if waiting else ""
    return f"{untried}{len(view.left_out)} left out"


def _cost(view: PastTasksView) -> str:
    budget = f" of {money(view.budget_dollars)}" if view.budget_dollars is not None else ""
    return f"{money(view.dollars)}{budget}, including {money(view.planner_dollars)} for the planner"


def _redone_lines(commit: RedoneCommit) -> Iterator[str]:
    landed = "yes" if commit.landed else "NO" if commit.tried else "-"
    tests = "no test" if not commit.tests else "-" if commit.passed is None else "pass" if commit.passed else "FAIL"
    yield (
        f"{commit.commit[:12]}  {landed:<6}  {tests:<7} {commit.attempts:>8}  {money(commit.dollars):>9}  "
        f"{commit.seconds:>7.0f}  {safe(commit.title, limit=TITLE)}"
    )
    if commit.why.strip():
        yield f"              {safe(commit.why.strip().splitlines()[0], limit=WHY)}"


def _worker(score: WorkerScore) -> str:
    model = f" {safe(score.model)}" if score.model is not None else ""
    tests = f"{score.passed} of {score.with_tests} pass the original tests, " if score.with_tests else ""
    return (
        f"  {safe(score.worker)}{model}: {score.landed} of {counted(score.commits, 'commit')} landed, "
        f"{tests}{counted(score.attempts, 'attempt')}, "
        f"{money(score.dollars)}, {duration(score.seconds)}"
    )


def _left_out_lines(left_out: Sequence[LeftOutCommit]) -> Iterator[str]:
    if not left_out:
        return
    yield ""
    yield f"{len(left_out)} left out: not suitable for judging a worker"
    for commit in left_out[:LISTED]:
        yield f"  {commit.commit[:12]} {safe(commit.title, limit=TITLE)}: {safe(commit.why, limit=WHY)}"
    if len(left_out) > LISTED:
        yield f"  … and {len(left_out) - LISTED} more (--json lists all)"
